//! The record of a decision about a call that waited.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::impl_id;
use crate::tool::Timestamp;

/// The id of one [wait](crate::run::Wait) of a call: a digest of the run, the call and what was shown. A call that waits again has
/// another id, so that a decision about what was shown before is refused.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct WaitId(Arc<str>);

impl_id!(WaitId);

impl From<&Self> for WaitId {
    fn from(id: &Self) -> Self {
        id.clone()
    }
}

impl From<&str> for WaitId {
    fn from(id: &str) -> Self {
        Self(id.into())
    }
}

/// A decision that was made about a call. See [`ToolExecution::decisions`](crate::tool::ToolExecution::decisions).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DecisionRecord {
    /// The wait that it ended.
    pub wait: WaitId,
    /// What was decided. Answers are not part of the record.
    pub kind: DecisionKind,
    /// The person or the system that decided, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The time of the decision, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The reason, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl DecisionRecord {
    /// Creates the record of a wait that has expired.
    pub(crate) fn expired(wait: WaitId, at: Timestamp) -> Self {
        Self { wait, kind: DecisionKind::Expired, by: None, at: Some(at), why: None }
    }
}

/// A decision about a call, as the listeners of a run receive it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallDecision {
    /// The id of the call.
    pub call_id: String,
    /// The name of its tool.
    pub tool: String,
    /// What was decided, by whom and why.
    #[serde(flatten)]
    pub record: DecisionRecord,
}

/// Omits the reason.
impl fmt::Debug for DecisionRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecisionRecord")
            .field("wait", &self.wait)
            .field("kind", &self.kind)
            .field("by", &self.by)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// What a decision about a call was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DecisionKind {
    /// The call was approved.
    Approved,
    /// The call was approved with other arguments.
    ApprovedWithChanges,
    /// The call was denied.
    Denied,
    /// The question was answered.
    Answered,
    /// The question was declined.
    Declined,
    /// The question expired.
    Expired,
    /// There was nobody to be asked.
    Unavailable,
    /// The caller supplied the result.
    Supplied,
}
