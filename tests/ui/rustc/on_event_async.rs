#![allow(dead_code)]

use tool_core::{Agent, ChatModel};

fn agent(model: impl ChatModel + 'static) {
    let _ = Agent::builder(model).on_event(async |_event| {}).build();
}

fn main() {}
