#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask]
    async fn plan(&self, #[conversation] id: &str, #[conversation] other: &str, city: &str) -> Result<String, RunError>;
}

fn main() {}
