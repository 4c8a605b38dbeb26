#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.")]
    async fn plan<T: serde::Serialize>(&self, city: T) -> Result<String, RunError>;
}

async fn plan(agent: PlannerAgent) {
    let _ = agent.plan("Rome").await;
}

fn main() {}
