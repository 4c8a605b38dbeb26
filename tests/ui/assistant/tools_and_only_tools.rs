#![allow(dead_code)]

use tool_core::{RunError, assistant, tool};

#[tool]
fn search() {}

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.", tools(search), only_tools(search))]
    async fn plan(&self, city: &str) -> Result<String, RunError>;
}

fn main() {}
