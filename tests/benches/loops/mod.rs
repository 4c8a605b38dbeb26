//! Two equivalent agents for benches that compare them: ours, and a hand-written loop with reqwest and serde. Both use one
//! HTTP endpoint on this machine, which answers immediately.

#![allow(dead_code, reason = "each bench needs another part of it")]

pub(crate) mod by_hand;
pub(crate) mod clock;
pub(crate) mod endpoint;
pub(crate) mod tools;

use tool_core::Agent;
use tool_openai::OpenAi;

pub(crate) const MODEL: &str = "m";

pub(crate) const INSTRUCTIONS: &str =
    "You find places to stay. Look one page up after the other, and then name the best.";

pub(crate) const QUESTION: &str = "Where do we stay in Rome, with two children, for at most 150 a night?";

/// Builds our agent with the endpoint as its model and a limit of `calls` tool calls.
pub(crate) fn agent(base_url: &str, calls: u32) -> Result<Agent, Box<dyn std::error::Error>> {
    let model = OpenAi::builder().base_url(base_url).build()?.chat_model(MODEL);
    let agent = Agent::builder(model).instructions(INSTRUCTIONS).tools(tools::all());
    Ok(agent.limits(|l| l.max_turns(calls + 1)).build()?)
}
