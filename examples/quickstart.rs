//! Asks a question that needs tools and prints the requests, responses and calls.
//!
//! It uses the offline model, served over HTTP on this machine; or with `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the
//! model `OPENAI_MODEL` of that endpoint; or with `ANTHROPIC_API_KEY` or `ANTHROPIC_BASE_URL` set, the model `ANTHROPIC_MODEL`.

use std::env;
use std::error::Error;

use tool_anthropic::Anthropic;
use tool_core::{Agent, ChatModel, Event, tool, tools};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;
use tool_openai::server::Server;

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[tool("Returns the square root of a number")]
fn square_root(
    /** must not be negative */
    x: f64,
) -> Result<f64, String> {
    if x < 0.0 { Err(format!("{x} is negative and has no real square root")) } else { Ok(x.sqrt()) }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let question = env::args().skip(1).collect::<Vec<_>>().join(" ");
    let question = if question.is_empty() { "What is the square root of 475695037565?" } else { &question };

    let variable = |name: &str| env::var(name).ok().filter(|value| !value.trim().is_empty());
    let is_set = |provider: &str| {
        ["API_KEY", "BASE_URL"].iter().any(|name| variable(&format!("{provider}_{name}")).is_some())
    };
    let mut _server = None;
    let model: Box<dyn ChatModel> = if is_set("OPENAI") {
        let name = variable("OPENAI_MODEL").unwrap_or_else(|| "gpt-4.1-mini".into());
        Box::new(OpenAi::from_env()?.chat_model(name))
    } else if is_set("ANTHROPIC") {
        let name = variable("ANTHROPIC_MODEL").unwrap_or_else(|| "claude-sonnet-5-5".into());
        Box::new(Anthropic::from_env()?.chat_model(name))
    } else {
        let server = Server::new().model("offline", OfflineModel::new()).spawn("127.0.0.1:0").await?;
        println!("No OPENAI_API_KEY or ANTHROPIC_API_KEY: using the offline model at {}", server.url());
        let openai = OpenAi::builder().base_url(server.url()).build()?;
        _server = Some(server);
        Box::new(openai.chat_model("offline"))
    };

    let agent = Agent::builder(model)
        .instructions("Use the tools for arithmetic.")
        .tools(tools![sum, square_root])
        .build()?;

    println!("Question: {question}\n");
    let mut events = agent.ask(question).stream();
    while let Some(event) = events.next().await {
        match event? {
            Event::TurnStarted { turn, messages, .. } => {
                println!("--> request {turn}: {messages} messages, {} tools", agent.tools().len());
            }
            Event::TurnFinished { turn, response, .. } => {
                let tokens = response.usage.unwrap_or_default();
                println!(
                    "<-- response {turn}: {} input tokens, {} output tokens",
                    tokens.input_tokens, tokens.output_tokens
                );
                if !response.message.text.is_empty() {
                    println!("    text: {:?}", response.message.text);
                }
            }
            Event::CallStarted(call) => println!("    call {call}"),
            Event::CallFinished(execution) => match execution.outcome() {
                Ok(output) => {
                    println!("    {} returned {output} ({:?})", execution.call().name, execution.duration())
                }
                Err(error) => println!("    {} failed: {error}", execution.call().name),
            },
            Event::Done(answer) => println!("\nAnswer: {answer}"),
            _ => {}
        }
    }
    Ok(())
}
