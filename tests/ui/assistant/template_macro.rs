#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask(concat!("Plan a day", " in {city}."), max_turns = 3)]
    async fn plan(&self, city: &str) -> Result<String, RunError>;
}

fn main() {}
