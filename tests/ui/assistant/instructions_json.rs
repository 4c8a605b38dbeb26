#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant(r#"Answer with {"city": "…"}."#, agent = PlannerAgent)]
trait Planner {
    #[ask("Suggest a hotel in {city}.")]
    async fn hotel(&self, city: &str) -> Result<String, RunError>;
}

fn main() {}
