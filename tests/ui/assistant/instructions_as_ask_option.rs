#![allow(dead_code, unused_variables)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.", system = "You plan trips.")]
    async fn plan(&self, city: &str) -> Result<String, RunError>;
}

fn main() {}
