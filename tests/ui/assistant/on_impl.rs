#![allow(dead_code)]

use tool_core::{RunError, assistant};

struct Planner;

#[assistant("You plan trips.", agent = PlannerAgent)]
impl Planner {
    #[ask("Plan a day in {city}.")]
    async fn plan(&self, #[inject] user: Planner, city: &str) -> Result<String, RunError>;

    #[ask("Plan a night in {city}.")]
    async fn plan_night(&self, city: &str) -> Result<String, RunError> {
        Ok(city.to_owned())
    }
}

fn main() {}
