use tool_core::memory::Budget;
use tool_core::{Agent, RunError};

async fn ask(agent: &Agent, budget: Budget) -> Result<(), RunError> {
    agent.ask("What is 2 + 40?").budget(budget).await?;
    Ok(())
}

fn main() {}
