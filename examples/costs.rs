//! What answers cost: prices from a file, a limit for each run, and a second model in case the first one is down.
//!
//! ```text
//! cargo run --features prices --example costs
//! ```
//!
//! It uses the offline model, or with `OPENAI_API_KEY` and `ANTHROPIC_API_KEY` set, GPT-4.1 mini, and Claude if that is down.

use std::env;
use std::error::Error;

use tool_anthropic::Anthropic;
use tool_core::model::{Cost, Fallback, Prices};
use tool_core::{Agent, ChatModel, RunErrorKind, tool, tools};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;

/// Returns the square root of a number.
#[tool]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let prices = Prices::from_toml(include_str!("prices.toml"))?;
    let agent = Agent::builder(model()?)
        .tools(tools![square_root])
        .prices(prices)
        .limits(|l| l.max_cost(Cost::usd(0.05)))
        .build()?;
    match agent.ask("What is the square root of 475695037565?").await {
        Ok(answer) => {
            println!("{answer}");
            answer.cost().iter().for_each(|cost| println!("It cost {cost}."));
        }
        Err(error) => match error.kind() {
            RunErrorKind::MaxCost { spent, .. } => println!("It would cost too much; {spent} are spent."),
            _ => return Err(error.into()),
        },
    }
    Ok(())
}

fn model() -> Result<Box<dyn ChatModel>, Box<dyn Error>> {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    if !is_set("OPENAI_API_KEY") || !is_set("ANTHROPIC_API_KEY") {
        println!("No OPENAI_API_KEY and ANTHROPIC_API_KEY: using the offline model");
        return Ok(Box::new(OfflineModel::new()));
    }
    let (openai, claude) = (OpenAi::from_env()?, Anthropic::from_env()?);
    Ok(Box::new(Fallback::new(openai.chat_model("gpt-4.1-mini")).or(claude.chat_model("claude-sonnet-4-5"))))
}
