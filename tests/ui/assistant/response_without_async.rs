#![allow(dead_code)]

use tool_core::agent::EventStream;
use tool_core::assistant;

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.", response = "tool")]
    fn plan(&self, city: &str) -> EventStream;
}

fn main() {}
