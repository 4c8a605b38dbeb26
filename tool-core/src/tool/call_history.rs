//! What has happened to a call.
//!
//! What the layers of a set made of a call returns with its outcome (`CallHistory`), because a run must undo what was executed, with the
//! arguments and the output that the tool had.
//!
//! What ran is distinguished from what was only reported (`OutcomeOrigin`), because a conversation that a caller sends proves nothing.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::arguments::Repair;
use crate::tool::timing::{micros, micros_since_epoch};
use crate::tool::{DecisionRecord, OriginalOutcome, VerdictRecord};

/// The origin of the outcome of a call. Only calls that the run executed prove anything: their outcomes are reused for repeated
/// ids and for equal calls of `pure` tools, and their effects are undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OutcomeOrigin {
    /// The call was executed.
    #[default]
    Executed,
    /// The call was not executed because the outcome of an equal call, executed earlier in the run, was reused.
    Recorded,
    /// The call was denied, or refused before it was executed.
    NotExecuted,
    /// The outcome was [supplied](crate::tool::ToolExecution::external) by another party, which the run does not trust.
    External,
}

impl OutcomeOrigin {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
    fn is_executed(&self) -> bool {
        *self == Self::Executed
    }
}

/// What has happened to a call besides its outcome. The record of the open call, what its tool returns, its execution, and the stored
/// form of that have one.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallHistory {
    #[serde(with = "micros_since_epoch", skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<SystemTime>,
    #[serde(with = "micros", skip_serializing_if = "Duration::is_zero")]
    pub(crate) duration: Duration,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) repairs: Vec<Repair>,
    /// The number of times that the call was started, if more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempts: Option<u32>,
    /// The model's arguments, if a layer or a person changed them.
    #[serde(rename = "asked", skip_serializing_if = "Option::is_none")]
    pub(crate) original_arguments: Option<String>,
    /// As recorded; [`ToolExecution::origin`] also considers the error.
    #[serde(skip_serializing_if = "OutcomeOrigin::is_executed")]
    pub(crate) origin: OutcomeOrigin,
    /// The call changed nothing: by its policy, the tool was [`pure`](crate::model::ToolPolicy::pure), or it handed the run off.
    #[serde(rename = "pure", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_pure: bool,
    /// The tool was [`at_most_once`](crate::model::ToolPolicy::at_most_once), by the policy of the call.
    #[serde(rename = "at_most_once", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_at_most_once: bool,
    /// The name of the tool that undoes the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) undo: Option<String>,
    /// An attempt or a replaced outcome leaves it unknown whether the call had its effect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_uncertain: bool,
    /// The decisions about the call while it waited.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) decisions: Vec<DecisionRecord>,
    /// What layers decided about the call and its outcome.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) verdicts: Vec<VerdictRecord>,
    /// The outcome of the call, if a layer replaced it.
    #[serde(rename = "was", skip_serializing_if = "Option::is_none")]
    pub(crate) original_outcome: Option<Box<OriginalOutcome>>,
    /// How far layers have judged the outcome, once they were asked.
    #[serde(flatten)]
    pub(crate) judgement: Option<Judgement>,
    /// The arguments that layers of a set wrote, until the execution has them.
    #[serde(skip)]
    pub(crate) rewritten_arguments: Option<String>,
}

/// How far layers have judged an outcome. Serializes as a flag with the name of the variant.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Judgement {
    /// A layer has still to judge the outcome, before the next step.
    #[serde(rename = "unseen", with = "flag")]
    Pending,
    /// All layers have judged the outcome.
    #[serde(rename = "seen", with = "flag")]
    Done,
}

mod flag {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(true)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
        bool::deserialize(deserializer).map(drop)
    }
}

/// Omits arguments, which can be secret.
impl fmt::Debug for CallHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallHistory")
            .field("started_at", &self.started_at)
            .field("duration", &self.duration)
            .field("repairs", &self.repairs)
            .field("attempts", &self.attempts)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl CallHistory {
    /// Puts what happened to the call before in front of this history.
    pub(crate) fn preceded_by(mut self, earlier: Self) -> Self {
        let Self { verdicts, decisions, original_arguments, undo, is_uncertain, .. } = earlier;
        (self.is_pure, self.is_at_most_once) = (earlier.is_pure, earlier.is_at_most_once);
        self.verdicts.splice(0..0, verdicts);
        self.decisions.splice(0..0, decisions);
        (self.original_arguments, self.undo) = (original_arguments, undo);
        self.is_uncertain |= is_uncertain;
        self
    }
}
