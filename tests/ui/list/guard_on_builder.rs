#![deny(deprecated)]

use tool_core::agent::AgentBuilder;
use tool_core::layer::{CallVerdict, guard};

fn close(builder: AgentBuilder) -> AgentBuilder {
    builder.guard(guard::call(|_| CallVerdict::deny("not at night")))
}

fn main() {}
