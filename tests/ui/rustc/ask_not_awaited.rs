#![allow(dead_code)]

use tool_core::{Agent, RunError};

async fn ask(agent: &Agent) -> Result<(), RunError> {
    let _answer = agent.ask("What is 2 + 40?")?;
    Ok(())
}

fn main() {}
