#![allow(dead_code)]

use tool_core::{RunError, assistant};

struct City;

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.")]
    async fn plan(&self, city: City) -> Result<String, RunError>;
}

fn main() {}
