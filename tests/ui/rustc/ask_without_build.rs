#![allow(dead_code)]

use tool_core::{Agent, ChatModel};

async fn ask(model: impl ChatModel + 'static) {
    let agent = Agent::builder(model);
    let _ = agent.ask("What is 2 + 40?").await;
}

fn main() {}
