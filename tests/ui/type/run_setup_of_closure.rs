use tool_core::agent::{AgentBuilder, RunInfo, RunResources};

fn with_key(builder: AgentBuilder) -> AgentBuilder {
    builder.run_setup(async |_: &RunInfo| Ok(RunResources::new().memory_key("user-7")))
}

fn main() {}
