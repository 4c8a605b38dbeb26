//! A support desk: a chat for customers in the browser, and a page on which the staff approves refunds and answers questions.
//!
//! ```text
//! cargo run --features web --example desk
//! ```
//!
//! It prints the URLs of both. Runs are in memory, and everybody on this machine may decide; a real desk has a `SqliteStore`, and keys
//! with which its customers may only ask. It uses the offline model, or with
//! `OPENAI_API_KEY` or `OPENAI_BASE_URL` set, the model `OPENAI_MODEL` of that endpoint.

use std::env;
use std::error::Error;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tool_core::memory::InMemoryStore;
use tool_core::{Agent, ChatModel, tool, tools};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;
use tool_web::Web;

#[tool("Pays money back for an order", needs_approval, at_most_once)]
fn refund(
    /** the number of the order */
    order: u32,
    euros: u32,
) -> String {
    format!("Refunded {euros} euros for order {order}.")
}

#[tool("Returns the state of an order")]
fn order_state(order: u32) -> String {
    format!("Order {order} was delivered yesterday.")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = env::args().nth(1).as_deref().unwrap_or("0").parse()?;
    let agent = Agent::builder(model()?).tools(tools![refund, order_state]).run_store(InMemoryStore::new());
    let web = Web::new().agent("desk", agent.build()?);
    let app = Router::new()
        .route("/", get(async || Html(include_str!("chat.html"))))
        .nest_service("/api/chat", web.ui_stream("desk")?)
        .nest_service("/runs", web.service());
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    println!("the chat: http://{address}/");
    println!("the runs: http://{address}/runs");
    // Otherwise, parts of a stream can wait 40 ms.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, app).await?)
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
