#![allow(dead_code)]
#![deny(unused_must_use)]

use tool_core::Agent;

async fn ask(agent: &Agent) {
    agent.ask("What is 2 + 40?");
}

fn main() {}
