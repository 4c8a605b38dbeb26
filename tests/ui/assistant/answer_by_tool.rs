#![allow(dead_code)]

use tool_core::{Answer, RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.", response = "tool")]
    async fn plan(&self, city: &str) -> Result<Answer, RunError>;
}

fn main() {}
