#![allow(dead_code, unused_variables)]

use tool_core::{Agent, ChatModel};

fn agent(model: impl ChatModel + 'static) {
    let _ = Agent::builder(model).run_store("runs.db").build();
}

fn main() {}
