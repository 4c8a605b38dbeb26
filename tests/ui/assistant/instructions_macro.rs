#![allow(dead_code, unused_variables)]

use tool_core::{RunError, assistant};

#[assistant(include_str!("planner.md"), agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.")]
    async fn plan(&self, city: &str) -> Result<String, RunError>;
}

fn main() {}
