#![allow(dead_code, unused_variables)]

use tool_core::{RunError, assistant};

const INSTRUCTIONS: &str = "You plan trips.";

#[assistant(INSTRUCTIONS, agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.")]
    async fn plan(&self, city: &str) -> Result<String, RunError>;
}

fn main() {}
