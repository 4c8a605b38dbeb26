//! The decider of a server, for calls and for tasks.

use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tool_core::agent::{Decider, DeciderFuture};
use tool_core::run::{Decision, Wait, WaitReason};

/// Asks a decider about approvals alone. A decision that it cannot give denies the call, because a task would wait for it in vain.
#[derive(Clone)]
pub(super) struct ServerDecider(Arc<dyn Decider>);

impl ServerDecider {
    pub(super) fn new(decider: impl Decider + 'static) -> Self {
        Self(Arc::new(decider))
    }
}

impl Decider for ServerDecider {
    fn decide<'a>(&'a self, wait: &'a Wait) -> DeciderFuture<'a> {
        let WaitReason::Approval(_) = &wait.reason else { return Box::pin(ready(Decision::defer())) };
        Box::pin(async move {
            let deciding = async { self.0.decide(wait).await };
            let Ok(decision) = AssertUnwindSafe(deciding).catch_unwind().await else {
                return Decision::deny("the decision about it has failed");
            };
            match wait.check(&decision) {
                Ok(()) => decision,
                Err(error) => Decision::deny(format!("the decision about it is invalid: {error}")),
            }
        })
    }
}
