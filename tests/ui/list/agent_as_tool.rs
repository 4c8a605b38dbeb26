#![allow(dead_code, unused_variables)]

use tool_core::{Agent, ChatModel};

fn agent(model: impl ChatModel + 'static, other: Agent) {
    let _ = Agent::builder(model).tools(other).build();
}

fn main() {}
