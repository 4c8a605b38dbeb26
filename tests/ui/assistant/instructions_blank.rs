#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day.")]
    async fn plan(&self) -> Result<String, RunError>;
}

fn main() {}
