//! One request for a call, from the time that it is sent until the reply.
//!
//! Servers of older revisions ask the user while it is open. If the run of the call waits for the answer meanwhile, the request stays open in
//! this process, and the execution that has the answer goes on with it: it finds it by the call's key, because a run waits for its answers in
//! one way only.
//!
//! A question of an older server belongs to the only call in flight, because the protocol does not say to which. With two it is cancelled,
//! because it could reach the user of the other one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam, ClientRequest,
    CreateTaskResult, ElicitRequestParams, InputRequiredResult, RequestId, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, RoleClient, ServiceError};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tool_core::tool::Progress;
use tool_core::{CancellationToken, ToolContext};
use tool_http::client::Redactor;

use super::config::ServerConfig;
use super::connection::VerifiedConnection;
use super::error::{
    is_about_older_questions, is_interrupted, is_session_expired, is_state_expired, pages_to_open,
};
use super::input::Given;
use super::progress::{Answer, CallProgress, Question};
use super::text::truncate_name;
use super::{McpError, McpTool};

/// The longest duration of a call that keeps reporting progress, as a multiple of its timeout.
const MAX_TIMEOUTS: u32 = 20;

/// The number of calls that wait for answers at one server.
const MAX_HELD: usize = 1000;

/// The reason why a request for a call has no result.
pub(super) enum CallError {
    /// The server refused the request because it had ended the session.
    NotExecuted(McpError),
    OutcomeUnknown(McpError),
    /// The server rejected its own `requestState`, which may have expired.
    StateExpired(McpError),
    Failed(McpError),
}

impl From<CallError> for McpError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotExecuted(error)
            | CallError::OutcomeUnknown(error)
            | CallError::StateExpired(error)
            | CallError::Failed(error) => error,
        }
    }
}

/// What a server returns for a call.
pub(super) enum Reply {
    Result(CallToolResult),
    /// The request that the server asks after had neither answers nor a state if `is_first`.
    Input {
        required: InputRequiredResult,
        is_first: bool,
    },
    Task(CreateTaskResult),
    /// A server of an older revision needs pages to be opened first (`-32042`).
    Pages(Value),
    /// A server of an older revision asks the user, and the call waits for the answer.
    Question(Box<OpenCall>, ElicitRequestParams),
}

pub(super) async fn call_once(
    config: &ServerConfig,
    connection: &VerifiedConnection,
    tool: &McpTool,
    arguments: &Map<String, Value>,
    given: &Given,
    progress: &Progress,
) -> Result<Reply, CallError> {
    let (progress, questions) = CallProgress::new(progress);
    let redactor = given.redactor(config);
    let params =
        CallToolRequestParams::new(tool.original_name().to_owned()).with_arguments(arguments.clone());
    let mut request = CallToolRequest::new(given.add_to(params));
    request.extensions.insert(progress.clone());
    // A request that was not sent before the end of the call is not sent at all.
    let ended = CancellationToken::new();
    request.extensions.insert(ended.clone());
    let ended = ended.drop_guard();
    let sending = connection
        .peer()
        .send_cancellable_request(ClientRequest::CallToolRequest(request), PeerRequestOptions::no_options());
    let handle = tokio::select! {
        biased;
        handle = sending => handle.map_err(|error| CallError::Failed(service_error(config, tool, error, &redactor)))?,
        () = connection.monitor().closed() => return Err(lost_error(config, tool)),
        () = tokio::time::sleep(config.timeout) => return Err(timeout_error(config, tool)),
    };
    let ended = ended.disarm();
    let call = OpenCall {
        connection: connection.clone(),
        request: Some(handle.id.clone()),
        handle,
        progress,
        incoming: questions,
        answer: None,
        questions: 0,
        round: 0,
        has_state: given.has_state(),
        is_first: given.is_empty(),
        redactor,
        reason: "the caller no longer waits for the result",
        ended,
    };
    Box::new(call).reply(config, tool).await
}

fn request_name(tool: &McpTool) -> String {
    format!("the call of `{}`", truncate_name(tool.original_name()))
}

fn timeout_error(config: &ServerConfig, tool: &McpTool) -> CallError {
    CallError::Failed(McpError::timeout(&config.name, &request_name(tool), config.timeout))
}

fn lost_error(config: &ServerConfig, tool: &McpTool) -> CallError {
    CallError::OutcomeUnknown(McpError::connection_lost(&config.name, tool.original_name()))
}

fn service_error(
    config: &ServerConfig,
    tool: &McpTool,
    error: ServiceError,
    redactor: &Redactor,
) -> McpError {
    McpError::from_service_error(&config.name, &request_name(tool), error, redactor)
}

/// A request for a call that has no reply. It is cancelled at the server when it is dropped.
pub(super) struct OpenCall {
    connection: VerifiedConnection,
    handle: RequestHandle<RoleClient>,
    progress: CallProgress,
    incoming: mpsc::Receiver<Question>,
    /// Takes the answer to the question that the server waits for.
    answer: Option<oneshot::Sender<Answer>>,
    /// The number of questions until now.
    pub(super) questions: usize,
    /// The round of the call in which the question is recorded.
    pub(super) round: usize,
    has_state: bool,
    is_first: bool,
    redactor: Redactor,
    /// `None` once there is a reply.
    request: Option<RequestId>,
    reason: &'static str,
    /// Cancelled with the call.
    ended: CancellationToken,
}

impl OpenCall {
    /// Waits for the reply or the next question.
    pub(super) async fn reply(
        mut self: Box<Self>,
        config: &ServerConfig,
        tool: &McpTool,
    ) -> Result<Reply, CallError> {
        let limit = config.timeout;
        let mut idle = std::pin::pin!(tokio::time::sleep(limit));
        let deadline = Instant::now() + limit.saturating_mul(MAX_TIMEOUTS);
        let response = loop {
            tokio::select! {
                biased;
                response = &mut self.handle.rx => break response,
                () = self.connection.monitor().closed() => {
                    self.request = None;
                    return Err(lost_error(config, tool));
                }
                Some(question) = self.incoming.recv() => {
                    self.questions += 1;
                    self.answer = Some(question.answer);
                    return Ok(Reply::Question(self, question.asked));
                }
                () = &mut idle => {
                    self.reason = "the call timed out";
                    return Err(timeout_error(config, tool));
                }
                () = self.progress.reported() => idle.as_mut().reset((Instant::now() + limit).min(deadline)),
            }
        };
        self.request = None;
        match response {
            Ok(Ok(ServerResult::CallToolResult(result))) => match self.older_question(&result) {
                Some(text) => Err(self.asks_as_before(config, tool, text)),
                None => Ok(Reply::Result(result)),
            },
            // A result without content.
            Ok(Ok(ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_))) => {
                Ok(Reply::Result(CallToolResult::success(Vec::new())))
            }
            Ok(Ok(ServerResult::InputRequiredResult(required))) => {
                Ok(Reply::Input { required, is_first: self.is_first })
            }
            Ok(Ok(ServerResult::CreateTaskResult(created))) => Ok(Reply::Task(created)),
            Ok(Ok(_)) => {
                Err(CallError::Failed(McpError::unexpected_result(&config.name, &request_name(tool))))
            }
            Err(_) => Err(lost_error(config, tool)),
            Ok(Err(error)) if is_session_expired(&error) => {
                let problem = format!("ended the session and did not accept {}", request_name(tool));
                Err(CallError::NotExecuted(McpError::unreachable(&config.name, problem)))
            }
            Ok(Err(error)) if is_interrupted(&error) => Err(lost_error(config, tool)),
            Ok(Err(error)) if self.has_state && is_state_expired(&error) => {
                Err(CallError::StateExpired(service_error(config, tool, error, &self.redactor)))
            }
            Ok(Err(ServiceError::McpError(error)))
                if !self.connection.is_legacy() && is_about_older_questions(&error.message) =>
            {
                Err(self.asks_as_before(config, tool, &error.message))
            }
            Ok(Err(error)) => match pages_to_open(&error) {
                Some(pages) => Ok(Reply::Pages(pages)),
                None => Err(CallError::Failed(service_error(config, tool, error, &self.redactor))),
            },
        }
    }

    /// Returns the failure of a tool that could not ask the user, because the connection is not of an older revision.
    fn older_question<'r>(&self, result: &'r CallToolResult) -> Option<&'r str> {
        let is_failure = result.is_error == Some(true) && !self.connection.is_legacy();
        let text = &result.content.first().filter(|_| is_failure)?.as_text()?.text;
        is_about_older_questions(text).then_some(text)
    }

    fn asks_as_before(&self, config: &ServerConfig, tool: &McpTool, text: &str) -> CallError {
        let error = McpError::asks_as_before(&config.name, &request_name(tool), text, &self.redactor);
        CallError::Failed(error)
    }

    /// Answers the question that was recorded in a round. It may have waited too long for that.
    pub(super) fn answer(&mut self, round: usize, response: Answer) {
        if round == self.round
            && let Some(answer) = self.answer.take()
        {
            let _ = answer.send(response);
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.ended.cancel();
        let monitor = self.connection.monitor();
        // Before the call is removed: a question that arrives in between could pass for one of another call.
        if let Some(request) = &self.request {
            monitor.abandon_call(request.clone());
        }
        monitor.remove_progress(&self.handle.progress_token);
        let Some(request) = self.request.take() else { return };
        let (peer, reason) = (self.handle.peer.clone(), self.reason.to_owned());
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let params = CancelledNotificationParam::new(Some(request), Some(reason));
                let _ = peer.notify_cancelled(params).await;
            });
        }
    }
}

/// The open calls of waiting runs, by the keys of their calls.
#[derive(Default)]
pub(super) struct HeldCalls(Mutex<HashMap<String, Box<OpenCall>>>);

impl HeldCalls {
    fn calls(&self) -> MutexGuard<'_, HashMap<String, Box<OpenCall>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.calls().is_empty()
    }

    /// Holds a call until it goes on, or until nobody can answer any more.
    fn hold(self: &Arc<Self>, key: String, call: Box<OpenCall>, limit: Duration) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (held, request) = (Arc::downgrade(self), call.handle.id.clone());
        let mut calls = self.calls();
        if calls.len() >= MAX_HELD {
            return;
        }
        calls.insert(key.clone(), call);
        runtime.spawn(async move {
            tokio::time::sleep(limit).await;
            let held = held.upgrade();
            let expired = held.and_then(|held| {
                let mut calls = held.calls();
                calls.get(&key).is_some_and(|call| call.handle.id == request).then(|| calls.remove(&key))
            });
            drop(expired);
        });
    }
}

/// The open request of a call whose server waits for an answer, if there is one.
pub(super) struct WaitingCall<'c> {
    pub(super) call: Option<Box<OpenCall>>,
    held: &'c Arc<HeldCalls>,
    key: String,
    /// The longest time from a question to the reply that follows it.
    limit: Duration,
    cancellation: &'c CancellationToken,
    is_asking: bool,
}

impl<'c> WaitingCall<'c> {
    /// Takes the request that an earlier execution of the call has left open.
    pub(super) fn new(held: &'c Arc<HeldCalls>, config: &ServerConfig, context: &'c ToolContext) -> Self {
        let key = context.idempotency_key().map(ToString::to_string).unwrap_or_default();
        let limit = config.question_timeout.unwrap_or_default() + config.timeout;
        let call = held.calls().remove(&key);
        Self { call, held, key, limit, cancellation: context.cancellation(), is_asking: false }
    }

    /// Holds the request if the call is dropped while it asks the user, because its run waits.
    pub(super) async fn hold_while<T>(&mut self, asking: impl Future<Output = T>) -> T {
        self.is_asking = true;
        let answer = asking.await;
        self.is_asking = false;
        answer
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        if self.is_asking
            && !self.cancellation.is_cancelled()
            && let Some(call) = self.call.take()
        {
            self.held.hold(std::mem::take(&mut self.key), call, self.limit);
        }
    }
}
