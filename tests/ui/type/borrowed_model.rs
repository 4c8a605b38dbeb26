#![allow(dead_code)]

use tool_core::{Agent, ChatModel};

fn agent(model: &'static dyn ChatModel) {
    let _ = Agent::builder(model).build();
}

fn main() {}
