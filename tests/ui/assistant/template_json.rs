#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask(r#"Answer {"city": "…"} for {city}."#)]
    async fn plan(&self, city: &str) -> Result<String, RunError>;
}

fn main() {}
