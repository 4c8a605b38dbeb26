//! What a run does about calls that fail.

use serde::{Deserialize, Serialize};

use super::ending::Ending;
use crate::tool::{ToolError, ToolErrorKind, ToolExecution};

/// What a run does about a call that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorPolicy {
    /// The model reads the error, and goes on.
    #[default]
    Tell,
    /// The model reads that the tool failed, and nothing more: what the error says stays with the application.
    Hide,
    /// The run ends with the error.
    EndRun,
}

/// What is done about each kind of error; about a kind that is not listed, the model is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ErrorPolicies(Vec<(ToolErrorKind, ErrorPolicy)>);

impl ErrorPolicies {
    pub(crate) fn set(&mut self, kind: ToolErrorKind, on_error: ErrorPolicy) {
        self.0.retain(|(other, _)| *other != kind);
        self.0.push((kind, on_error));
    }

    pub(crate) fn of(&self, error: &ToolError) -> ErrorPolicy {
        if error.is_fatal() {
            return ErrorPolicy::EndRun;
        }
        let found = self.0.iter().find(|(kind, _)| *kind == error.kind());
        found.map_or(ErrorPolicy::Tell, |(_, on_error)| *on_error)
    }

    /// The record with what the model reads of the outcome, and whether the run ends with it.
    pub(super) fn judge(&self, execution: ToolExecution) -> (ToolExecution, Option<Ending>) {
        let Err(error) = &execution.outcome else { return (execution, None) };
        match self.of(error) {
            ErrorPolicy::Tell => (execution, None),
            ErrorPolicy::Hide => {
                let hidden = error.clone().hidden(&execution.call.id);
                (execution.with_outcome(Err(hidden)), None)
            }
            ErrorPolicy::EndRun => {
                let ending = Ending::Tool { tool: execution.call.name.clone(), error: error.clone() };
                (execution, Some(ending))
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
