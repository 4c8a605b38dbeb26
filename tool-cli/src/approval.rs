//! Calls that the user approves.

use tokio::sync::{mpsc, oneshot};
use tool_core::agent::{Approver, ApproverFuture};
use tool_core::{Approval, ToolCall};

/// A call that awaits the user's decision.
pub(crate) type Pending = (ToolCall, oneshot::Sender<Approval>);

/// Passes calls to the chat, which asks the user.
pub(crate) struct AskUser(pub(crate) mpsc::Sender<Pending>);

impl Approver for AskUser {
    fn approve<'a>(&'a self, call: &'a ToolCall) -> ApproverFuture<'a> {
        Box::pin(async move {
            let (reply, decision) = oneshot::channel();
            // Without a decision the run ends, with nothing executed and nothing denied.
            let _ = self.0.send((call.clone(), reply)).await;
            decision.await.unwrap_or(Approval::Defer)
        })
    }
}
