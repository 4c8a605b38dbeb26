//! The outcome of a call.

use serde::{Serialize, Serializer};

use super::tool_output::{OutputState, ToolOutput};
use crate::tool::ToolError;

/// The outcome of a call.
pub(crate) type Outcome = Result<ToolOutput, ToolError>;

/// Serializes the outcome of a call.
pub(crate) fn write_outcome<S: Serializer>(outcome: &Outcome, serializer: S) -> Result<S::Ok, S::Error> {
    outcome.as_ref().map(OutputState::of).serialize(serializer)
}

/// Truncates the text of an outcome to a tool's own limit of characters. An output that is [stored whole](crate::store::OutputStore) has only
/// a note of the limit.
pub(crate) fn limit_outcome(outcome: Outcome, limit: usize, is_stored: bool) -> Outcome {
    match outcome {
        Ok(output) if is_stored => Ok(output.limited(limit)),
        outcome => truncate_outcome(outcome, limit),
    }
}

/// Truncates the text of an outcome to `limit` characters.
pub(crate) fn truncate_outcome(outcome: Outcome, limit: usize) -> Outcome {
    match outcome {
        Ok(output) => Ok(output.truncated(limit)),
        Err(error) => Err(error.truncated(limit)),
    }
}
