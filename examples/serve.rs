//! Serves an agent and a model as an OpenAI-compatible endpoint until ctrl-c: `cargo run --example serve -- 8080`.
//!
//! The port is the argument, or `PORT`, or 8080. With `SERVE_API_KEY` set, callers need that key; without
//! it, every program on this machine can call the server, but no web page can. The agent uses the
//! offline model, or with `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the model `OPENAI_MODEL` of that endpoint.

use std::env;
use std::error::Error;
use std::time::Duration;

use tool_core::{Agent, ChatModel, tool, tools};
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
    let port = env::args().nth(1).or_else(|| env::var("PORT").ok()).unwrap_or_else(|| "8080".into());
    let port: u16 =
        port.parse().map_err(|_| format!("invalid port `{port}`: must be a number from 0 to 65535"))?;
    let key = env::var("SERVE_API_KEY").ok().filter(|key| !key.trim().is_empty());

    let agent = Agent::builder(model()?)
        .instructions("Use the tools for arithmetic.")
        .tools(tools![sum, square_root])
        .build()?;
    let mut server = Server::new().agent("calculator", agent).model("offline", OfflineModel::new());
    if let Some(key) = &key {
        server = server.api_key(key.as_str());
    }
    let server = server.spawn(("127.0.0.1", port)).await?;

    let url = server.url();
    let (header, shown) = match key {
        Some(_) => (" -H \"Authorization: Bearer $SERVE_API_KEY\"", "os.environ['SERVE_API_KEY']"),
        None => ("", "'none'"),
    };
    println!("Serving `calculator` and `offline` at {url}; press ctrl-c to stop. Try:\n");
    println!(
        "curl {url}/chat/completions -H 'Content-Type: application/json'{header} -d '{{\"model\": \"calculator\", \
         \"messages\": [{{\"role\": \"user\", \"content\": \"What is 2.5 plus 40?\"}}]}}'\n"
    );
    println!("from openai import OpenAI");
    println!("client = OpenAI(base_url='{url}', api_key={shown})");
    println!("response = client.responses.create(model='calculator', input='What is 2.5 plus 40?')");
    println!("print(response.output_text)");

    tokio::signal::ctrl_c().await?;
    println!("\nFinishing the requests in flight.");
    server.stop_within(Duration::from_secs(10)).await?;
    Ok(())
}

/// Returns the model of the configured endpoint, or the offline model if none is configured.
fn model() -> Result<Box<dyn ChatModel>, Box<dyn Error>> {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    if !is_set("OPENAI_API_KEY") && !is_set("OPENAI_BASE_URL") {
        return Ok(Box::new(OfflineModel::new()));
    }
    let model = if is_set("OPENAI_MODEL") { env::var("OPENAI_MODEL")? } else { "gpt-4.1-mini".into() };
    Ok(Box::new(OpenAi::from_env()?.chat_model(model)))
}
