//! One call of a tool: sends the request, waits for the response, and retries if the connection is lost.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam, ClientRequest,
    CreateTaskResult, InputRequiredResult, ProgressToken, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tool_core::tool::{AskError, Progress};
use tool_core::{CancellationToken, ToolContext, ToolError, ToolOutput};

use super::connection::VerifiedConnection;
use super::connection_manager::ConnectionManager;
use super::error::{is_interrupted, is_session_expired, is_state_expired};
use super::input::{Given, MAX_ROUNDS, Round};
use super::monitor::Monitor;
use super::output::into_output;
use super::progress::CallProgress;
use super::task::Task;
use super::text::truncate_name;
use super::{McpError, McpErrorKind, McpTool};

/// The longest duration of a call that keeps reporting progress, as a multiple of its timeout.
const MAX_TIMEOUTS: u32 = 20;

/// The longest wait for a new connection before a call that can be repeated fails.
const MAX_RECONNECT_WAIT: Duration = Duration::from_secs(10);

/// The reason why a request for a call has no result.
enum CallError {
    /// The server refused the request because it had ended the session.
    NotExecuted(McpError),
    /// The server refused the request because the user has to log in.
    LoginRequired(McpError),
    OutcomeUnknown(McpError),
    /// The server rejected its own `requestState`, which may have expired.
    StateExpired(McpError),
    Failed(McpError),
}

impl From<CallError> for McpError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NotExecuted(error)
            | CallError::LoginRequired(error)
            | CallError::OutcomeUnknown(error)
            | CallError::StateExpired(error)
            | CallError::Failed(error) => error,
        }
    }
}

/// Calls the tool.
///
/// A call whose server asks for input waits for the answers of the user, and is then sent again with them.
///
/// A call that requires a login is sent again after the login. A call that was not executed is sent again once on a new connection, and so is a
/// call whose outcome is unknown unless its tool is `at_most_once`.
///
/// # Errors
///
/// Returns an error if the tool fails, or if the server is unavailable, rejects the call, does not respond in time, or
/// disconnects.
pub(super) async fn call(
    manager: Arc<ConnectionManager>,
    tool: McpTool,
    arguments: Map<String, Value>,
    context: ToolContext,
) -> Result<ToolOutput, ToolError> {
    let config = manager.config();
    let asker = context.asker();
    let mut given = Given::default();
    for number in 1..=MAX_ROUNDS {
        // Recorded, so that the server is not asked again when the call goes on with the answers.
        let sent = async {
            match send(&manager, &tool, &arguments, &given, context.progress()).await? {
                Reply::Result(result) => return Err(End::Result(result)),
                Reply::Input(required) => Round::new(&config.name, required).map(Sent::Input),
                Reply::Task(created) => Task::new(&config.name, created).map(Sent::Task),
            }
            .map(|sent| Recorded { server: config.identity(), sent })
            .map_err(|error| End::Failed(ToolError::failed(error)))
        };
        match asker.once(&format!("round {number}"), sent).await {
            Ok(recorded) if recorded.server != config.identity() => {
                return Err(ToolError::failed(McpError::other_server(&config.name)));
            }
            Ok(Recorded { sent: Sent::Input(round), .. }) => given.answer(round, &tool, asker).await?,
            Ok(Recorded { sent: Sent::Task(task), .. }) => {
                let result = task.result(&manager, &tool, &context).await?;
                return into_output(result, config.max_output_chars, &config.redactor);
            }
            Err(End::Result(result)) => {
                return into_output(result, config.max_output_chars, &config.redactor);
            }
            Err(End::Failed(error)) => return Err(error),
        }
    }
    let problem = format!("asked for input more than {MAX_ROUNDS} times during one call");
    Err(ToolError::failed(McpError::invalid_response(&config.name, problem)))
}

/// What a server has returned that is no result. It is sent to no other server, whose name can be the same in another process.
#[derive(Serialize, Deserialize)]
struct Recorded {
    server: String,
    sent: Sent,
}

#[derive(Serialize, Deserialize)]
enum Sent {
    Input(Round),
    Task(Task),
}

/// The end of a call that asks for nothing more.
enum End {
    Result(CallToolResult),
    Failed(ToolError),
}

impl From<AskError> for End {
    fn from(error: AskError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<CallError> for End {
    fn from(error: CallError) -> Self {
        Self::Failed(ToolError::failed(McpError::from(error)))
    }
}

/// Sends a request until it has a reply. A call whose state the server no longer accepts is sent again without it.
async fn send(
    manager: &ConnectionManager,
    tool: &McpTool,
    arguments: &Map<String, Value>,
    given: &Given,
    progress: &Progress,
) -> Result<Reply, CallError> {
    let config = manager.config();
    let mut connection = manager.verified().await.map_err(CallError::Failed)?;
    let mut logins = 0;
    let first = loop {
        match call_once(manager, &connection, tool, arguments, given, progress).await {
            Err(CallError::LoginRequired(error)) => {
                config.log_in(error, &mut logins).await.map_err(CallError::Failed)?;
                // The server can have changed its tools meanwhile.
                connection = manager.verified().await.map_err(CallError::Failed)?;
            }
            Err(CallError::StateExpired(_)) if !tool.offered().policy().at_most_once => {
                break call_once(manager, &connection, tool, arguments, &Given::default(), progress).await;
            }
            called => break called,
        }
    };
    let is_repeatable = match &first {
        Err(CallError::NotExecuted(_)) => true,
        Err(CallError::OutcomeUnknown(_)) => !tool.offered().policy().at_most_once,
        _ => false,
    };
    let limit = config.timeout.min(MAX_RECONNECT_WAIT);
    if is_repeatable && manager.is_reconnected(connection.number(), limit).await {
        let connection = manager.verified().await.map_err(CallError::Failed)?;
        return call_once(manager, &connection, tool, arguments, given, progress).await;
    }
    first
}

/// What a server returns for a call.
enum Reply {
    Result(CallToolResult),
    Input(InputRequiredResult),
    Task(CreateTaskResult),
}

async fn call_once(
    manager: &ConnectionManager,
    connection: &VerifiedConnection,
    tool: &McpTool,
    arguments: &Map<String, Value>,
    given: &Given,
    progress: &Progress,
) -> Result<Reply, CallError> {
    let config = manager.config();
    let request_name = format!("the call of `{}`", truncate_name(tool.original_name()));
    let progress = CallProgress::new(progress);
    let params =
        CallToolRequestParams::new(tool.original_name().to_owned()).with_arguments(arguments.clone());
    let params = given.add_to(params);
    let mut request = CallToolRequest::new(params);
    request.extensions.insert(progress.clone());
    // A request that was not sent before the end of the call is not sent at all.
    let ended = CancellationToken::new();
    request.extensions.insert(ended.clone());
    let _ended = ended.drop_guard();
    let request = ClientRequest::CallToolRequest(request);

    let limit = config.timeout;
    let timeout_error = || CallError::Failed(McpError::timeout(&config.name, &request_name, limit));
    let lost_error =
        || CallError::OutcomeUnknown(McpError::connection_lost(&config.name, tool.original_name()));
    let service_error = |error| {
        let error = McpError::from_service_error(&config.name, &request_name, error, &config.redactor);
        match error.kind() {
            McpErrorKind::LoginRequired => CallError::LoginRequired(error),
            _ => CallError::Failed(error),
        }
    };

    let (peer, monitor) = (connection.peer(), connection.monitor());
    let sending = peer.send_cancellable_request(request, PeerRequestOptions::no_options());
    let mut handle = tokio::select! {
        biased;
        handle = sending => handle.map_err(service_error)?,
        () = monitor.closed() => return Err(lost_error()),
        () = tokio::time::sleep(limit) => return Err(timeout_error()),
    };
    let mut cancel_on_drop = CancelOnDrop {
        peer: peer.clone(),
        monitor,
        token: handle.progress_token.clone(),
        request: Some(handle.id.clone()),
        reason: "the caller no longer waits for the result",
    };
    let mut idle = std::pin::pin!(tokio::time::sleep(limit));
    let deadline = Instant::now() + limit.saturating_mul(MAX_TIMEOUTS);
    let response = loop {
        tokio::select! {
            biased;
            response = &mut handle.rx => break response,
            () = monitor.closed() => {
                cancel_on_drop.request = None;
                return Err(lost_error());
            }
            () = &mut idle => {
                cancel_on_drop.reason = "the call timed out";
                return Err(timeout_error());
            }
            () = progress.reported() => idle.as_mut().reset((Instant::now() + limit).min(deadline)),
        }
    };
    cancel_on_drop.request = None;
    match response {
        Ok(Ok(ServerResult::CallToolResult(result))) => Ok(Reply::Result(result)),
        // A result without content.
        Ok(Ok(ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_))) => {
            Ok(Reply::Result(CallToolResult::success(Vec::new())))
        }
        Ok(Ok(ServerResult::InputRequiredResult(required))) => Ok(Reply::Input(required)),
        Ok(Ok(ServerResult::CreateTaskResult(created))) => Ok(Reply::Task(created)),
        Ok(Ok(_)) => Err(CallError::Failed(McpError::unexpected_result(&config.name, &request_name))),
        Err(_) => Err(lost_error()),
        Ok(Err(error)) if is_session_expired(&error) => {
            Err(CallError::NotExecuted(McpError::session_expired(&config.name, &request_name)))
        }
        Ok(Err(error)) if is_interrupted(&error) => Err(lost_error()),
        Ok(Err(error)) if given.has_state() && is_state_expired(&error) => {
            let error = McpError::from_service_error(&config.name, &request_name, error, &config.redactor);
            Err(CallError::StateExpired(error))
        }
        Ok(Err(error)) => Err(service_error(error)),
    }
}

/// Cancels a call at the server when it is dropped before the call has finished.
struct CancelOnDrop<'m> {
    peer: Peer<RoleClient>,
    monitor: &'m Monitor,
    token: ProgressToken,
    /// `None` once the call has finished.
    request: Option<RequestId>,
    reason: &'static str,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.monitor.remove_progress(&self.token);
        let Some(request) = self.request.take() else { return };
        let (peer, reason) = (self.peer.clone(), self.reason.to_owned());
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let params = CancelledNotificationParam::new(Some(request), Some(reason));
                let _ = peer.notify_cancelled(params).await;
            });
        }
    }
}
