#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent, temperature = 0.2)]
trait Planner {
    #[ask("Plan a day.")]
    async fn plan(&self) -> Result<String, RunError>;
}

fn main() {}
