#![allow(dead_code)]

use tool_core::assistant;

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.")]
    async fn plan(&self, city: &str) -> Result<String>;
}

fn main() {}
