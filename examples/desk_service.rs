//! A support desk as a web service: questions, streamed answers, and refunds that a person approves. Start it twice with other
//! ports and the same file, and each process takes decisions about the runs of the other.
//!
//! ```text
//! cargo run --features service --example desk_service -- 8080
//! curl -d 'Refund 80 euros for order 7' localhost:8080/users/ada/questions
//! curl -d 'What is the state of order 8?' localhost:8080/users/eve/stream
//! curl localhost:8080/pending
//! curl -X POST localhost:8080/runs/RUN/waits/WAIT/approve
//! ```
//!
//! Each user has a budget of tokens per day, which all processes share.
//!
//! A real service authenticates its users and does not take their names from the URL. Conversations and runs are in the file
//! `DESK_DB`, by default in the temporary directory. It uses the offline model, or with `OPENAI_API_KEY` or `OPENAI_BASE_URL`
//! set, the model `OPENAI_MODEL` of that endpoint.

use std::convert::Infallible;
use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{self, Sse};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use futures_util::stream::{self, Stream};
use serde_json::json;
use tokio::net::TcpListener;
use tool_core::agent::{CommandErrorKind, Outcome};
use tool_core::memory::{Budget, KeyedBudget, MemoryError, RunStatus};
use tool_core::run::{Decision, Run, WaitReason};
use tool_core::tool::{Timestamp, WaitId};
use tool_core::{Agent, ChatModel, Event, ModelOptions, RunErrorKind, SqliteStore, tool, tools};
use tool_offline::OfflineModel;
use tool_openai::OpenAi;

type Failure = Box<dyn Error>;

/// A status and a JSON text.
type Reply = (StatusCode, String);

/// The time after which nobody may approve a refund any more.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The tokens that a user has per day.
const TOKENS_PER_DAY: u64 = 200_000;

/// The longest reply of the model, in tokens. Budgets reserve it before each request.
const MAX_REPLY: u32 = 2_000;

#[derive(Clone)]
struct Desk {
    agent: Agent,
    budget: Budget,
}

impl Desk {
    /// Returns the budget of the user whose run it is.
    fn budget_of(&self, run: &Run) -> KeyedBudget {
        self.budget.key(run.conversation().map(ToString::to_string).unwrap_or_default())
    }
}

#[tool("Pays money back for an order", needs_approval, at_most_once)]
fn refund(order: u32, euros: u32) -> String {
    format!("Refunded {euros} euros for order {order}.")
}

#[tool("Returns the state of an order")]
fn order_state(order: u32) -> String {
    format!("Order {order} was delivered yesterday.")
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let port: u16 = env::args().nth(1).as_deref().unwrap_or("8080").parse()?;
    let file = env::var_os("DESK_DB").map_or_else(|| env::temp_dir().join("desk.db"), PathBuf::from);
    let store = SqliteStore::open(file).await?;
    let budget = Budget::tokens(store.clone(), TOKENS_PER_DAY, Duration::from_secs(24 * 3_600));
    let agent =
        Agent::builder(model()?).tools(tools![refund, order_state]).memory(store.clone()).run_store(store);
    let options = ModelOptions::default().with_max_output_tokens(MAX_REPLY);
    let desk = Desk { agent: agent.options(options).max_run_age(MAX_AGE).build()?, budget };

    tokio::spawn(tidy_up(desk.clone()));
    let service = Router::new()
        .route("/users/{user}/questions", post(ask))
        .route("/users/{user}/stream", post(stream))
        .route("/pending", get(pending))
        .route("/runs/{run}/waits/{wait}/{decision}", post(decide))
        .with_state(desk);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    // Otherwise, parts of a stream can wait 40 ms.
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, service).await?)
}

/// Answers a question. If the client disconnects, the future is dropped, and the run is continued by [`tidy_up`].
async fn ask(State(desk): State<Desk>, Path(user): Path<String>, question: String) -> Reply {
    let budget = desk.budget.key(&*user);
    reply(desk.agent.ask(question).conversation(user).budget(budget).outcome().await)
}

fn reply(outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Answer(answer) => (StatusCode::OK, json!({ "answer": answer.text() }).to_string()),
        Outcome::Waiting(run) => (StatusCode::ACCEPTED, json!({ "waiting": run.id() }).to_string()),
        Outcome::Failed(error) => {
            if let RunErrorKind::Budget { ends, .. } = error.kind() {
                let seconds = ends.since(Timestamp::now()).as_secs();
                let text = format!("your budget is used up; ask again in {seconds} seconds");
                return (StatusCode::TOO_MANY_REQUESTS, json!({ "error": text }).to_string());
            }
            let (status, text) = match error.kind() {
                RunErrorKind::ConversationWaits { .. } => {
                    (StatusCode::CONFLICT, "an earlier request is waiting")
                }
                _ if error.is_resumable() => (StatusCode::SERVICE_UNAVAILABLE, "please try again"),
                _ => (StatusCode::INTERNAL_SERVER_ERROR, "this is not possible"),
            };
            // The details are for the operator.
            eprintln!("{error}");
            (status, json!({ "error": text }).to_string())
        }
    }
}

/// Streams the text of the answer as server-sent events.
async fn stream(
    State(desk): State<Desk>,
    Path(user): Path<String>,
    question: String,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let budget = desk.budget.key(&*user);
    let events = desk.agent.ask(question).conversation(user).budget(budget).stream();
    Sse::new(stream::unfold(events, |mut events| async move {
        loop {
            let event = match events.next().await? {
                Ok(Event::Text(text)) => sse::Event::default().event("text").data(json!(text).to_string()),
                Ok(Event::Done(answer)) => reply_event(Outcome::Answer(answer)),
                Err(error) => reply_event(Err(error).into()),
                Ok(_) => continue,
            };
            return Some((Ok(event), events));
        }
    }))
}

fn reply_event(outcome: Outcome) -> sse::Event {
    sse::Event::default().event("outcome").data(reply(outcome).1)
}

/// Lists the calls that await a decision.
async fn pending(State(desk): State<Desk>) -> Reply {
    let stored = match desk.agent.stored_runs().await {
        Ok(stored) => stored.runs,
        Err(error) => return unavailable(&error),
    };
    let waiting = stored.iter().filter(|stored| stored.status == RunStatus::Waiting);
    let calls = waiting.flat_map(|stored| {
        stored.run.waits().into_iter().filter_map(|wait| match wait.reason {
            WaitReason::Approval(call) => Some(json!({
                "run": stored.run.id(), "wait": wait.id, "tool": call.name, "arguments": call.arguments,
            })),
            _ => None,
        })
    });
    (StatusCode::OK, calls.collect::<serde_json::Value>().to_string())
}

/// Records a decision, and continues the run if no process works on it.
async fn decide(
    State(desk): State<Desk>,
    Path((run, wait, decision)): Path<(String, WaitId, String)>,
) -> Reply {
    let decision = match &*decision {
        "approve" => Decision::approve(),
        "deny" => Decision::deny("the desk denied it"),
        _ => return (StatusCode::NOT_FOUND, json!({ "error": "unknown decision" }).to_string()),
    };
    let decided = match desk.agent.decide(&run, &wait, decision).await {
        Ok(decided) => decided,
        Err(error) => {
            let status = match error.kind() {
                CommandErrorKind::UnknownRun => StatusCode::NOT_FOUND,
                CommandErrorKind::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::CONFLICT,
            };
            return (status, json!({ "error": error.to_string() }).to_string());
        }
    };
    let budget = desk.budget_of(decided.run());
    match decided.resume() {
        Some(resumed) => {
            // In a task of its own, because closing the page does not cancel what was approved.
            let driven = tokio::spawn(async move { reply(resumed.budget(budget).outcome().await) });
            driven.await.unwrap_or_else(|_| (StatusCode::INTERNAL_SERVER_ERROR, String::new()))
        }
        // Its driver takes the decision.
        None => (StatusCode::ACCEPTED, json!({ "recorded": run }).to_string()),
    }
}

fn unavailable(error: &MemoryError) -> Reply {
    eprintln!("{error}");
    (StatusCode::SERVICE_UNAVAILABLE, json!({ "error": "please try again" }).to_string())
}

/// Continues what a process that died has left, and ends what was cancelled. Each process does this, and the lease decides which one takes
/// a run.
async fn tidy_up(desk: Desk) {
    loop {
        match desk.agent.stored_runs().await {
            Ok(stored) => {
                for stored in stored.runs {
                    let is_left = matches!(stored.status, RunStatus::Interrupted | RunStatus::Cancelled);
                    let budget = desk.budget_of(&stored.run);
                    if is_left
                        && let Outcome::Failed(error) =
                            desk.agent.resume(stored.run).budget(budget).outcome().await
                    {
                        eprintln!("{error}");
                    }
                }
            }
            Err(error) => eprintln!("{error}"),
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

/// Returns the model of the configured endpoint, or the offline model if none is configured.
fn model() -> Result<Box<dyn ChatModel>, Failure> {
    let is_set = |name| env::var(name).is_ok_and(|value| !value.trim().is_empty());
    if !is_set("OPENAI_API_KEY") && !is_set("OPENAI_BASE_URL") {
        println!("No OPENAI_API_KEY: using the offline model");
        return Ok(Box::new(OfflineModel::new()));
    }
    let model = if is_set("OPENAI_MODEL") { env::var("OPENAI_MODEL")? } else { "gpt-4.1-mini".into() };
    Ok(Box::new(OpenAi::from_env()?.chat_model(model)))
}
