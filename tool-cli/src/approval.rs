//! What the user decides: calls to be approved, and questions of tools.

use tokio::sync::{mpsc, oneshot};
use tool_core::agent::{Decider, DeciderFuture};
use tool_core::run::{Decision, Wait};

/// Something that awaits the user's decision.
pub(crate) type Pending = (Wait, oneshot::Sender<Decision>);

/// Passes calls and questions to the chat, which asks the user.
#[derive(Clone)]
pub(crate) struct AskUser(pub(crate) mpsc::Sender<Pending>);

impl Decider for AskUser {
    fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a> {
        Box::pin(async move {
            let (reply, decision) = oneshot::channel();
            // Without a decision the run ends, with nothing executed and nothing denied.
            let _ = self.0.send((wait.clone(), reply)).await;
            decision.await.unwrap_or_else(|_| Decision::defer())
        })
    }
}
