#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips in {language}.", agent = PlannerAgent)]
trait Planner {
    #[ask("Plan a trip to {city}.")]
    async fn plan(&self, city: &str, language: &str) -> Result<String, RunError>;

    #[ask("Suggest a hotel in {city}.")]
    async fn hotel(&self, city: &str) -> Result<String, RunError>;
}

fn main() {}
