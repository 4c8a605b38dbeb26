#![allow(dead_code)]

use tool_core::{RunError, assistant};

struct User;

#[assistant("You plan trips.", agent = PlannerAgent)]
trait Planner {
    #[ask]
    async fn plan(&self, #[inject] user: User, #[inject] other: User, city: &str) -> Result<String, RunError>;
}

fn main() {}
