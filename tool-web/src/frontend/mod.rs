//! Chats with an agent for web frontends.
//!
//! A conversation belongs to the sender that began it, and is the server's: of a request, only the last message of the user, or
//! the decisions about calls that wait, are taken.

mod adapter;
mod stream;
mod asked;
mod ag_ui;
mod ui;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use futures_util::stream::{self as streams, StreamExt};
use tool_core::model::{ConversationId, ToolDefinition};
use tool_core::run::Wait;
use tool_core::tool::{DecisionKind, WaitId};
use tool_http::server::{HttpService, sse_response};
use tower_service::Service;

use self::adapter::Executors;
use self::ag_ui::AgUi;
use self::asked::{Asked, Reply};
use self::stream::{Encoder, Protocol, events};
use self::ui::UiStream;
use crate::auth::{Principal, Right};
use crate::driving::check_budget;
use crate::guard::{Guard, HttpError, admit, admit_stream, requires};
use crate::hub::Hub;
use crate::log::{FrontendTools, RunLog};
use crate::source::Source;
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
/// A `Frontend` is a service, like an [`HttpService`]:
///
/// ```
/// use tool_core::Agent;
/// use tool_core::testing::ScriptedModel;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new()).build()?;
/// let app = axum::Router::new()
///     .nest_service("/api/chat", tool_web::ui_stream(agent.clone()))
///     .nest_service("/api/ag-ui", tool_web::ag_ui(agent));
/// # let _: axum::Router = app;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a chat does nothing until it is served"]
pub struct Frontend {
    chats: Chats,
    service: HttpService,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolName {
    UiStream,
    AgUi,
}

impl Frontend {
    pub(crate) fn new(protocol: ProtocolName, hub: Arc<Hub>, source: Arc<Source>, guard: Arc<Guard>) -> Self {
        let mut executors = Executors::default();
        source.agent.iter().for_each(|agent| executors.add_application_tools(agent));
        Self::of(Chats { protocol, hub, source, guard, executors })
    }

    fn of(chats: Chats) -> Self {
        Self { service: HttpService::new(chats.clone().routes()), chats }
    }

    /// Lets the browser execute the calls of these [external tools](tool_core::tool::ExternalTool) of the agent: it reads their arguments
    /// and supplies their results, which nothing trusts. Calls of others are the application's. Tools that an AG-UI frontend sends need no
    /// permission.
    pub fn browser_tools(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let Executors { browser, application } = &mut self.chats.executors;
        browser.extend(names.into_iter().map(Into::into));
        application.retain(|name| !browser.contains(name));
        Self::of(self.chats)
    }

    /// Returns the routes as an [`axum::Router`].
    #[cfg(feature = "unstable-axum")]
    pub fn router(self) -> Router {
        self.chats.routes()
    }
}

impl<R> Service<R> for Frontend
where
    HttpService: Service<R>,
{
    type Response = <HttpService as Service<R>>::Response;
    type Error = <HttpService as Service<R>>::Error;
    type Future = <HttpService as Service<R>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        self.service.call(request)
    }
}

impl fmt::Debug for Frontend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Frontend").field(&self.chats.protocol).finish()
    }
}

/// The chats of one router.
#[derive(Clone)]
struct Chats {
    protocol: ProtocolName,
    hub: Arc<Hub>,
    source: Arc<Source>,
    guard: Arc<Guard>,
    /// Without the tools that are sent with questions.
    executors: Executors,
}

type Shared = State<Chats>;
type Sender = Extension<Principal>;
type Answer = Result<Response, HttpError>;

/// The log of a run, and the position after which the response begins.
type Taken = Result<(Arc<RunLog>, u64), HttpError>;

async fn send(State(chats): Shared, Extension(sender): Sender, request: Request) -> Answer {
    match chats.protocol {
        ProtocolName::UiStream => {
            let request: ui::Request = chats.guard.read_json(request).await?;
            let conversation = conversation(&sender, &request.id)?;
            let read = |waits: &[Wait]| Ok((request.asked(waits)?, FrontendTools::default()));
            let (log, from) = chats.take(&sender, &conversation, read).await?;
            Ok(chats.ui_response(&log, Some(from), true))
        }
        ProtocolName::AgUi => {
            let request: ag_ui::Request = chats.guard.read_json(request).await?;
            let (thread, run) = (request.thread_id.clone(), request.run_id.clone());
            let conversation = conversation(&sender, &thread)?;
            let mut protocol = AgUi { thread, run, message: String::new() };
            let started = protocol.start();
            let is_recorded = |wait: &WaitId| chats.hub.decisions.get(wait).is_some();
            let read = |waits: &[Wait]| request.asked(&chats.source, waits, is_recorded);
            // Clients expect errors of the run in the stream.
            match chats.take(&sender, &conversation, read).await {
                Ok((log, from)) => {
                    protocol.message = message_id(&log);
                    Ok(chats.response(&log, protocol, Some(from), vec![started]))
                }
                Err(HttpError(status, text)) if status.is_client_error() => {
                    let error = serde_json::json!({ "type": "RUN_ERROR", "message": text }).to_string();
                    let events = sse::frames(&[started, error], None);
                    Ok(sse_response(streams::iter([events])))
                }
                Err(error) => Err(error),
            }
        }
    }
}

async fn resume(
    State(chats): Shared,
    Extension(sender): Sender,
    Path(chat): Path<String>,
    headers: HeaderMap,
) -> Answer {
    let run = chats.source.run_of(&conversation(&sender, &chat)?).await;
    let log = run.and_then(|run| chats.hub.log(&run)).filter(|log| log.is_driven());
    let Some(log) = log else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let known = sse::last_event(&headers).filter(|known| *known < log.end());
    let after = known.unwrap_or_else(|| log.questions().1);
    Ok(match chats.protocol {
        ProtocolName::UiStream => chats.ui_response(&log, Some(after), known.is_none()),
        ProtocolName::AgUi => {
            let protocol = AgUi { thread: chat, run: log.id.clone(), message: message_id(&log) };
            let mut first = Vec::new();
            if known.is_none() {
                first.push(protocol.start());
                let loaded = chats.hub.load(&log.id).await?;
                first.extend(
                    loaded.and_then(|loaded| AgUi::snapshot(loaded.run.messages(), &chats.executors)),
                );
            }
            chats.response(&log, protocol, Some(after), first)
        }
    })
}

async fn stop(
    State(chats): Shared,
    Extension(sender): Sender,
    Path(chat): Path<String>,
) -> Result<StatusCode, HttpError> {
    let run = chats.source.run_of(&conversation(&sender, &chat)?).await;
    let run = run.ok_or_else(HttpError::unknown_run)?;
    chats.hub.cancel(&run).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the id of the assistant's current message. A run that is continued has the same.
fn message_id(log: &RunLog) -> String {
    format!("msg_{}_{}", log.id, log.questions().0)
}

/// Returns the conversation of a chat. The same id of another sender is another conversation.
fn conversation(sender: &Principal, chat: &str) -> Result<ConversationId, HttpError> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.:".contains(char);
    if chat.is_empty() || chat.len() > 200 || !chat.chars().all(is_plain) {
        return Err(HttpError::bad_request(
            "the id of a chat has 1 to 200 letters, digits, `-`, `_`, `.` or `:`",
        ));
    }
    // A chat has no slash, so no two pairs are the same text.
    Ok(ConversationId::new(format!("{}/{chat}", sender.name())))
}

impl Chats {
    fn routes(self) -> Router {
        let streams = Router::new()
            .route("/", requires(Right::Ask, post(send)))
            .route("/{chat}/stream", requires(Right::Ask, get(resume)))
            .layer(from_fn_with_state(Arc::clone(&self.guard), admit_stream));
        Router::new()
            .route("/{chat}/stream", requires(Right::Ask, delete(stop)))
            .layer(from_fn_with_state(Arc::clone(&self.guard), admit))
            .merge(streams)
            .with_state(self)
    }

    /// Returns who executes the calls of a run.
    fn executors(&self, log: &RunLog) -> Executors {
        let mut executors = self.executors.clone();
        executors.browser.extend(log.tools().iter().map(|tool| tool.definition().name().to_owned()));
        executors
    }

    /// Streams a run from after a position on, behind the first events.
    fn response(
        &self,
        log: &Arc<RunLog>,
        protocol: impl Protocol,
        after: Option<u64>,
        first: Vec<String>,
    ) -> Response {
        let encoder = Encoder::new(&log.id, self.executors(log), protocol);
        let events = events(log.read(log.first()), encoder, after);
        let opening = Some(first).filter(|first| !first.is_empty()).map(|first| sse::frames(&first, None));
        sse_response(streams::iter(opening).chain(events))
    }

    fn ui_response(&self, log: &Arc<RunLog>, after: Option<u64>, is_message: bool) -> Response {
        let first = if is_message { vec![ui::start(&message_id(log))] } else { Vec::new() };
        let mut response = self.response(log, UiStream, after, first);
        response.headers_mut().insert("x-vercel-ai-ui-message-stream", HeaderValue::from_static("v1"));
        response
    }

    /// Takes what a request asks for, which `read` finds out from what the conversation waits for, with the tools of the client.
    async fn take(
        &self,
        sender: &Principal,
        conversation: &ConversationId,
        read: impl FnOnce(&[Wait]) -> Result<(Asked, FrontendTools), HttpError>,
    ) -> Taken {
        let run = self.source.run_of(conversation).await;
        let loaded = match &run {
            Some(run) => self.hub.load(run).await?,
            None => None,
        };
        let mut waits = loaded.as_ref().map(|loaded| loaded.run.waits()).unwrap_or_default();
        let log = loaded.as_ref().map(|loaded| self.hub.log_of(&loaded.source, &loaded.run));
        let executors = log.as_ref().map_or_else(|| self.executors.clone(), |log| self.executors(log));
        waits.retain(|wait| executors.may_end(wait));
        let (asked, tools) = read(&waits)?;
        match asked {
            Asked::Question(question) => {
                self.hub.ask(&self.source, conversation, question, tools, sender.name()).await
            }
            Asked::Replies(replies) => {
                if let Some((loaded, log)) = loaded.as_ref().zip(log) {
                    check_budget(&loaded.run)?;
                    // A run that was loaded again gets the tools, but not the calls of others that wait.
                    let open = loaded.run.waits();
                    let is_free = |tool: &ToolDefinition| open.iter().all(|wait| wait.tool != tool.name());
                    log.offer(FrontendTools { set: tools.set.filter(is_free), ..tools });
                }
                self.decide(sender, run, &waits, replies).await
            }
        }
    }

    /// Records replies of the client.
    async fn decide(
        &self,
        sender: &Principal,
        run: Option<String>,
        waits: &[Wait],
        mut replies: Vec<Reply>,
    ) -> Taken {
        let run = &run.ok_or_else(HttpError::unknown_run)?;
        replies.retain(|Reply { wait, decision, may_be_old }| {
            let is_open = waits.iter().any(|open| open.id == *wait);
            is_open
                || !may_be_old
                || self.hub.decisions.get(wait).is_some_and(|recorded| recorded.is(decision))
        });
        if replies.is_empty() {
            return Err(HttpError::conflict("the run does not wait for what was sent"));
        }
        for Reply { wait, decision, .. } in &replies {
            let kind = decision.record(wait).map(|record| record.kind);
            if !matches!(kind, Some(DecisionKind::Answered | DecisionKind::Supplied)) {
                sender.check(Right::Decide)?;
            }
        }
        let decisions = replies.into_iter().map(|reply| (reply.wait, reply.decision)).collect();
        let recorded = self.hub.decide(run, sender.name(), decisions).await?;
        let recorded = recorded.map_err(|earlier| {
            let by = earlier.by.as_deref().unwrap_or("somebody");
            HttpError::conflict(format!("`{by}` has decided otherwise"))
        })?;
        let log = self.hub.log(run).ok_or_else(HttpError::unknown_run)?;
        // The response to a repeated request begins where the first one began.
        let first = recorded.iter().map(|recorded| recorded.position).min().unwrap_or_default();
        Ok((log, first.saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests;
