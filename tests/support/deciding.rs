//! Decisions about calls by their paths, as tests write them.

use std::vec::IntoIter;

use tool_core::ToolCall;
use tool_core::agent::RunDriver;
use tool_core::run::{Decision, Run, RunError, Wait, WaitReason};
use tool_core::signatures::ResolveError;
use tool_core::tool::WaitId;

/// What waits, as calls whose ids are their paths.
pub trait Waiting {
    /// Returns all waits.
    fn waiting(&self) -> Vec<Wait>;

    /// Returns the calls that await approval.
    fn approvals(&self) -> IntoIter<ToolCall> {
        let call = |wait: Wait| match wait.reason {
            WaitReason::Approval(call) => Some(with_id(call, wait.path)),
            _ => None,
        };
        self.waiting().into_iter().filter_map(call).collect::<Vec<_>>().into_iter()
    }

    /// Returns the calls that await results of the caller.
    fn results(&self) -> IntoIter<ToolCall> {
        let call = |wait: Wait| match wait.reason {
            WaitReason::CallerResult(call) => Some(with_id(call, wait.path)),
            _ => None,
        };
        self.waiting().into_iter().filter_map(call).collect::<Vec<_>>().into_iter()
    }
}

fn with_id(mut call: ToolCall, id: String) -> ToolCall {
    call.id = id;
    call
}

impl Waiting for Run {
    fn waiting(&self) -> Vec<Wait> {
        self.waits()
    }
}

impl Waiting for RunError {
    fn waiting(&self) -> Vec<Wait> {
        self.run().waits()
    }
}

/// A run that waits, or its driver.
pub trait Decide {
    /// Returns all waits.
    fn waits_of(&self) -> Vec<Wait>;

    /// Decides about one.
    fn resolve_wait(&mut self, wait: &WaitId, decision: Decision) -> Result<(), ResolveError>;

    /// Decides about the approval of the call with this path.
    fn decide_call(&mut self, path: &str, decision: Decision) -> Result<(), ResolveError> {
        let is_its = |wait: &Wait| wait.path == path && matches!(wait.reason, WaitReason::Approval(_));
        let wait = self.waits_of().into_iter().find(is_its);
        self.resolve_wait(&wait.map_or_else(|| WaitId::from("none"), |wait| wait.id), decision)
    }

    /// Decides the same about all calls that await approval.
    fn decide_calls(&mut self, decision: &Decision) {
        for wait in self.waits_of() {
            if let WaitReason::Approval(_) = wait.reason {
                // Fails if an earlier decision has ended the run.
                let _ = self.resolve_wait(&wait.id, decision.clone());
            }
        }
    }
}

impl Decide for Run {
    fn waits_of(&self) -> Vec<Wait> {
        self.waits()
    }

    fn resolve_wait(&mut self, wait: &WaitId, decision: Decision) -> Result<(), ResolveError> {
        self.resolve(wait, decision)
    }
}

impl Decide for RunDriver {
    fn waits_of(&self) -> Vec<Wait> {
        self.run().waits()
    }

    fn resolve_wait(&mut self, wait: &WaitId, decision: Decision) -> Result<(), ResolveError> {
        self.resolve(wait, decision)
    }
}
