#![deny(deprecated)]

use tool_core::agent::AgentBuilder;

fn careful(builder: AgentBuilder) -> AgentBuilder {
    builder.needs_approval(|call| call.name == "pay")
}

fn main() {}
