//! The record of one call.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::tool::write_outcome;
use crate::{Repair, ToolCall, ToolError, ToolOutput};

/// One call that was made, and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolExecution {
    call: ToolCall,
    #[serde(serialize_with = "write_outcome")]
    outcome: Result<ToolOutput, ToolError>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<SystemTime>,
    #[serde(default)]
    duration: Duration,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    repairs: Vec<Repair>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    returns_direct: bool,
}

impl ToolExecution {
    /// The record of a call that took no time that anybody measured.
    #[must_use]
    pub fn new(call: ToolCall, outcome: Result<ToolOutput, ToolError>) -> Self {
        Self {
            call,
            outcome,
            started_at: None,
            duration: Duration::ZERO,
            repairs: Vec::new(),
            returns_direct: false,
        }
    }

    /// The same record with when the call began and how long it took.
    #[must_use]
    pub fn with_timing(mut self, started_at: SystemTime, duration: Duration) -> Self {
        self.started_at = Some(started_at);
        self.duration = duration;
        self
    }

    pub(crate) fn with_repairs(mut self, repairs: Vec<Repair>) -> Self {
        self.repairs = repairs;
        self
    }

    /// The same record of a call whose output is the answer of the run.
    pub(crate) fn returning_direct(mut self, returns_direct: bool) -> Self {
        self.returns_direct = returns_direct;
        self
    }

    /// The call gave back what the run answers with: its tool says so, and it did not fail.
    pub(crate) fn is_answer(&self) -> bool {
        self.returns_direct && self.outcome.is_ok()
    }

    /// What was mended in the arguments before the tool was called.
    #[must_use]
    pub fn repairs(&self) -> &[Repair] {
        &self.repairs
    }

    /// What was called, with what.
    #[must_use]
    pub fn call(&self) -> &ToolCall {
        &self.call
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
        self.started_at
    }

    /// How long the call took; zero if it was not measured.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }
}
