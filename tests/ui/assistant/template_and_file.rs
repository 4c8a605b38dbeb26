#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.", file = "prompts/describe.md")]
    async fn plan(&self, city: &str) -> Result<String, RunError>;
}

fn main() {}
