#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.", response = "json")]
    async fn plan(&self, city: &str) -> Result<u8, RunError>;
}

fn main() {}
