#![allow(dead_code, unused_variables)]

use tool_core::assistant;

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.")]
    fn plan(&self, city: &str) -> impl Iterator<Item = String>;
}

fn main() {}
