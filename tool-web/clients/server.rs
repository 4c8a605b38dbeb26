//! The server for the tests with real clients and a real browser. Prints its URL and serves until its standard input closes. With the path of a
//! file, it stores runs and conversations there, and goes on with the runs of other servers on this file that were killed.
//!
//! The model does what the last message of the user says: `text`, `sum`, `pay`, `two` (payments), `book` (with questions), `inner` (a payment of an agent
//! inside), `color` (with a tool of the frontend), `error`, `slow`, `reserve` (which is undone), `huge`, `hostile`, `reordered` (by letters from right to left), `twisted`.

use std::borrow::Cow;
use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tool_core::agent::AgentBuilder;
use tool_core::memory::InMemoryStore;
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ChatStream, Delta, ModelError, Usage};
use tool_core::provider::ModelFuture;
use tool_core::schemars::{self, JsonSchema, Schema, SchemaGenerator, json_schema};
use tool_core::signatures::ToolProgress;
use tool_core::store::{ChatStore, RunStore};
use tool_core::tool::{Asker, Progress};
use tool_core::{Agent, ChatMemory, ChatModel, Message, SqliteStore, ToolCall, ToolError, tool, tools};
use tool_postgres::PostgresStore;
use tool_web::{Right, Web};

/// The hostile text: markup, scripts, and marks of direction.
const HOSTILE: &str = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script> \
    [link](javascript:alert(1)) invoice\u{202e}fdp.exe \u{200b}\u{2066}";

#[tool("Sums two numbers", pure)]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

#[tool("Pays money to somebody", needs_approval, at_most_once)]
fn pay(
    /** who gets the money */
    recipient: String,
    /** the amount */
    euros: u64,
    urgent: Option<bool>,
) -> String {
    let urgent = if urgent == Some(true) { " at once" } else { "" };
    format!("Paid {euros} euros to {recipient}{urgent}.")
}

#[tool("Counts slowly")]
async fn count(to: u64, #[inject] progress: &Progress) -> u64 {
    for number in 0..to {
        progress.report(ToolProgress::from("counting").completed(number, to));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    to
}

#[tool("Returns a megabyte of markup")]
fn huge() -> String {
    "<b>x</b>".repeat(1 << 17)
}

#[tool("Returns hostile text")]
fn hostile(text: String) -> String {
    format!("{HOSTILE}{}", text.len())
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Seat {
    /** the row */
    row: u8,
    letter: char,
}

#[tool("Books a seat on a flight", at_most_once)]
async fn book(flight: String, #[inject] user: &Asker) -> Result<String, ToolError> {
    let text = "Which class?\nhttps://air.example/classes\nhttps://bank.example@evil.example/\nhttps://evil.example\\.bank.example/\njavascript:alert(1)";
    let class: String = user.ask(text).choices(["economy", "business"]).await?;
    let seat: Seat = user.ask("Which seat?").await?;
    let code: String = user.ask("Which code has your card?").secret().await?;
    Ok(format!("{}{} on {flight}, {class}, code of {}", seat.row, seat.letter, code.len()))
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Card {
    number: String,
    is_gold: bool,
    color: Color,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Color {
    Red,
    Blue,
}

#[tool("Adds a card")]
async fn add_card(#[inject] user: &Asker) -> Result<String, ToolError> {
    let card: Card = user.ask("Which card?").secret().await?;
    Ok(format!("{}, {}, {:?}", card.number.len(), card.is_gold, card.color))
}

#[tool("Shares money", needs_approval)]
fn share(parts: Vec<serde_json::Value>) -> usize {
    parts.len()
}

/// An answer whose schema, as one of an MCP server, is wrong.
#[derive(Serialize, Deserialize)]
struct Twisted {
    amount: u8,
}

impl JsonSchema for Twisted {
    fn schema_name() -> Cow<'static, str> {
        "Twisted".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object", "required": 5,
            "properties": { "amount": { "type": 5, "description": { "text": 5 } }, "nothing": null },
        })
    }
}

#[tool("Asks with a wrong schema", at_most_once)]
async fn twist(#[inject] user: &Asker) -> Result<String, ToolError> {
    let answer: Twisted = user.ask("How much?").await?;
    Ok(format!("{} it is", answer.amount))
}

#[tool("Reserves a table", undo = "release")]
fn reserve(table: u8) -> String {
    format!("Reserved table {table}.")
}

#[tool("Releases a table")]
fn release(table: u8) -> String {
    format!("Released table {table}.")
}

struct Scripted;

impl Scripted {
    fn reply(request: &ChatRequest<'_>) -> Result<ChatResponse, ModelError> {
        let messages = request.messages();
        let call = |calls: &[(&str, String)]| {
            let calls = calls.iter().enumerate().map(|(index, (name, arguments))| {
                ToolCall::new(format!("call_{}_{index}", messages.len()), *name, arguments)
            });
            AssistantMessage::text("").with_tool_calls(calls)
        };
        let pay = |recipient: &str| ("pay", format!(r#"{{"recipient": "{recipient}", "euros": 80}}"#));
        let message = match messages.last() {
            Some(Message::Tool(_)) => {
                let results = messages.iter().rev().take_while(|message| matches!(message, Message::Tool(_)));
                let mut text: Vec<_> =
                    results.map(|message| message.text().chars().take(60).collect::<String>()).collect();
                text.reverse();
                AssistantMessage::text(format!("Result: {}", text.join(" ")))
            }
            Some(last) => match &*last.text() {
                "sum" => call(&[("sum", r#"{"a": 2, "b": 40.5}"#.to_owned())]),
                "pay" => {
                    let mut message = call(&[pay("Anna")]);
                    message.text = "I will pay Anna.".to_owned();
                    message
                }
                "two" => call(&[pay("Anna"), pay("Eve")]),
                "inner" => call(&[("helper", r#"{"question": "pay"}"#.to_owned())]),
                "book" => call(&[("book", r#"{"flight": "OS 87"}"#.to_owned())]),
                "card" => call(&[("add_card", "{}".to_owned())]),
                "slow" => call(&[("count", r#"{"to": 600}"#.to_owned())]),
                "reserve" => {
                    call(&[("reserve", r#"{"table": 4}"#.to_owned()), ("count", r#"{"to": 600}"#.to_owned())])
                }
                "color" if request.tools().iter().any(|tool| tool.name() == "pick_color") => {
                    call(&[("pick_color", r#"{"title": "Wall"}"#.to_owned())])
                }
                "some" => call(&[("count", r#"{"to": 20}"#.to_owned())]),
                "reordered" => call(&[("share", "{\"parts\": [\"\u{5d0}\", 1, 80]}".to_owned())]),
                "twisted" => call(&[("twist", "{}".to_owned())]),
                "huge" => call(&[("huge", "{}".to_owned())]),
                "error" => return Err(ModelError::new("secret host 10.0.0.7 refused the connection")),
                "hostile" => {
                    let mut message =
                        call(&[("hostile", serde_json::json!({ "text": HOSTILE }).to_string()), {
                            let recipient = format!("Anna{HOSTILE}");
                            ("pay", serde_json::json!({ "recipient": recipient, "euros": 1 }).to_string())
                        }]);
                    message.text = HOSTILE.to_owned();
                    message
                }
                text => {
                    let mut message =
                        AssistantMessage::text(format!("You said {text}, in message {}.", messages.len()));
                    message.reasoning = Some("The user wants a text.".to_owned());
                    message
                }
            },
            None => AssistantMessage::text("?"),
        };
        Ok(ChatResponse::new(message).with_usage(Usage::new(100, 20)))
    }
}

impl ChatModel for Scripted {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move { Self::reply(request) })
    }

    /// Streams in small pieces.
    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let deltas = match Self::reply(request) {
            Ok(response) => response.into_deltas().into_iter().flat_map(split).map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        ChatStream::new(stream::iter(deltas))
    }
}

fn split(delta: Delta) -> Vec<Delta> {
    let pieces = |text: &str| -> Vec<String> {
        text.chars().collect::<Vec<_>>().chunks(7).map(|chunk| chunk.iter().collect()).collect()
    };
    match delta {
        Delta::Text(text) => pieces(&text).into_iter().map(Delta::Text).collect(),
        Delta::Reasoning(text) => pieces(&text).into_iter().map(Delta::Reasoning).collect(),
        Delta::Arguments { index, text } => {
            pieces(&text).into_iter().map(|text| Delta::Arguments { index, text }).collect()
        }
        other => vec![other],
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let stores: Option<(Arc<dyn ChatStore>, Arc<dyn RunStore>)> = match std::env::args().nth(1) {
        Some(url) if url.starts_with("postgres:") => {
            let store =
                Arc::new(PostgresStore::connect(url).schema(std::env::var("STORE_SCHEMA")?).migrate().await?);
            Some((store.clone(), store))
        }
        Some(path) => {
            let store = Arc::new(SqliteStore::open(path).await?);
            Some((store.clone(), store))
        }
        None => None,
    };
    let with_store = |agent: AgentBuilder| match &stores {
        Some((chats, runs)) => {
            let memory = ChatMemory::new(chats.clone());
            agent.run_store(runs.clone()).memory(memory).run_lease(Duration::from_secs(2))
        }
        None => agent,
    };
    let helper = Agent::builder(Scripted).tools(tools![pay]).build()?;
    let helper = helper.as_tool("helper", "Helps with a question");
    let agent = with_store(Agent::builder(Scripted).run_store(InMemoryStore::new()))
        .name("desk")
        .tools(tools![sum, pay, count, huge, hostile, book, add_card, reserve, share, twist].with(helper)?)
        .undo_tools(tools![release])
        .build()?;
    // The same without a store, so that what waits is held by the chat.
    let plain = with_store(Agent::builder(Scripted)).name("plain").tools(tools![sum, pay, count]).build()?;
    let _recovering: Vec<_> = match &stores {
        Some(_) => {
            [&agent, &plain].map(|agent| agent.recover().interval(Duration::from_millis(500)).start()).into()
        }
        None => Vec::new(),
    };
    let web = Web::new().record_requests().agent(agent.clone()).agent(plain);
    let keys = Web::new()
        .agent(agent)
        .key("anna", "sk-anna", [Right::Read, Right::Decide, Right::Administer, Right::Chat])
        .key("eve", "sk-eve", [Right::Read]);
    let chat = Html(include_str!("../docs/chat.html"));
    let app = Router::new()
        .route("/chat", get(async move || chat))
        .fallback_service(web.service())
        .nest_service("/api/chat", web.ui_stream("desk")?)
        .nest_service("/api/plain", web.ui_stream("plain")?)
        .nest_service("/api/ag-ui", web.ag_ui("desk")?)
        .nest_service("/keys", keys.service());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    Ok(())
}
