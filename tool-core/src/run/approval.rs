//! The decision about a call that a person has to approve.

use serde::{Deserialize, Serialize};

/// The decision about a call that awaits approval.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub(crate) enum Approval {
    /// Executes the call.
    Approve,
    /// Executes the call with these arguments, a JSON object, instead of the model's.
    ApproveWith(String),
    /// Does not execute the call. The model reads the reason, if there is one.
    Deny(Option<String>),
    /// Postpones the decision: the call continues to await approval.
    Defer,
}

impl Approval {
    /// Denies the call with a reason that the model reads.
    #[must_use]
    pub(super) fn deny(reason: impl Into<String>) -> Self {
        Self::Deny(Some(reason.into()))
    }
}

/// Omits arguments and reasons.
impl std::fmt::Debug for Approval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Approve => "Approve",
            Self::ApproveWith(_) => "ApproveWith(…)",
            Self::Deny(_) => "Deny(…)",
            Self::Defer => "Defer",
        })
    }
}
