#![deny(deprecated)]

use tool_core::agent::AgentBuilder;

fn cool(builder: AgentBuilder) -> AgentBuilder {
    builder.temperature(0.2)
}

fn main() {}
