//! Making one call, as the words of its tool say.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::RwLock;
use tool_core::{
    Approval, Approver, Attempt, CancellationToken, Progress, ToolCall, ToolContext, ToolError,
    ToolErrorKind, ToolOutput, ToolSet,
};

/// How long a call that failed waits for its second attempt; each further one waits twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// How long it waits at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What calls are made with.
pub(super) struct Caller<'a> {
    pub(super) tools: &'a ToolSet,
    pub(super) context: &'a ToolContext,
    pub(super) approver: Option<&'a Arc<dyn Approver>>,
    /// Held by every call, and by one of an exclusive tool alone.
    pub(super) side_by_side: &'a RwLock<()>,
}

impl Caller<'_> {
    /// Makes the call. Dropping the future cancels it.
    pub(super) async fn make(&self, mut call: ToolCall, progress: Progress) -> Result<ToolOutput, ToolError> {
        let policy = self.tools.get(&call.name).map(|tool| tool.definition().policy()).unwrap_or_default();
        if policy.needs_approval
            && let Some(approver) = self.approver
        {
            approve(&**approver, &mut call).await?;
        }
        let (_alone, _beside) = if policy.exclusive {
            (Some(self.side_by_side.write().await), None)
        } else {
            (None, Some(self.side_by_side.read().await))
        };
        let mut attempt = Attempt::standalone(&call.id);
        loop {
            let mut cancellation = CancelOnDrop(Some(CancellationToken::new()));
            let context =
                self.context.for_standalone_call(attempt.clone(), cancellation.get(), progress.clone());
            let outcome = self.tools.call(&call, &context).await;
            match &outcome {
                // Something of it may go on elsewhere.
                Err(error) if error.kind() == ToolErrorKind::TimedOut => drop(cancellation),
                _ => cancellation.0 = None,
            }
            let is_last = attempt.number >= policy.attempts.max(1);
            match outcome {
                Err(error) if !is_last && is_worth_another(&error, policy.at_most_once) => {}
                outcome => return outcome,
            }
            let doublings = attempt.number.saturating_sub(1).min(16);
            tokio::time::sleep(FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)).await;
            attempt.number += 1;
        }
    }
}

/// A failure after which the call is made again. Nobody knows the outcome of one that took too long.
fn is_worth_another(error: &ToolError, at_most_once: bool) -> bool {
    let may_succeed = match error.kind() {
        ToolErrorKind::Failed => true,
        ToolErrorKind::TimedOut => !at_most_once,
        _ => false,
    };
    may_succeed && !error.is_fatal()
}

async fn approve(approver: &dyn Approver, call: &mut ToolCall) -> Result<(), ToolError> {
    match approver.approve(call).await {
        Approval::Approve => Ok(()),
        Approval::ApproveWith(arguments) => {
            call.arguments = arguments;
            Ok(())
        }
        Approval::Deny(reason) => Err(ToolError::denied(reason.as_deref())),
        // The protocol has no word for a call that waits for a person.
        _ => Err(ToolError::denied(Some("nobody is there to approve it"))),
    }
}

/// Whatever ends the call before its tool does, the tool sees that nobody waits any more.
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
