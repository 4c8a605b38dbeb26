//! The state of one call. Its transitions are in `call`.
//!
//! A call is in one `CallState`. A call that was started never awaits approval, so that state has no attempts. Whether an attempt may have
//! had its effect (`is_uncertain` of its history) is beside the state, because it outlives every change of it.
//!
//! A result of the caller is a state of its own, because an approval would be bound, denied and asked about.

use serde::{Deserialize, Serialize};

use crate::tool::ToolExecution;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallState {
    /// It can be executed now. Its attempts so far have failed.
    Ready {
        attempts: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved: Option<ApprovalScope>,
    },
    /// A person has to approve it. It was never started.
    AwaitingApproval(ApprovalScope),
    /// The caller executes it and records the result.
    AwaitingResult,
    /// The attempt was started and has no outcome yet.
    Running {
        attempt: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved: Option<ApprovalScope>,
    },
    /// The attempt was ended because it waits for what is in its notes. Once that is resolved, the attempt continues.
    Waiting {
        attempt: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved: Option<ApprovalScope>,
    },
    /// It has an outcome.
    Finished(Box<ToolExecution>),
}

/// The definition for which approval was asked. With another definition, it is asked again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ApprovalScope {
    /// No step has seen the definition since approval was required. Applies to any definition with the policy of the call.
    #[default]
    Unbound,
    /// No tool had the name of the call.
    NoTool,
    /// The definition with this hash.
    Definition(String),
}

impl Default for CallState {
    fn default() -> Self {
        Self::Ready { attempts: 0, approved: None }
    }
}
