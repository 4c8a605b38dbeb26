use tool_core::agent::AgentBuilder;
use tool_core::memory::Budget;

fn with_budget(builder: AgentBuilder, budget: Budget) -> AgentBuilder {
    builder.budget(move |user: &str| budget.key(user))
}

fn main() {}
