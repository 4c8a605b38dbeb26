//! Execution of a call under the options of its tool.

use std::sync::Arc;

use tokio::sync::RwLock;
use tool_core::agent::Approver;
use tool_core::tool::{Attempt, Progress, ToolErrorKind};
use tool_core::{Approval, CancellationToken, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet};

/// Executes calls of a tool set.
pub(super) struct CallExecutor<'a> {
    pub(super) tools: &'a ToolSet,
    pub(super) context: &'a ToolContext,
    pub(super) approver: Option<&'a Arc<dyn Approver>>,
    /// Locked exclusively by calls of exclusive tools, and shared by all others.
    pub(super) exclusivity: &'a RwLock<()>,
}

impl CallExecutor<'_> {
    /// Executes a call. Dropping the future cancels it.
    pub(super) async fn execute(
        &self,
        mut call: ToolCall,
        progress: Progress,
    ) -> Result<ToolOutput, ToolError> {
        let policy = self.tools.get(&call.name).map(|tool| tool.definition().policy()).unwrap_or_default();
        if policy.needs_approval
            && let Some(approver) = self.approver
        {
            approve(&**approver, &mut call).await?;
        }
        let (_exclusive, _shared) = if policy.exclusive {
            (Some(self.exclusivity.write().await), None)
        } else {
            (None, Some(self.exclusivity.read().await))
        };
        let mut attempt = Attempt::standalone(&call.id);
        loop {
            let mut cancellation = CancelOnDrop(Some(CancellationToken::new()));
            let context =
                self.context.for_standalone_call(attempt.clone(), cancellation.get(), progress.clone());
            let outcome = self.tools.call(&call, &context).await;
            match &outcome {
                // The tool may still run in a task that it spawned.
                Err(error) if error.kind() == ToolErrorKind::TimedOut => drop(cancellation),
                _ => cancellation.0 = None,
            }
            let next = outcome.as_ref().err().and_then(|error| policy.next_attempt(&attempt, error));
            let Some(next) = next else { return outcome };
            attempt = next;
            tokio::time::sleep(attempt.delay()).await;
        }
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

/// Cancels the token if the call ends before its tool does.
struct CancelOnDrop(Option<CancellationToken>);

impl CancelOnDrop {
    fn get(&mut self) -> &CancellationToken {
        self.0.get_or_insert_default()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(cancellation) = &self.0 {
            cancellation.cancel();
        }
    }
}
