#![allow(dead_code)]

use tool_core::{Agent, ChatModel, tool};

/// Escalates the conversation to a person.
#[tool]
fn escalate(reason: String) -> String {
    reason
}

fn agent(model: impl ChatModel + 'static, person: &Agent) {
    let _ = Agent::builder(model).handoff_by(escalate, person).build();
}

fn main() {}
