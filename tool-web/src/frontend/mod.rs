//! Chats with an agent for web frontends.
//!
//! A conversation belongs to the sender that began it, and is the server's: of a request, only the last message of the user, or
//! the decisions about calls that wait, are taken.

mod adapter;
mod asked;
mod ag_ui;
mod ui;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tool_core::ToolSet;
use tool_core::content::Content;
use tool_core::model::ConversationId;
use tool_core::run::Wait;
use tool_core::tool::DecisionKind;
use tool_http::server::HttpService;

use self::adapter::{Encoding, Protocol};
use self::ag_ui::AgUi;
use self::asked::{Asked, Reply};
use self::ui::UiStream;
use crate::auth::Right;
use crate::bounded::Bounded;
use crate::entry::Entry;
use crate::guard::{Guard, HttpError, Sender, admit, read_json};
use crate::hub::{Hub, Source};
use crate::log::RunLog;
use crate::sse;

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
///     .nest_service("/api/chat", tool_web::ui_stream(agent.clone()).into_service())
///     .nest_service("/api/ag-ui", tool_web::ag_ui(agent).into_service());
/// # let _: axum::Router = app;
/// # Ok(())
/// # }
/// ```
#[must_use = "a chat does nothing until its service is served"]
pub struct Frontend {
    protocol: ProtocolName,
    hub: Arc<Hub>,
    source: Option<Arc<Source>>,
    guard: Arc<Guard>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolName {
    UiStream,
    AgUi,
}

impl Frontend {
    pub(crate) fn new(protocol: ProtocolName, hub: Arc<Hub>, agent: &str, guard: Arc<Guard>) -> Self {
        let source = hub.sources.iter().find(|source| &*source.name == agent && source.agent.is_some());
        Self { protocol, source: source.cloned(), hub, guard }
    }

    /// Returns the routes as a service, to serve them as part of an application. Without an agent of the name, all requests are
    /// answered with status 404.
    pub fn into_service(self) -> HttpService {
        HttpService::new(self.routes())
    }

    /// Returns the routes as an [`axum::Router`].
    #[cfg(feature = "unstable-axum")]
    pub fn router(self) -> Router {
        self.routes()
    }

    fn routes(self) -> Router {
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

/// The chats of one router.
struct Chats {
    protocol: ProtocolName,
    hub: Arc<Hub>,
    source: Arc<Source>,
    guard: Arc<Guard>,
    /// The latest run of each conversation.
    runs: Mutex<Bounded<ConversationId, String, 10_000>>,
}

type Shared = State<Arc<Chats>>;
type Answer = Result<Response, HttpError>;

/// The log of a run, and the position after which the response begins.
type Taken = Result<(Arc<RunLog>, u64), HttpError>;

async fn send(State(chats): Shared, sender: Sender, request: Request) -> Answer {
    sender.check(Right::Ask)?;
    match chats.protocol {
        ProtocolName::UiStream => {
            let request: ui::Request = read_json(&chats.guard, request).await?;
            let conversation = conversation(&sender, &request.id)?;
            let (run, waits) = chats.open(&conversation).await?;
            let asked = request.asked(&waits)?;
            let (log, from) = match asked {
                Asked::Question(question) => {
                    chats.ask(&conversation, run, question, ToolSet::default()).await?
                }
                Asked::Replies(replies) => chats.decide(&sender, run, &waits, replies).await?,
            };
            Ok(ui_response(&log, Some(from), true))
        }
        ProtocolName::AgUi => {
            let request: ag_ui::Request = read_json(&chats.guard, request).await?;
            let (thread, run) = (request.thread_id.clone(), request.run_id.clone());
            let conversation = conversation(&sender, &thread)?;
            let mut protocol = AgUi { thread, run, message: String::new() };
            let started = protocol.start();
            let (run, waits) = chats.open(&conversation).await?;
            let taken = async {
                let (asked, tools) = request.asked(&chats.source, &waits)?;
                run.iter().for_each(|run| chats.hub.offer(run, tools.clone()));
                match asked {
                    Asked::Question(_) if !waits.is_empty() => {
                        let refusal = "the run waits for decisions; send `resume`";
                        Err(HttpError::new(StatusCode::CONFLICT, refusal))
                    }
                    Asked::Question(question) => chats.ask(&conversation, run, question, tools).await,
                    Asked::Replies(replies) => {
                        let is_decided = |wait: &Wait| {
                            replies.iter().any(|reply| reply.wait == wait.id)
                                || chats.hub.recorded(&wait.id).is_some()
                        };
                        if !waits.iter().all(is_decided) {
                            return Err(HttpError::bad_request("`resume` must decide about all interrupts"));
                        }
                        chats.decide(&sender, run, &waits, replies).await
                    }
                }
            };
            // Clients expect errors of the run in the stream.
            match taken.await {
                Ok((log, from)) => {
                    protocol.message = message_id(&log);
                    Ok(response(&log, protocol, Some(from), vec![started]))
                }
                Err(HttpError(status, text)) if status.is_client_error() => {
                    let error = serde_json::json!({ "type": "RUN_ERROR", "message": text }).to_string();
                    let events = sse::frames(&[started, error], None);
                    Ok(sse::response(futures_util::stream::iter([events.into()])))
                }
                Err(error) => Err(error),
            }
        }
    }
}

async fn resume(
    State(chats): Shared,
    sender: Sender,
    Path(chat): Path<String>,
    headers: HeaderMap,
) -> Answer {
    sender.check(Right::Ask)?;
    let conversation = conversation(&sender, &chat)?;
    let run = chats.run(&conversation).await;
    let log = run.and_then(|run| chats.hub.log(&run)).filter(|log| log.is_driven());
    let Some(log) = log else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let known: Option<u64> = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let known = known.filter(|known| *known < log.end());
    let question = log.position(|entry| matches!(entry, Entry::Question { .. })).unwrap_or_default();
    Ok(match chats.protocol {
        ProtocolName::UiStream => ui_response(&log, known.or(Some(question)), known.is_none()),
        ProtocolName::AgUi => {
            let (run, message) = (log.id.clone(), message_id(&log));
            let protocol = AgUi { thread: chat, run, message };
            let mut first = Vec::new();
            if known.is_none() {
                first.push(protocol.start());
                let loaded = chats.hub.load(&log.id).await?;
                first.extend(loaded.and_then(|loaded| AgUi::snapshot(loaded.run.messages())));
            }
            response(&log, protocol, known.or(Some(question)), first)
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
    let is_cancelled = chats.hub.cancel(&run).await?;
    if is_cancelled { Ok(StatusCode::NO_CONTENT) } else { Err(HttpError::unknown_run()) }
}

/// Streams a run from after a position on, behind the first events.
fn response(log: &Arc<RunLog>, protocol: impl Protocol, after: Option<u64>, first: Vec<String>) -> Response {
    sse::response(sse::events(log.read(log.first()), Encoding::new(&log.id, protocol), after, first))
}

fn ui_response(log: &Arc<RunLog>, after: Option<u64>, is_message: bool) -> Response {
    let first = if is_message { vec![ui::start(&message_id(log))] } else { Vec::new() };
    let mut response = response(log, UiStream, after, first);
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
        let known = self.runs.lock().unwrap_or_else(PoisonError::into_inner).get(conversation).cloned();
        match known {
            Some(run) => Some(run),
            None => self.source.store.runs_of(conversation).await.ok()?.pop(),
        }
    }

    /// Returns the latest run of a conversation, and what it waits for.
    async fn open(&self, conversation: &ConversationId) -> Result<(Option<String>, Vec<Wait>), HttpError> {
        let Some(run) = self.run(conversation).await else { return Ok((None, Vec::new())) };
        let waits = self.hub.load(&run).await?.map(|loaded| loaded.run.waits());
        Ok((Some(run), waits.unwrap_or_default()))
    }

    async fn ask(
        &self,
        conversation: &ConversationId,
        run: Option<String>,
        question: Content,
        tools: ToolSet,
    ) -> Taken {
        if let Some(run) = run {
            if self.hub.log(&run).is_some_and(|log| log.is_driven()) {
                let refusal = "the last question is still being answered";
                return Err(HttpError::new(StatusCode::CONFLICT, refusal));
            }
            if let Some(log) = self.hub.push_message(&run, &question).await? {
                let from = log.position(|entry| matches!(entry, Entry::Question { .. }));
                return Ok((log, from.unwrap_or_default()));
            }
        }
        let log = self.hub.ask(&self.source, conversation, question, tools);
        let log = log.ok_or_else(HttpError::unknown_run)?;
        let mut runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        runs.insert(conversation.clone(), log.id.clone());
        drop(runs);
        Ok((Arc::clone(&log), log.first()))
    }

    /// Records replies of the client.
    async fn decide(
        &self,
        sender: &Sender,
        run: Option<String>,
        waits: &[Wait],
        mut replies: Vec<Reply>,
    ) -> Taken {
        let run = &run.ok_or_else(HttpError::unknown_run)?;
        replies.retain(|Reply { wait, decision, may_be_old }| {
            let is_open = waits.iter().any(|open| open.id == *wait);
            is_open || !may_be_old || self.hub.is_repeated(wait, decision)
        });
        if replies.is_empty() {
            return Err(HttpError::new(StatusCode::CONFLICT, "the run does not wait for what was sent"));
        }
        for Reply { wait, decision, .. } in &replies {
            let kind = decision.record(wait).map(|record| record.kind);
            if !matches!(kind, Some(DecisionKind::Answered | DecisionKind::Supplied)) {
                sender.check(Right::Decide)?;
            }
        }
        let decisions = replies.into_iter().map(|reply| (reply.wait, reply.decision)).collect();
        let recorded = self.hub.decide(run, sender.0.name(), decisions).await?;
        let log = self.hub.log(run).ok_or_else(HttpError::unknown_run)?;
        // The response to a repeated request begins where the first one began.
        let first = recorded.iter().map(|recorded| recorded.position).min().unwrap_or_default();
        Ok((log, first.saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests;
