//! One call of a tool: sends the request, waits for the response, and retries if the connection is lost.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotificationParam, ClientRequest,
    ProgressToken, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RoleClient};
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tool_core::tool::Progress;
use tool_core::{ToolContext, ToolError, ToolOutput};

use super::connection::Connection;
use super::connection_manager::ConnectionManager;
use super::error::is_interrupted;
use super::monitor::Monitor;
use super::output::into_output;
use super::progress::CallProgress;
use super::text::truncate_name;
use super::{McpError, McpTool};

/// The longest duration of a call that keeps reporting progress, as a multiple of its timeout.
const MAX_TIMEOUTS: u32 = 20;

/// How long an idempotent call waits for a new connection before it fails.
const MAX_RECONNECT_WAIT: Duration = Duration::from_secs(10);

/// Calls the tool.
///
/// A read-only or idempotent call is repeated once if the connection is lost and restored.
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
    if config.pinned.is_some() {
        // The tools may have changed since they were listed: compare them with the fingerprint before calling one.
        manager.listing().await.map_err(ToolError::failed)?;
    }
    let connection = manager.connection().map_err(ToolError::failed)?;
    let first = call_once(&manager, &connection, &tool, arguments.clone(), context.progress()).await;
    let result = match first {
        Err(error) if error.is_outcome_unknown() && tool.is_idempotent() => {
            let limit = config.timeout.min(MAX_RECONNECT_WAIT);
            match manager.next_connection(connection.number, limit).await {
                Some(connection) => {
                    call_once(&manager, &connection, &tool, arguments, context.progress()).await
                }
                None => Err(error),
            }
        }
        first => first,
    };
    into_output(result.map_err(ToolError::failed)?, config.max_output_chars)
}

async fn call_once(
    manager: &ConnectionManager,
    connection: &Connection,
    tool: &McpTool,
    arguments: Map<String, Value>,
    progress: &Progress,
) -> Result<CallToolResult, McpError> {
    let config = manager.config();
    let request_name = format!("the call of `{}`", truncate_name(tool.original_name()));
    let progress = CallProgress::new(progress);
    let params = CallToolRequestParams::new(tool.original_name().to_owned()).with_arguments(arguments);
    let mut request = CallToolRequest::new(params);
    request.extensions.insert(progress.clone());
    let request = ClientRequest::CallToolRequest(request);

    let limit = config.timeout;
    let timeout_error = || McpError::timeout(&config.name, &request_name, limit);
    let lost_error = || McpError::connection_lost(&config.name, tool.original_name());
    let service_error =
        |error| McpError::from_service_error(&config.name, &request_name, error, &config.redactor);

    let peer = connection.peer();
    let sending = peer.send_cancellable_request(request, PeerRequestOptions::no_options());
    let mut handle = tokio::select! {
        biased;
        handle = sending => handle.map_err(service_error)?,
        () = connection.monitor.closed() => return Err(lost_error()),
        () = tokio::time::sleep(limit) => return Err(timeout_error()),
    };
    let mut cancel_on_drop = CancelOnDrop {
        peer: peer.clone(),
        monitor: &connection.monitor,
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
            () = connection.monitor.closed() => {
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
        Ok(Ok(ServerResult::CallToolResult(result))) => Ok(result),
        Ok(Ok(ServerResult::EmptyResult(_))) => Ok(CallToolResult::success(Vec::new())),
        Ok(Ok(ServerResult::InputRequiredResult(_) | ServerResult::CreateTaskResult(_))) => {
            let problem = format_args!(
                "answered {request_name} with a request for input or a task, which the client does not support"
            );
            Err(McpError::invalid_response(&config.name, problem))
        }
        Ok(Ok(_)) => Err(McpError::unexpected_result(&config.name, &request_name)),
        Err(_) => Err(lost_error()),
        Ok(Err(error)) if is_interrupted(&error) => Err(lost_error()),
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
