#![allow(dead_code)]

use tool_core::{RunError, assistant};

const PROMPT: &str = "Plan a day in {city}.";

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask(PROMPT)]
    async fn plan(&self, city: &str) -> Result<String, RunError>;
}

fn main() {}
