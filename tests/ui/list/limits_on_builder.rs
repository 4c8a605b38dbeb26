#![deny(deprecated)]

use tool_core::agent::AgentBuilder;

fn short(builder: AgentBuilder) -> AgentBuilder {
    builder.max_turns(3)
}

fn main() {}
