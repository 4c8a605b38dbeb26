//! What the user decides: calls to be approved, and questions of tools.

use tokio::sync::{mpsc, oneshot};
use tool_core::agent::{Answerer, AnswererFuture, Approver, ApproverFuture};
use tool_core::run::Decision;
use tool_core::tool::Question;
use tool_core::{Approval, ToolCall};

/// Something that awaits the user's decision.
pub(crate) enum Pending {
    Call(ToolCall, oneshot::Sender<Approval>),
    Question(Question, oneshot::Sender<Decision>),
}

/// Passes calls and questions to the chat, which asks the user.
#[derive(Clone)]
pub(crate) struct AskUser(pub(crate) mpsc::Sender<Pending>);

impl Approver for AskUser {
    fn approve<'a>(&'a self, call: &'a ToolCall) -> ApproverFuture<'a> {
        Box::pin(async move {
            let (reply, decision) = oneshot::channel();
            // Without a decision the run ends, with nothing executed and nothing denied.
            let _ = self.0.send(Pending::Call(call.clone(), reply)).await;
            decision.await.unwrap_or(Approval::Defer)
        })
    }
}

impl Answerer for AskUser {
    fn answer<'a>(&'a self, question: &'a Question) -> AnswererFuture<'a> {
        Box::pin(async move {
            let (reply, decision) = oneshot::channel();
            let _ = self.0.send(Pending::Question(question.clone(), reply)).await;
            decision.await.unwrap_or_else(|_| Decision::defer())
        })
    }
}
