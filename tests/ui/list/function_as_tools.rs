#![allow(dead_code)]

use tool_core::{Agent, ChatModel, tool};

#[tool]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

fn agent(model: impl ChatModel + 'static) {
    let _ = Agent::builder(model).tools(square_root).build();
}

fn main() {}
