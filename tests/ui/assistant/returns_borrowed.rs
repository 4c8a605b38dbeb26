#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.")]
    async fn plan(&self, city: &str) -> Result<&str, RunError>;
}

async fn plan(agent: PlannerAgent) {
    let _ = agent.plan("Rome").await;
}

fn main() {}
