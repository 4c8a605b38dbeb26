use tool_core::agent::AgentBuilder;
use tool_core::{Agent, BuildError};

fn desk(builder: AgentBuilder, billing: Agent) -> Result<Agent, BuildError> {
    builder.handoffs([billing]).build()
}

fn main() {}
