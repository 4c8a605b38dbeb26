#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    type City: std::fmt::Display;

    #[ask("Plan a day in {city}.")]
    async fn plan(&self, city: &str) -> Result<Vec<Self::City>, RunError>;
}

fn main() {}
