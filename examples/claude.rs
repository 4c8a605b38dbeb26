//! Asks Claude about a text and the web, and prints its thinking, its answer, the sources, and what the prompt cache saved.
//!
//! It needs `ANTHROPIC_API_KEY`, and takes the model from `ANTHROPIC_MODEL`.

use std::env;
use std::error::Error;

use tool_anthropic::{Anthropic, HostedTool, ReplyDetails, Thinking};
use tool_core::content::{Content, File};
use tool_core::{Agent, Event, tool, tools};

const HARBOR_RULES: &str =
    "Yachts enter the harbor from two hours before to two hours after high tide, with a free mooring.";

/// Returns the number of free moorings of a harbor.
#[tool]
fn free_moorings(
    /** such as `Brest` */
    harbor: String,
) -> Result<u32, String> {
    if harbor == "Brest" { Ok(3) } else { Err(format!("no harbor is named {harbor}")) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if env::var("ANTHROPIC_API_KEY").is_err() && env::var("ANTHROPIC_BASE_URL").is_err() {
        println!(
            "ANTHROPIC_API_KEY is not set; set it, or set ANTHROPIC_BASE_URL to a server that needs no key"
        );
        return Ok(());
    }
    let name = env::var("ANTHROPIC_MODEL").unwrap_or_else(|_| "claude-sonnet-5-5".into());
    let model = Anthropic::from_env()?
        .chat_model(name)
        .thinking(Thinking::adaptive().summarized())
        .hosted_tool(HostedTool::web_search().max_uses(2))
        .citations(true);
    let agent = Agent::builder(model).tools(tools![free_moorings].strict_where_possible()).build()?;

    let rules = File::from_bytes("text/plain", HARBOR_RULES).with_name("harbor rules");
    let question = Content::from("When can I enter the harbor of Brest today?").with_part(rules);
    let mut events = agent.ask(question).stream();
    while let Some(event) = events.next().await {
        match event? {
            Event::Reasoning(text) => eprint!("{text}"),
            Event::CallStarted(call) => println!("\n    call {call}"),
            Event::TurnFinished { turn, response, .. } => {
                let usage = response.usage.unwrap_or_default();
                let details = ReplyDetails::from_message(&response.message).unwrap_or_default();
                println!(
                    "\n<-- response {turn}: {} input tokens, {} from the cache; hosted tools: {:?}",
                    usage.input_tokens,
                    usage.cached_tokens.unwrap_or(0),
                    details.hosted_tool_uses
                );
                for citation in &response.message.citations {
                    let source = citation.url.as_ref().or(citation.title.as_ref());
                    println!("    {:?}: {}", source, &response.message.text[citation.range.clone()]);
                }
            }
            Event::Done(answer) => println!("\nAnswer: {answer}"),
            _ => {}
        }
    }
    Ok(())
}
