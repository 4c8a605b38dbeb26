#![deny(deprecated)]

use tool_core::agent::AgentBuilder;

fn calculator(builder: AgentBuilder) -> AgentBuilder {
    builder.preamble("You are a calculator.")
}

fn main() {}
