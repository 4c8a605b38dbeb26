#![deny(deprecated)]

use tool_core::{Agent, Answer, RunError};

async fn ask(agent: &Agent) -> Result<Answer, RunError> {
    agent.run("What is 2 + 40?").await
}

fn main() {}
