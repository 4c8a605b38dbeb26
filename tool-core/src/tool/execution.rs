//! The record of one call.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::arguments::Repair;
use crate::model::ToolCall;
use crate::tool::timing::{micros, micros_since_epoch};
use crate::tool::{ToolError, ToolOutput, write_outcome};

/// One call that was made, and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolExecution {
    pub(crate) call: ToolCall,
    #[serde(serialize_with = "write_outcome")]
    pub(crate) outcome: Result<ToolOutput, ToolError>,
    #[serde(flatten)]
    pub(crate) notes: Notes,
}

/// What is known of a call beside what was called and what came back.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notes {
    #[serde(with = "micros_since_epoch", skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<SystemTime>,
    #[serde(with = "micros", skip_serializing_if = "Duration::is_zero")]
    pub(crate) duration: Duration,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) repairs: Vec<Repair>,
    /// How often it was begun, if more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) asked: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) from_record: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) undo: Option<String>,
}

/// Leaves arguments out.
impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notes")
            .field("started_at", &self.started_at)
            .field("duration", &self.duration)
            .field("repairs", &self.repairs)
            .field("attempts", &self.attempts)
            .field("from_record", &self.from_record)
            .finish_non_exhaustive()
    }
}

impl ToolExecution {
    /// The record of a call that took no time that anybody measured.
    #[must_use]
    pub fn new(call: ToolCall, outcome: Result<ToolOutput, ToolError>) -> Self {
        Self { call, outcome, notes: Notes::default() }
    }

    /// The same record with when the call began and how long it took.
    #[must_use]
    pub fn with_timing(mut self, started_at: SystemTime, duration: Duration) -> Self {
        self.notes.started_at = Some(started_at);
        self.notes.duration = duration;
        self
    }

    pub(crate) fn with_repairs(mut self, repairs: Vec<Repair>) -> Self {
        self.notes.repairs = repairs;
        self
    }

    /// The same record with another outcome.
    pub(crate) fn with_outcome(mut self, outcome: Result<ToolOutput, ToolError>) -> Self {
        self.outcome = outcome;
        self
    }

    /// The record of a call that was not made, as its outcome was known.
    pub(crate) fn of_record(mut self) -> Self {
        self.notes.from_record = true;
        self
    }

    /// It is of a call of the same tool with the same arguments.
    pub(crate) fn is_of(&self, call: &ToolCall) -> bool {
        self.call.name == call.name && self.asked_arguments() == call.arguments
    }

    /// The same tool was called with the same arguments, whatever the model had asked for.
    pub(crate) fn was_made_as(&self, call: &ToolCall) -> bool {
        self.call.name == call.name && self.call.arguments == call.arguments
    }

    /// What was mended in the arguments before the tool was called.
    #[must_use]
    pub fn repairs(&self) -> &[Repair] {
        &self.notes.repairs
    }

    /// What was called, with what.
    #[must_use]
    pub fn call(&self) -> &ToolCall {
        &self.call
    }

    /// The arguments that the model asked for, which are other than those of the [`call`](Self::call) if a person
    /// changed them.
    #[must_use]
    pub fn asked_arguments(&self) -> &str {
        self.notes.asked.as_deref().unwrap_or(&self.call.arguments)
    }

    /// How often the call was begun: more than once if its tool is tried [again](crate::model::ToolPolicy::attempts), or the
    /// process ended while it was under way.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.notes.attempts.unwrap_or(1)
    }

    /// The call was begun: not one that a person denied, that was refused before it was made, or whose outcome was
    /// [known](Self::is_from_record).
    #[must_use]
    pub fn was_made(&self) -> bool {
        let is_refused = |error: &ToolError| error.is_denied() || error.is_not_made();
        !self.notes.from_record && !self.outcome.as_ref().is_err_and(is_refused)
    }

    /// The call was not made: its outcome is that of the same call, made before in this run.
    #[must_use]
    pub fn is_from_record(&self) -> bool {
        self.notes.from_record
    }

    /// What came back.
    ///
    /// # Errors
    ///
    /// Why the call failed.
    pub fn outcome(&self) -> Result<&ToolOutput, &ToolError> {
        self.outcome.as_ref()
    }

    /// The output, unless the call failed.
    #[must_use]
    pub fn output(&self) -> Option<&ToolOutput> {
        self.outcome.as_ref().ok()
    }

    pub(crate) fn result(&self) -> &Result<ToolOutput, ToolError> {
        &self.outcome
    }

    /// When the call began, if it was measured.
    #[must_use]
    pub fn started_at(&self) -> Option<SystemTime> {
        self.notes.started_at
    }

    /// How long the call took; zero if it was not measured.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.notes.duration
    }
}
