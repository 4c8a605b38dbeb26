//! What has happened in a run, as it is sent: its events, and how it has failed.
//!
//! The serialized form is documented at `EventRecord`, and in `docs/frontends.md` what the page adds.

use serde::Serialize;
use tool_core::agent::EventRecord;
use tool_core::run::{Run, StopReason};
use tool_core::tool::{OutcomeOrigin, ToolErrorKind};
use tool_core::{Event, RunError, RunErrorKind, ToolExecution};

/// Something that happened in a run.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "nearly all entries are events")]
pub(crate) enum Entry {
    Failed(Failure),
    Cancelled,
    #[serde(untagged)]
    Event(EventRecord),
}

/// Why a run ended without an answer. `kind` names no internals, `error` can.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    kind: &'static str,
    error: String,
}

impl Failure {
    /// Returns why a run has failed that was driven here. Returns `None` for a run that waits, or that others continue.
    pub(crate) fn of(error: &RunError) -> Option<Self> {
        let kind = match error.kind() {
            RunErrorKind::Waiting => return None,
            RunErrorKind::Stopped(reason) if reason.is_limit() => "the run reached a limit",
            RunErrorKind::Stopped(StopReason::Cancelled) => "the run was cancelled",
            RunErrorKind::Stopped(StopReason::ToolFailed { .. }) => "a tool ended the run",
            RunErrorKind::Stopped(_) => "the model gave no valid answer",
            RunErrorKind::Model(_) => "the model is not available",
            RunErrorKind::Tools { .. } => "the tools are not available",
            RunErrorKind::Store(_) => "the store is not available",
            RunErrorKind::Budget { left: 0, .. } => "the budget is used up",
            RunErrorKind::Budget { .. } => "the question is too long for what is left of the budget",
            RunErrorKind::BudgetInUse { .. } => {
                "another question uses what is left of the budget; ask again later"
            }
            RunErrorKind::Conflict | RunErrorKind::RunningElsewhere => "the run continues elsewhere",
            RunErrorKind::ConversationWaits { .. } => "an earlier question of this conversation waits",
            _ => "the run failed",
        };
        Some(Self { kind, error: error.to_string() })
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn error(&self) -> &str {
        &self.error
    }
}

impl Entry {
    /// Creates the entry of an event of a run. Why a run has failed that was driven here can be known in more detail.
    pub(crate) fn new(record: EventRecord, known: Option<&Failure>) -> Self {
        match record.event {
            Event::Failed(error) if error == StopReason::Cancelled.to_string() => Self::Cancelled,
            Event::Failed(error) => {
                let known = known.filter(|known| known.error == error);
                Self::Failed(known.cloned().unwrap_or(Failure { kind: "the run failed", error }))
            }
            _ => Self::Event(record),
        }
    }

    /// Returns the event, unless the run has failed.
    pub(crate) fn event(&self) -> Option<&Event> {
        match self {
            Self::Event(record) => Some(&record.event),
            _ => None,
        }
    }

    /// Returns `true` for the last entry of a run, unless it is resumed after a failure.
    pub(crate) fn is_end(&self) -> bool {
        !matches!(self, Self::Event(record) if !matches!(record.event, Event::Done(_)))
    }
}

/// Returns the executions of the calls of a run, without those whose outcome a layer has failed to judge.
pub(crate) fn executions(run: &Run) -> impl Iterator<Item = &ToolExecution> {
    let all = run.tool_executions().iter().chain(run.current_calls().filter_map(|(_, execution)| execution));
    all.filter(|execution| !execution.is_unjudged())
}

/// Returns `true` if the call failed, or may have.
pub(crate) fn is_failure(execution: &ToolExecution) -> bool {
    execution.outcome().is_err_and(|error| match error.kind() {
        ToolErrorKind::Denied => false,
        ToolErrorKind::OutcomeUnknown => true,
        _ => execution.origin() != OutcomeOrigin::NotExecuted,
    })
}

/// Returns the output, or the text of the error.
pub(crate) fn output(execution: &ToolExecution) -> String {
    match execution.outcome() {
        Ok(output) => output.content().text().into_owned(),
        Err(error) => error.to_string(),
    }
}
