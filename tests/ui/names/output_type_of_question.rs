#![deny(deprecated)]

use tool_core::{Agent, RunError};

async fn count(agent: &Agent) -> Result<u32, RunError> {
    agent.ask("How many?").output_type::<u32>().await
}

fn main() {}
