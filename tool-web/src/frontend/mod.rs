//! Chats with an agent for web frontends.
//!
//! A conversation belongs to the sender that began it, and is the server's: of a request, only the last message of the user, or
//! the decisions about calls that wait, are taken.

mod adapter;
mod ag_ui;
#[cfg(test)]
mod tests;
mod ui;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::Value;
use tool_core::Agent;
use tool_core::content::Content;
use tool_core::memory::MemoryError;
use tool_core::model::ConversationId;

use self::ag_ui::AgUiEncoder;
use self::ui::UiEncoder;
use crate::auth::Right;
use crate::entry::Entry;
use crate::guard::{Guard, HttpError, Sender, admit, read_json};
use crate::hub::{Hub, Source};
use crate::log::RunLog;
use crate::sse;
use crate::wait::{Pending, Reason, Verdict};
use crate::web::Web;

/// The number of chats of which the current run is remembered.
const MAX_CHATS: usize = 10_000;

/// A chat with an agent, returned by [`ui_stream`](crate::ui_stream) and [`ag_ui`](crate::ag_ui).
///
/// | route | |
/// | --- | --- |
/// | `POST /` | sends a message or decisions, and streams the run until it ends or waits |
/// | `GET /{chat}/stream` | streams the run in progress again, or from the `Last-Event-ID` on; 204 if there is none |
/// | `DELETE /{chat}/stream` | cancels the run in progress |
///
/// Closing a stream does not end its run.
///
/// ```
/// use tool_core::Agent;
/// use tool_core::testing::ScriptedModel;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new()).build()?;
/// let app = axum::Router::new()
///     .nest("/api/chat", tool_web::ui_stream(agent.clone()).router())
///     .nest("/api/ag-ui", tool_web::ag_ui(agent).router());
/// # let _: axum::Router = app;
/// # Ok(())
/// # }
/// ```
#[must_use = "a chat does nothing until its router is served"]
pub struct Frontend {
    protocol: Protocol,
    hub: Arc<Hub>,
    source: Option<Arc<Source>>,
    guard: Arc<Guard>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    UiStream,
    AgUi,
}

/// Serves an agent to frontends of the Vercel AI SDK, versions 6 and 7, on loopback without login. For anything else, use
/// [`Web::ui_stream`].
pub fn ui_stream(agent: Agent) -> Frontend {
    Web::new().agent("agent", agent).ui_stream("agent")
}

/// Serves an agent to frontends of AG-UI, on loopback without login. For anything else, use [`Web::ag_ui`].
pub fn ag_ui(agent: Agent) -> Frontend {
    Web::new().agent("agent", agent).ag_ui("agent")
}

impl Frontend {
    pub(crate) fn new(protocol: Protocol, hub: Arc<Hub>, agent: &str, guard: Arc<Guard>) -> Self {
        let source = hub.sources.iter().find(|source| &*source.name == agent && source.agent.is_some());
        Self { protocol, source: source.cloned(), hub, guard }
    }

    /// Returns the routes as an [`axum::Router`], to nest into an application. Without an agent of the name, all requests are
    /// answered with status 404.
    pub fn router(self) -> Router {
        let guard = Arc::clone(&self.guard);
        let Some(source) = self.source else { return Router::new() };
        let chats = Chats {
            protocol: self.protocol,
            hub: self.hub,
            source,
            guard: self.guard,
            runs: Mutex::default(),
        };
        Router::new()
            .route("/", post(send))
            .route("/{chat}/stream", get(resume).delete(stop))
            .layer(from_fn_with_state(guard, admit))
            .with_state(Arc::new(chats))
    }
}

impl fmt::Debug for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Frontend").field(&self.protocol).finish()
    }
}

/// What a request asks for.
#[derive(Debug)]
enum Asked {
    Question(Content),
    Replies(Vec<Reply>),
}

/// A reply of the client to something that the run waits for.
#[derive(Debug)]
struct Reply {
    about: About,
    given: Given,
    /// The call and its arguments, as the client has them.
    shown: Option<(String, Value)>,
}

#[derive(Debug)]
enum About {
    Wait(String),
    /// A call whose result the client supplies, or a question that was shown as a call.
    Call(String),
}

#[derive(Debug)]
enum Given {
    Verdict(Verdict),
    Output(Value),
    /// The payload of an interrupt, unless it was cancelled.
    Payload(Option<Value>),
}

impl Given {
    /// Returns the verdict about a wait. One that is not open any more is taken for what the reply looks like.
    fn verdict(self, wait: Option<&Pending>) -> Result<Verdict, HttpError> {
        let is_result = wait.is_some_and(|wait| matches!(wait.reason, Reason::Result { .. }));
        Ok(match self {
            Self::Verdict(verdict) => verdict,
            Self::Output(output) if is_result => {
                Verdict::Result(output.as_str().map_or_else(|| output.to_string(), str::to_owned))
            }
            Self::Output(answer) => Verdict::Answer(answer.to_string()),
            Self::Payload(None) => Verdict::Deny(None),
            Self::Payload(Some(payload)) if wait.is_some_and(Pending::is_question) => {
                Verdict::Answer(payload.to_string())
            }
            Self::Payload(Some(payload)) => {
                let reason = payload.get("reason").and_then(Value::as_str).map(str::to_owned);
                match (payload.get("approved").and_then(Value::as_bool), payload.get("editedArgs")) {
                    (Some(false), _) => Verdict::Deny(reason),
                    (Some(true), Some(arguments)) => Verdict::Edit(arguments.to_string()),
                    (Some(true), None) => Verdict::Approve,
                    (None, _) if wait.is_none() => Verdict::Answer(payload.to_string()),
                    (None, _) => {
                        return Err(HttpError::bad_request(
                            "`resume` needs a `payload` with a boolean `approved`",
                        ));
                    }
                }
            }
        })
    }
}

/// The chats of one router.
struct Chats {
    protocol: Protocol,
    hub: Arc<Hub>,
    source: Arc<Source>,
    guard: Arc<Guard>,
    /// The latest run of each conversation, and the conversations, the oldest first.
    runs: Mutex<(HashMap<ConversationId, String>, VecDeque<ConversationId>)>,
}

type Shared = State<Arc<Chats>>;

async fn send(State(chats): Shared, sender: Sender, request: Request) -> Result<Response, HttpError> {
    sender.check(Right::Ask)?;
    match chats.protocol {
        Protocol::UiStream => {
            let request: ui::Request = read_json(&chats.guard, request).await?;
            let conversation = conversation(&sender, &request.id)?;
            let (log, from) = chats.take(&sender, &conversation, request.asked()?, false).await?;
            Ok(ui_response(&log, Some(from), true))
        }
        Protocol::AgUi => {
            let request: ag_ui::Request = read_json(&chats.guard, request).await?;
            let (thread, run) = (request.thread_id.clone(), request.run_id.clone());
            let conversation = conversation(&sender, &thread)?;
            let started = AgUiEncoder::start(&thread, &run);
            // Clients expect errors of the run in the stream.
            let asked = match request.asked() {
                Ok(asked) => chats.take(&sender, &conversation, asked, true).await,
                Err(error) => Err(error),
            };
            let (log, from) = match asked {
                Ok(found) => found,
                Err(HttpError(status, text)) if status.is_client_error() => {
                    let error = serde_json::json!({ "type": "RUN_ERROR", "message": text }).to_string();
                    let events = sse::frames(&[started, error], None);
                    return Ok(sse::response(futures_util::stream::iter([events.into()])));
                }
                Err(error) => return Err(error),
            };
            let message = message_id(&log);
            let encoder = AgUiEncoder::new(&log.id, thread, run, message);
            let events = sse::events(log.read(log.first()), encoder, Some(from), vec![started]);
            Ok(sse::response(events))
        }
    }
}

async fn resume(
    State(chats): Shared,
    sender: Sender,
    Path(chat): Path<String>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    sender.check(Right::Ask)?;
    let conversation = conversation(&sender, &chat)?;
    let run = chats.run(&conversation).await;
    let log = run.and_then(|run| chats.hub.log(&run)).filter(|log| log.is_driven());
    let Some(log) = log else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let known: Option<u64> = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let question = log.position(|entry| matches!(entry, Entry::Question { .. })).unwrap_or_default();
    Ok(match chats.protocol {
        Protocol::UiStream => ui_response(&log, known.or(Some(question)), known.is_none()),
        Protocol::AgUi => {
            let start = AgUiEncoder::start(&chat, &log.id);
            let encoder = AgUiEncoder::new(&log.id, chat, log.id.clone(), message_id(&log));
            let first = if known.is_none() { vec![start] } else { Vec::new() };
            sse::response(sse::events(log.read(log.first()), encoder, known.or(Some(question)), first))
        }
    })
}

async fn stop(
    State(chats): Shared,
    sender: Sender,
    Path(chat): Path<String>,
) -> Result<StatusCode, HttpError> {
    sender.check(Right::Ask)?;
    let conversation = conversation(&sender, &chat)?;
    let run = chats.run(&conversation).await.ok_or_else(HttpError::unknown_run)?;
    match chats.hub.cancel(&run).await {
        Ok(true) => Ok(StatusCode::NO_CONTENT),
        Ok(false) => Err(HttpError::unknown_run()),
        Err(_) => Err(HttpError::store()),
    }
}

/// Streams a run from after a position on.
fn ui_response(log: &Arc<RunLog>, after: Option<u64>, is_message: bool) -> Response {
    let first = if is_message { vec![UiEncoder::start(&message_id(log))] } else { Vec::new() };
    let events = sse::events(log.read(log.first()), UiEncoder::new(&log.id), after, first);
    let mut response = sse::response(events);
    response.headers_mut().insert("x-vercel-ai-ui-message-stream", HeaderValue::from_static("v1"));
    response
}

/// Returns the id of the assistant's current message. A run that is continued has the same.
fn message_id(log: &RunLog) -> String {
    format!("msg_{}_{}", log.id, log.questions())
}

/// Returns the conversation of a chat. The same id of another sender is another conversation.
fn conversation(sender: &Sender, chat: &str) -> Result<ConversationId, HttpError> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.:".contains(char);
    if chat.is_empty() || chat.len() > 200 || !chat.chars().all(is_plain) {
        return Err(HttpError::bad_request(
            "the id of a chat has 1 to 200 letters, digits, `-`, `_`, `.` or `:`",
        ));
    }
    // A chat has no slash, so no two pairs are the same text.
    Ok(ConversationId::new(format!("{}/{chat}", sender.0.name())))
}

impl Chats {
    /// Returns the latest run of a conversation, which an earlier process can have stored.
    async fn run(&self, conversation: &ConversationId) -> Option<String> {
        let known = self.runs.lock().unwrap_or_else(PoisonError::into_inner).0.get(conversation).cloned();
        match known {
            Some(run) => Some(run),
            None => self.source.store.runs_of(conversation).await.ok()?.pop(),
        }
    }

    fn remember(&self, conversation: &ConversationId, run: String) {
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        let (by_chat, order) = &mut *runs;
        if by_chat.insert(conversation.clone(), run).is_none() {
            order.push_back(conversation.clone());
        }
        while order.len() > MAX_CHATS
            && let Some(oldest) = order.pop_front()
        {
            by_chat.remove(&oldest);
        }
    }

    /// Does what a request asks for. Returns the log of the run and the position after which the response begins.
    async fn take(
        &self,
        sender: &Sender,
        conversation: &ConversationId,
        asked: Asked,
        is_complete: bool,
    ) -> Result<(Arc<RunLog>, u64), HttpError> {
        match asked {
            Asked::Question(question) => self.ask(conversation, question, is_complete).await,
            Asked::Replies(replies) => {
                let run = self.run(conversation).await.ok_or_else(HttpError::unknown_run)?;
                self.decide(sender, &run, replies, is_complete).await
            }
        }
    }

    async fn ask(
        &self,
        conversation: &ConversationId,
        question: Content,
        is_complete: bool,
    ) -> Result<(Arc<RunLog>, u64), HttpError> {
        if let Some(run) = self.run(conversation).await {
            if self.hub.log(&run).is_some_and(|log| log.is_driven()) {
                return Err(HttpError::new(
                    StatusCode::CONFLICT,
                    "the last question is still being answered",
                ));
            }
            let waits = self.hub.waits(&run).await?;
            if is_complete && waits.is_some_and(|waits| !waits.is_empty()) {
                return Err(HttpError::new(
                    StatusCode::CONFLICT,
                    "the run waits for decisions; send `resume`",
                ));
            }
            let pushed = self.hub.push_message(&run, &question).await?;
            if let Some(log) = pushed {
                let from = log.position(|entry| matches!(entry, Entry::Question { .. }));
                return Ok((log, from.unwrap_or_default()));
            }
        }
        let log = self.hub.ask(&self.source, conversation, question);
        let log = log.ok_or_else(HttpError::unknown_run)?;
        self.remember(conversation, log.id.clone());
        Ok((Arc::clone(&log), log.first()))
    }

    /// Records replies of the client. It must have been shown what it decides about.
    async fn decide(
        &self,
        sender: &Sender,
        run: &str,
        replies: Vec<Reply>,
        is_complete: bool,
    ) -> Result<(Arc<RunLog>, u64), HttpError> {
        let waits = self.hub.waits(run).await?.unwrap_or_default();
        let mut verdicts = Vec::new();
        for Reply { about, given, shown } in replies {
            let is_call = matches!(about, About::Call(_));
            let (id, open) = match about {
                About::Wait(id) => {
                    let open = waits.iter().find(|wait| wait.id == id);
                    (id, open)
                }
                About::Call(call) => {
                    let is_it = |wait: &&Pending| match wait.reason {
                        Reason::Result { .. } => wait.call == call,
                        Reason::Answer { .. } => wait.id == call,
                        _ => false,
                    };
                    let open = waits.iter().find(is_it);
                    (open.map_or(call, |open| open.id.clone()), open)
                }
            };
            if let (Some(open), Some((call, input))) = (open, shown)
                && (open.call != call
                    || !open.arguments().is_some_and(|arguments| is_same(arguments, &input)))
            {
                return Err(HttpError::new(StatusCode::CONFLICT, "the call is not the one that was shown"));
            }
            let verdict = given.verdict(open)?;
            // Other calls of the message had their results before.
            let is_repeated = || self.hub.recorded(&id).is_some_and(|one| one.digest == verdict.digest());
            if is_call && open.is_none() && !is_repeated() {
                continue;
            }
            if matches!(verdict, Verdict::Approve | Verdict::Edit(_) | Verdict::Deny(_)) {
                sender.check(Right::Decide)?;
            }
            verdicts.push((id, verdict));
        }
        let is_decided = |id: &str| verdicts.iter().any(|(wait, _)| wait == id);
        if is_complete
            && !waits.iter().all(|wait| is_decided(&wait.id) || self.hub.recorded(&wait.id).is_some())
        {
            return Err(HttpError::bad_request("`resume` must decide about all interrupts"));
        }
        if verdicts.is_empty() {
            return Err(HttpError::new(StatusCode::CONFLICT, "the run does not wait for what was sent"));
        }
        let recorded = self.hub.decide(run, sender.0.name(), verdicts).await?;
        let log = self.hub.log(run).ok_or_else(HttpError::unknown_run)?;
        // The response to a repeated request begins where the first one began.
        let first = recorded.iter().filter_map(|recorded| recorded.position).min();
        let from = first.unwrap_or_else(|| log.end()).saturating_sub(1);
        Ok((log, from))
    }
}

/// Compares arguments with what a browser has made of them.
fn is_same(arguments: &str, shown: &Value) -> bool {
    serde_json::from_str::<Value>(arguments).is_ok_and(|value| is_same_value(&value, shown))
        || shown.as_str() == Some(arguments)
}

/// JavaScript's numbers have no more digits than an `f64`.
fn is_same_value(value: &Value, shown: &Value) -> bool {
    match (value, shown) {
        (Value::Number(one), Value::Number(other)) => one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| is_same_value(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let is_in = |(name, value): (&String, _)| {
                other.get(name).is_some_and(|other| is_same_value(value, other))
            };
            one.len() == other.len() && one.iter().all(is_in)
        }
        _ => value == shown,
    }
}

impl From<MemoryError> for HttpError {
    fn from(_: MemoryError) -> Self {
        Self::store()
    }
}
