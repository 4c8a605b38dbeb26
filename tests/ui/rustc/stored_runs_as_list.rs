#![allow(dead_code)]

use tool_core::Agent;

async fn resume(agent: &Agent) -> Result<(), Box<dyn std::error::Error>> {
    for _run in agent.stored_runs().await? {}
    Ok(())
}

fn main() {}
