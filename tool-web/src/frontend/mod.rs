//! Chats with an agent for web frontends.
//!
//! A conversation belongs to the sender that began it, and is the server's: of a request, only the last message of the user, or
//! the decisions about calls that wait, are taken.
//!
//! What a user of a chat may approve is a list of names, and none by default, because a model can be persuaded to ask its user for
//! anything. A name is one of the agent's own tools or its providers', because an agent inside can have a tool of the same name. Without
//! the right `Decide`, arguments are not edited there, because that would be a call of the user's.
//!
//! The tools of a browser are fixed when its question is asked; for a run that was loaded again, with the first replies, without those of
//! open calls (`RunLog::offer`), because a browser could otherwise claim an open call of the application by offering a tool of its
//! name. With providers, the application names them (`Chats::may_offer`), because a server's tool can be away for a turn.

mod adapter;
mod stream;
mod asked;
mod ag_ui;
mod ui;
mod chats;

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
use serde_json::Value;
use tool_core::engine::list_names;
use tool_core::provider::printable;
use tool_core::run::Wait;
use tool_core::tool::WaitId;
use tool_core::{Agent, Message};
use tool_http::server::{HttpService, json_response, sse_response};
use tower_service::Service;

use self::adapter::Executors;
use self::ag_ui::AgUi;
pub(crate) use self::chats::ProtocolName;
use self::chats::{Chats, Taken, conversation, has_providers, message_id};
use self::stream::{Encoder, Protocol, Start, events};
use self::ui::UiStream;
use crate::auth::{Principal, Right};
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
/// | `GET /{chat}/messages` | the messages of the chat, as the protocol has them, with what waits for the user |
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
    /// and supplies their results, which nothing trusts. Calls of others are the application's.
    ///
    /// Tools that an AG-UI frontend sends need no permission, unless the agent or one that it hands runs over to has
    /// [providers](Agent::tool_providers): a user could then answer for a tool of a server, so only those with these names are taken.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is not the one of an [own tool](Agent::tools) of the agent, and the agent has no providers.
    pub fn browser_tools(
        mut self,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, UnknownToolError> {
        let names = self.known_tools(names)?;
        let Executors { browser, application, .. } = &mut self.chats.executors;
        application.retain(|name, _| !names.contains(name));
        browser.extend(names);
        Ok(Self::of(self.chats))
    }

    /// Lets users approve and deny calls of these tools of the agent in their own chats, as the model has made them. By default there is
    /// none: all other calls, such as those of agents inside and after a handoff, are decided on the [page](crate::Web::service), or in the
    /// chats of a user with the right [`Decide`](Right::Decide).
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Cancels an order of the customer", needs_approval)]
    /// fn cancel_order(order: u32) {}
    ///
    /// #[tool("Pays money back for an order", needs_approval)]
    /// fn refund(order: u32, euros: u32) {}
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new()).tools(tools![cancel_order, refund]).build()?;
    /// // A customer confirms that an order is to be cancelled; the staff decides about money.
    /// let chat = tool_web::ui_stream(agent).approvable_tools(["cancel_order"])?;
    /// let error = chat.approvable_tools(["cancel"]).unwrap_err();
    /// assert_eq!(error.to_string(), "the agent has no tool `cancel` of its own; it has `cancel_order`, `refund`");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The tools of [providers](Agent::tool_providers), such as MCP servers, are known only later, so an agent that has providers takes
    /// every name. No party takes the name of an own tool of the agent. Any provider can supply a tool with another name, though, while the one
    /// that is meant does not: if one of several is an [untrusted party](tool_core::toolset::ToolProvider::has_untrusted_names), give the tools of each
    /// a prefix, and name them with it. A server also decides what its tool does.
    ///
    /// # Errors
    ///
    /// Returns an error if a name is not the one of an [own tool](Agent::tools) of the agent, and the agent has no providers.
    pub fn approvable_tools(
        mut self,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Self, UnknownToolError> {
        let names = self.known_tools(names)?;
        self.chats.executors.approvable.extend(names);
        Ok(Self::of(self.chats))
    }

    /// Returns the names, which are those of own tools of the agent, unless it has providers.
    fn known_tools(
        &self,
        names: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<Vec<String>, UnknownToolError> {
        let agent = self.chats.source.agent.as_ref().filter(|agent| !has_providers(agent));
        let known = |name: String| match agent.filter(|agent| agent.tools().get(&name).is_none()) {
            Some(agent) => Err(UnknownToolError::new(agent, name)),
            None => Ok(name),
        };
        names.into_iter().map(|name| known(name.into())).collect()
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

/// The error of a chat whose users are to approve calls, or whose browser is to execute calls, of a tool that its agent does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownToolError {
    name: String,
    agent: Option<String>,
    /// The agent's tools, as a list.
    known: Option<String>,
}

impl UnknownToolError {
    fn new(agent: &Agent, name: String) -> Self {
        let known = agent.tools().iter().map(|tool| tool.definition().name());
        Self { name, agent: agent.name().map(str::to_owned), known: list_names(known) }
    }
}

impl fmt::Display for UnknownToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the agent ")?;
        if let Some(agent) = &self.agent {
            write!(f, "`{}` ", printable(agent))?;
        }
        write!(f, "has no tool `{}` of its own; ", printable(&self.name))?;
        match &self.known {
            Some(known) => write!(f, "it has {}", printable(known)),
            None => f.write_str("add it with `AgentBuilder::tools`"),
        }
    }
}

impl std::error::Error for UnknownToolError {}

type Shared = State<Chats>;
type Sender = Extension<Principal>;
type Answer = Result<Response, HttpError>;

async fn send(State(chats): Shared, Extension(sender): Sender, request: Request) -> Answer {
    match chats.protocol {
        ProtocolName::UiStream => {
            let request: ui::Request = chats.guard.read_json(request).await?;
            let conversation = conversation(&sender, &request.id)?;
            let read = |waits: &[Wait]| Ok((request.asked(waits)?, FrontendTools::default()));
            let Taken { log, message, start } = chats.take(&sender, &conversation, read).await?;
            Ok(chats.ui_response(&sender, &log, start, Some(&message)))
        }
        ProtocolName::AgUi => {
            let request: ag_ui::Request = chats.guard.read_json(request).await?;
            let (thread, run) = (request.thread_id.clone(), request.run_id.clone());
            let conversation = conversation(&sender, &thread)?;
            let may_edit = sender.may(Right::Decide);
            let mut protocol = AgUi { thread, run, message: String::new(), may_edit };
            let started = protocol.start();
            let is_recorded = |wait: &WaitId| chats.hub.decisions.get(wait).is_some();
            let is_taken = |name: &str| chats.may_offer(name);
            let read = |waits: &[Wait]| request.asked(is_taken, waits, is_recorded);
            // Clients expect errors of the run in the stream.
            match chats.take(&sender, &conversation, read).await {
                Ok(Taken { log, message, start }) => {
                    protocol.message = message;
                    Ok(chats.response(&sender, &log, protocol, start, vec![started]))
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
    let conversation = conversation(&sender, &chat)?;
    let known = sse::last_event(&headers);
    let mut run = chats.hub.run_of(&chats.source, &conversation).await;
    if run.is_none() && known.is_some() {
        // It has ended while the client was away.
        run = chats.source.stored_run_of(&conversation, false).await;
    }
    let log = match &run {
        Some(run) => chats.hub.shown_log(run).await,
        None => None,
    };
    let log = log.filter(|log| known.is_some() || log.end().is_none());
    let Some(log) = log else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let loaded = chats.hub.load_begun(&log).await?;
    let (shown, question) = log.questions();
    let messages = match &loaded {
        Some(loaded) => loaded.messages().await,
        None => shown,
    };
    let known = known.filter(|known| Some(*known) <= log.last());
    let start = match known {
        Some(_) => Start { after: known, is_new_message: false },
        None => {
            // Without those before the last question, unless the run has still to take that.
            let after = if messages > shown { log.last() } else { question.and_then(|at| at.checked_sub(1)) };
            Start { after, is_new_message: messages > 1 }
        }
    };
    let message = message_id(&log.id, messages);
    Ok(match chats.protocol {
        ProtocolName::UiStream => {
            chats.ui_response(&sender, &log, start, Some(&*message).filter(|_| known.is_none()))
        }
        ProtocolName::AgUi => {
            let (run, may_edit) = (log.id.clone(), sender.may(Right::Decide));
            let protocol = AgUi { thread: chat, run, message, may_edit };
            let mut first = Vec::new();
            if known.is_none() {
                let executors = chats.executors(&sender, Some(&log));
                first.push(protocol.start());
                first.extend(match &loaded {
                    Some(loaded) => AgUi::snapshot(loaded.run.messages(), &executors),
                    None => AgUi::snapshot(&chats.remembered(&conversation).await?, &executors),
                });
            }
            chats.response(&sender, &log, protocol, start, first)
        }
    })
}

/// Returns the messages of a chat, for a browser that has been closed or is another one.
async fn messages(State(chats): Shared, Extension(sender): Sender, Path(chat): Path<String>) -> Answer {
    let (mut messages, run) = chats.history(&conversation(&sender, &chat)?).await?;
    let log = run.as_ref().map(|run| chats.hub.log_of(&chats.source, run.id().as_str()));
    let mut last = None;
    if let Some(run) = &run {
        // What was said while others decide is not among the messages of the run yet.
        let unread = run.engine_view().unread_messages().iter().cloned();
        let posted = chats.source.posted_messages(run.id().as_str()).await;
        last = Some(message_id(run.id().as_str(), run.engine_view().messages_taken() + posted.len()));
        messages.extend(unread.chain(posted).map(|message| Message::User(message.content)));
    }
    let executors = chats.executors(&sender, log.as_deref());
    let open = run.as_ref().map(|run| ui::Open { run, waits: chats.waits(&executors, run) });
    let messages = match chats.protocol {
        ProtocolName::UiStream => ui::messages(&messages, open.as_ref(), last, &executors),
        ProtocolName::AgUi => {
            let mut messages = AgUi::messages(&messages, &executors);
            let waits = open.as_ref().map(|open| &*open.waits).unwrap_or_default();
            AgUi::add_interrupts(&mut messages, waits, executors.decides);
            messages
        }
    };
    Ok(json_response(StatusCode::OK, Value::Array(messages)))
}

async fn stop(
    State(chats): Shared,
    Extension(sender): Sender,
    Path(chat): Path<String>,
) -> Result<StatusCode, HttpError> {
    let run = chats.hub.run_of(&chats.source, &conversation(&sender, &chat)?).await;
    let run = run.ok_or_else(HttpError::unknown_run)?;
    chats.hub.cancel(&run).await?;
    Ok(StatusCode::NO_CONTENT)
}

impl Chats {
    fn routes(self) -> Router {
        let streams = Router::new()
            .route("/", requires(Right::Chat, post(send)))
            .route("/{chat}/stream", requires(Right::Chat, get(resume)))
            .layer(from_fn_with_state(Arc::clone(&self.guard), admit_stream));
        Router::new()
            .route("/{chat}/messages", requires(Right::Chat, get(messages)))
            .route("/{chat}/stream", requires(Right::Chat, delete(stop)))
            .layer(from_fn_with_state(Arc::clone(&self.guard), admit))
            .merge(streams)
            .with_state(self)
    }

    /// Streams a run behind the first events.
    fn response(
        &self,
        sender: &Principal,
        log: &Arc<RunLog>,
        protocol: impl Protocol,
        start: Start,
        first: Vec<String>,
    ) -> Response {
        let encoder = Encoder::new(&log.id, self.executors(sender, Some(log)), protocol);
        let events = events(log, encoder, start);
        let opening = Some(first).filter(|first| !first.is_empty()).map(|first| sse::frames(&first, None));
        sse_response(streams::iter(opening).chain(events))
    }

    fn ui_response(
        &self,
        sender: &Principal,
        log: &Arc<RunLog>,
        start: Start,
        message: Option<&str>,
    ) -> Response {
        let first = message.map(ui::start).into_iter().collect();
        let mut response = self.response(sender, log, UiStream, start, first);
        response.headers_mut().insert("x-vercel-ai-ui-message-stream", HeaderValue::from_static("v1"));
        response
    }
}

#[cfg(test)]
mod tests;
