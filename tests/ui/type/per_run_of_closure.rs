use tool_core::agent::{AgentBuilder, RunInfo, RunParts};

fn with_key(builder: AgentBuilder) -> AgentBuilder {
    builder.per_run(async |_: &RunInfo| Ok(RunParts::new().memory_key("user-7")))
}

fn main() {}
