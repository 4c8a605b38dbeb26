//! Chats in the terminal: streams answers, shows the progress of tools, and remembers the conversation across restarts.
//! `/help` lists the commands; Ctrl-C cancels the current answer.
//!
//! The conversation is stored in the file given as argument, by default in the temporary directory. It uses the offline
//! model, or with `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the model `OPENAI_MODEL` of that endpoint.

use std::env;
use std::error::Error;
use std::path::PathBuf;

use tool_core::memory::Window;
use tool_core::signatures::ToolProgress;
use tool_core::tool::Progress;
use tool_core::{Agent, CancellationToken, ChatMemory, ChatModel, SqliteStore, tool, tools};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;

#[tool("Counts the primes below a number", blocking)]
fn count_primes(
    below: u64,
    #[inject] progress: &Progress,
    #[inject] cancellation: &CancellationToken,
) -> u64 {
    let is_prime =
        |number: &u64| (2..).take_while(|by| by * by <= *number).all(|by| !number.is_multiple_of(by));
    let report = |number: &u64| progress.report(ToolProgress::from("counting").completed(*number, below));
    let numbers = (2..below).take_while(|_| !cancellation.is_cancelled());
    numbers.inspect(report).filter(is_prime).count() as u64
}

#[tool("Returns the square root of a number")]
fn square_root(x: f64) -> f64 {
    x.sqrt()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = env::args_os().nth(1).map_or_else(|| env::temp_dir().join("chat.db"), PathBuf::from);
    let memory = ChatMemory::new(SqliteStore::open(&file).await?).window(Window::tokens(8_000));
    println!("{} messages stored in {}", memory.messages("chat").await?.len(), file.display());
    let agent = Agent::builder(model()?).tools(tools![count_primes, square_root]).memory(memory).build()?;

    tool_cli::chat(agent).await?;
    Ok(())
}

/// Returns the model of the configured endpoint, or the offline model if none is configured.
fn model() -> Result<Box<dyn ChatModel>, Box<dyn Error>> {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    if !is_set("OPENAI_API_KEY") && !is_set("OPENAI_BASE_URL") {
        println!("No OPENAI_API_KEY: using the offline model");
        return Ok(Box::new(OfflineModel::new()));
    }
    let model = if is_set("OPENAI_MODEL") { env::var("OPENAI_MODEL")? } else { "gpt-4.1-mini".into() };
    Ok(Box::new(OpenAi::from_env()?.chat_model(model)))
}
