#![allow(dead_code, unused_variables)]

use tool_core::{Agent, RunError};

#[derive(serde::Deserialize)]
struct Plan {
    city: String,
}

async fn plan(agent: &Agent) -> Result<Plan, RunError> {
    let (plan, answer) = agent.ask("Plan a day in Rome.").answer_as().with_answer().await?;
    Ok(plan)
}

fn main() {}
