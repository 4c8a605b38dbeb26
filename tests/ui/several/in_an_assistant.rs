#![allow(dead_code)]

use tool_core::{RunError, assistant};

#[assistant("You plan trips.", agent = PlannerAgent, colour = "red")]
trait Planner {
    #[ask("Plan a day in {citty} and {place}.", temprature = 0.2)]
    async fn plan(&self, city: &str, #[inject] name: String) -> Result<String, RunError>;

    #[ask("Plan a week in {city}", max_turns = 0)]
    async fn plan_week<T>(&mut self, city: &str, budget: u32) -> Result<&str, RunError>;
}

async fn plan(mut agent: PlannerAgent) {
    let _ = agent.plan("Rome", String::new()).await;
    let _ = agent.plan_week::<u8>("Rome", 7).await;
}

fn main() {}
