//! One call of a tool, from the request to its answer, whatever becomes of the server.

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
use tool_core::{Progress, ToolContext, ToolError, ToolOutput};

use super::connection::Connection;
use super::error::is_interrupted;
use super::inbox::{CallProgress, Inbox};
use super::live::Live;
use super::output::outcome;
use super::{McpError, McpTool};

/// How many times its limit a call may take in all that tells of progress again and again.
const LONGEST: u32 = 20;

/// How long a call that may be made again waits for the server to be there again.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// Calls the tool.
///
/// # Errors
///
/// The tool fails, or the server is down, refuses the call, does not answer in time, or goes away. What changes nothing is
/// called once more if the server goes away and comes back.
pub(super) async fn call(
    live: Arc<Live>,
    tool: McpTool,
    arguments: Map<String, Value>,
    context: ToolContext,
) -> Result<ToolOutput, ToolError> {
    let settings = live.settings();
    if settings.pinned.is_some() {
        // The server may have said that its tools changed: nothing is called until they are found to be the pinned ones.
        live.listing().await.map_err(ToolError::failed)?;
    }
    let connection = live.connection().map_err(ToolError::failed)?;
    let first = call_once(&live, &connection, &tool, arguments.clone(), context.progress()).await;
    let result = match first {
        Err(error) if error.is_outcome_unknown() && tool.is_idempotent() => {
            let limit = settings.timeout.min(LONGEST_WAIT);
            match live.next_connection(connection.number, limit).await {
                Some(connection) => call_once(&live, &connection, &tool, arguments, context.progress()).await,
                None => Err(error),
            }
        }
        first => first,
    };
    outcome(result.map_err(ToolError::failed)?, settings.max_output_chars)
}

async fn call_once(
    live: &Live,
    connection: &Connection,
    tool: &McpTool,
    arguments: Map<String, Value>,
    progress: &Progress,
) -> Result<CallToolResult, McpError> {
    let settings = live.settings();
    let what = format!("the call of `{}`", super::names::cut(tool.name_at_server()));
    let progress = CallProgress::to(progress);
    let params = CallToolRequestParams::new(tool.name_at_server().to_owned()).with_arguments(arguments);
    let mut request = CallToolRequest::new(params);
    request.extensions.insert(progress.clone());
    let request = ClientRequest::CallToolRequest(request);

    let limit = settings.timeout;
    let timed_out = || McpError::timed_out(&settings.name, &what, limit);
    let lost = || McpError::lost(&settings.name, tool.name_at_server());
    let failed = |error| McpError::of_request(&settings.name, &what, error, &settings.secrets);

    let peer = connection.peer();
    let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options());
    let mut handle = tokio::select! {
        biased;
        handle = sent => handle.map_err(failed)?,
        () = connection.inbox.closed() => return Err(lost()),
        () = tokio::time::sleep(limit) => return Err(timed_out()),
    };
    let mut abandoned = TellOnDrop {
        peer: peer.clone(),
        inbox: &connection.inbox,
        token: handle.progress_token.clone(),
        request: Some(handle.id.clone()),
        reason: "nobody waits for the result any more",
    };
    let mut idle = std::pin::pin!(tokio::time::sleep(limit));
    let in_all = Instant::now() + limit.saturating_mul(LONGEST);
    let answer = loop {
        tokio::select! {
            biased;
            answer = &mut handle.rx => break answer,
            () = connection.inbox.closed() => {
                abandoned.request = None;
                return Err(lost());
            }
            () = &mut idle => {
                abandoned.reason = "it took too long";
                return Err(timed_out());
            }
            () = progress.heard() => idle.as_mut().reset((Instant::now() + limit).min(in_all)),
        }
    };
    abandoned.request = None;
    match answer {
        Ok(Ok(ServerResult::CallToolResult(result))) => Ok(result),
        Ok(Ok(ServerResult::EmptyResult(_))) => Ok(CallToolResult::success(Vec::new())),
        Ok(Ok(ServerResult::InputRequiredResult(_) | ServerResult::CreateTaskResult(_))) => {
            let what = format_args!(
                "answered {what} with a question or a task of its own, which this side never said that it can deal with"
            );
            Err(McpError::unreadable(&settings.name, what))
        }
        Ok(Ok(_)) => Err(McpError::unexpected(&settings.name, &what)),
        Err(_) => Err(lost()),
        Ok(Err(error)) if is_interrupted(&error) => Err(lost()),
        Ok(Err(error)) => Err(failed(error)),
    }
}

/// Tells the server that a call is given up, when nobody waits for it any more.
struct TellOnDrop<'i> {
    peer: Peer<RoleClient>,
    inbox: &'i Inbox,
    token: ProgressToken,
    /// Nothing once the call is over.
    request: Option<RequestId>,
    reason: &'static str,
}

impl Drop for TellOnDrop<'_> {
    fn drop(&mut self) {
        self.inbox.forget(&self.token);
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
