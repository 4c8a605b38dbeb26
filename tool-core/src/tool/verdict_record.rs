//! The record of what a layer decided.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::tool::{ToolError, ToolOutput, write_outcome};

/// The record of what a [layer](crate::layer::Layer) decided about a question, a call, its outcome, or an answer.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct VerdictRecord {
    /// The name of the layer.
    pub layer: String,
    /// How many levels of agents further out the layer is. 0 for one of the run's own agent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub level: usize,
    /// What was decided.
    pub kind: VerdictKind,
    /// The reason, if the layer gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
fn is_zero(level: &usize) -> bool {
    *level == 0
}

impl VerdictRecord {
    pub(crate) fn new(layer: &str, level: usize, kind: VerdictKind) -> Self {
        Self { layer: layer.to_owned(), level, kind, why: None }
    }

    pub(crate) fn because(self, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..self }
    }
}

/// Omits the reason, which can quote what was judged.
impl fmt::Debug for VerdictRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, level, kind, why: _ } = self;
        f.debug_struct("VerdictRecord")
            .field("layer", layer)
            .field("level", level)
            .field("kind", kind)
            .finish_non_exhaustive()
    }
}

/// What a layer decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum VerdictKind {
    /// The question may be asked.
    Passed,
    /// The layer answered in place of the model.
    Answered,
    /// The question, or the arguments of the call, were rewritten.
    Rewritten,
    /// The call was denied.
    Denied,
    /// The call needs approval.
    NeedsApproval,
    /// The caller executes the call.
    LeftToCaller,
    /// The outcome or the text was replaced.
    Replaced,
    /// The answer was sent back.
    Retried,
    /// The run was ended.
    Ended,
}

/// An outcome that was replaced.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct OriginalOutcome(
    #[serde(serialize_with = "write_outcome")] pub(crate) Result<ToolOutput, ToolError>,
);

/// Compares outputs, and the kinds of errors.
impl PartialEq for OriginalOutcome {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Ok(one), Ok(other)) => one == other,
            (Err(one), Err(other)) => one.kind() == other.kind() && one.to_string() == other.to_string(),
            _ => false,
        }
    }
}
