//! Execution of a call under the options of its tool.

use tokio::sync::RwLock;
use tool_core::agent::Approver;
use tool_core::tool::{Attempt, Progress, ToolErrorKind};
use tool_core::{Approval, CancellationToken, ToolCall, ToolError, ToolOutput, ToolSet};

use super::config::Config;

/// Executes a call. Dropping the future cancels it. `exclusivity` is locked exclusively by calls of exclusive tools, and shared by all
/// others.
pub(super) async fn execute(
    tools: &ToolSet,
    config: &Config,
    exclusivity: &RwLock<()>,
    mut call: ToolCall,
    progress: Progress,
) -> Result<ToolOutput, ToolError> {
    let policy = tools.get(&call.name).map(|tool| tool.definition().policy().clone()).unwrap_or_default();
    if policy.needs_approval
        && let Some(approver) = &config.approver
    {
        approve(&**approver, &mut call).await?;
    }
    let (_exclusive, _shared) = if policy.exclusive {
        (Some(exclusivity.write().await), None)
    } else {
        (None, Some(exclusivity.read().await))
    };
    let mut attempt = Attempt::standalone(&call.id);
    loop {
        let cancellation = CancellationToken::new();
        let context = config.context.for_standalone_call(attempt.clone(), &cancellation, progress.clone());
        // Cancels the token if the call ends before its tool does.
        let guard = cancellation.drop_guard();
        let outcome = tools.call(&call, &context).await;
        match &outcome {
            // The tool may still run in a task that it spawned.
            Err(error) if error.kind() == ToolErrorKind::TimedOut => drop(guard),
            _ => drop(guard.disarm()),
        }
        let next = outcome.as_ref().err().and_then(|error| policy.next_attempt(&attempt, error));
        let Some(next) = next else { return outcome };
        attempt = next;
        tokio::time::sleep(attempt.delay()).await;
    }
}

async fn approve(approver: &dyn Approver, call: &mut ToolCall) -> Result<(), ToolError> {
    match approver.approve(call).await {
        Approval::Approve => Ok(()),
        Approval::ApproveWith(arguments) => {
            call.arguments = arguments;
            Ok(())
        }
        Approval::Deny(reason) => Err(ToolError::denied(reason.as_deref())),
        // The protocol cannot express a call that awaits approval.
        _ => Err(ToolError::denied(Some("no one is available to approve it"))),
    }
}
