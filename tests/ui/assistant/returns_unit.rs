#![allow(dead_code)]

use tool_core::assistant;

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.")]
    fn plan(&self, city: &str) -> usize;
}

fn main() {}
