#![allow(dead_code, unused_variables)]

use tool_core::{Agent, RunError};

struct Plan {
    city: String,
}

async fn plan(agent: &Agent) -> Result<Plan, RunError> {
    agent.ask("Plan a day in Rome.").answer_as::<Plan>().by_tool().await
}

fn main() {}
