#![allow(dead_code, unused_variables)]

use std::pin::Pin;

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a day in {city}.")]
    fn plan(&self, city: &str) -> Pin<Box<dyn Future<Output = Result<String, RunError>> + Send + '_>>;
}

fn main() {}
