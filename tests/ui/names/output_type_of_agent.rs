use tool_core::agent::AgentBuilder;
use tool_core::{Agent, BuildError};

fn counter(builder: AgentBuilder) -> Result<Agent, BuildError> {
    builder.output_type::<u32>().build()
}

fn main() {}
