#![deny(deprecated)]

use tool_core::agent::AgentBuilder;
use tool_core::{Agent, ChatModel};

fn agent(model: impl ChatModel + 'static) -> AgentBuilder {
    Agent::new(model)
}

fn main() {}
