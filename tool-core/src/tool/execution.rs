//! The record of one call.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::arguments::{Repair, without_whitespace};
use crate::model::ToolCall;
use crate::tool::timing::{micros, micros_since_epoch};
use crate::tool::{
    CallNotes, DecisionRecord, OriginalOutcome, Outcome, ToolError, ToolErrorKind, ToolOutput, VerdictKind,
    VerdictRecord, write_outcome,
};

/// The record of a call and its outcome.
///
/// `Display` writes both on one line, for people who are allowed to see arguments and outputs. `Debug` omits them.
///
/// ```
/// use tool_core::tool::ToolExecution;
/// use tool_core::{ToolCall, ToolError, ToolOutput};
///
/// let call = ToolCall::new("call_1", "sum", r#"{"a":1,"b":2}"#);
/// let execution = ToolExecution::new(call.clone(), Ok(ToolOutput::text("3")));
/// assert_eq!(execution.to_string(), r#"sum {"a":1,"b":2} returns: 3"#);
/// let execution = ToolExecution::new(call, Err(ToolError::failed("no adder")));
/// assert_eq!(execution.to_string(), r#"sum {"a":1,"b":2} fails: no adder"#);
/// assert_eq!(execution.error().map(ToString::to_string).as_deref(), Some("no adder"));
/// ```
#[derive(Clone, Serialize, Deserialize)]
pub struct ToolExecution {
    pub(crate) call: ToolCall,
    #[serde(serialize_with = "write_outcome")]
    pub(crate) outcome: Result<ToolOutput, ToolError>,
    #[serde(flatten)]
    pub(crate) metadata: ExecutionMetadata,
}

/// The origin of the outcome of a call. Only calls that the run executed prove anything: their outcomes are reused for repeated
/// ids and for equal calls of `pure` tools, and their effects are undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Origin {
    /// The call was executed.
    #[default]
    Executed,
    /// The call was not executed because the outcome of an equal call, executed earlier in the run, was reused.
    Recorded,
    /// The call was denied, or refused before it was executed.
    NotExecuted,
    /// The outcome was [supplied](ToolExecution::external) by another party, which the run does not trust.
    External,
}

impl Origin {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
    fn is_executed(&self) -> bool {
        *self == Self::Executed
    }
}

/// The data of an execution besides the call and its outcome.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ExecutionMetadata {
    #[serde(with = "micros_since_epoch", skip_serializing_if = "Option::is_none")]
    pub(crate) started_at: Option<SystemTime>,
    #[serde(with = "micros", skip_serializing_if = "Duration::is_zero")]
    pub(crate) duration: Duration,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) repairs: Vec<Repair>,
    /// The number of times that the call was started, if more than once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) attempts: Option<u32>,
    #[serde(rename = "asked", skip_serializing_if = "Option::is_none")]
    pub(crate) original_arguments: Option<String>,
    /// As recorded; [`ToolExecution::origin`] also considers the error.
    #[serde(skip_serializing_if = "Origin::is_executed")]
    pub(crate) origin: Origin,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) undo: Option<String>,
    /// An earlier attempt or a replaced outcome leaves it unknown whether the call had its effect.
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
    /// The call has no outcome yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_waiting: bool,
    /// What the call needs when it is executed again. The run moves it into its own record of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) notes: Option<Box<CallNotes>>,
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

/// What a tool returns besides the outcome of a call.
#[derive(Default)]
pub struct CallDetails {
    pub(crate) repairs: Vec<Repair>,
    pub(crate) reviewed: Option<Box<Reviewed>>,
}

impl fmt::Debug for CallDetails {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallDetails").finish_non_exhaustive()
    }
}

/// What the layers of a set made of a call.
pub(crate) struct Reviewed {
    /// The arguments that they wrote.
    pub(crate) arguments: String,
    pub(crate) metadata: ExecutionMetadata,
}

/// Omits arguments, the output and the text of an error, which can be secret; `Display` writes them.
impl fmt::Debug for ToolExecution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolExecution")
            .field("call", &self.call)
            .field("outcome", &self.outcome.as_ref().map_err(ToolError::kind))
            .field("metadata", &self.metadata)
            .finish()
    }
}

/// Omits arguments, which can be secret.
impl fmt::Debug for ExecutionMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutionMetadata")
            .field("started_at", &self.started_at)
            .field("duration", &self.duration)
            .field("repairs", &self.repairs)
            .field("attempts", &self.attempts)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}

impl ToolExecution {
    /// Creates the record of a call whose duration was not measured.
    #[must_use]
    pub fn new(call: ToolCall, outcome: Result<ToolOutput, ToolError>) -> Self {
        Self { call, outcome, metadata: ExecutionMetadata::default() }
    }

    /// Creates the record of a call whose outcome comes from an untrusted party, such as the results in a conversation that a
    /// caller sends. The model reads it, but it is not reused for any other call; see [`Origin`].
    #[must_use]
    pub fn external(call: ToolCall, outcome: Result<ToolOutput, ToolError>) -> Self {
        let mut execution = Self::new(call, outcome);
        execution.metadata.origin = Origin::External;
        execution
    }

    /// Returns this record with the start time and the duration of the call.
    #[must_use]
    pub fn with_timing(mut self, started_at: SystemTime, duration: Duration) -> Self {
        self.metadata.started_at = Some(started_at);
        self.metadata.duration = duration;
        self
    }

    pub(crate) fn with_details(mut self, details: CallDetails) -> Self {
        if let Some(Reviewed { arguments, metadata }) = details.reviewed.map(|reviewed| *reviewed) {
            self.metadata = metadata;
            let requested = std::mem::replace(&mut self.call.arguments, arguments);
            self.metadata.original_arguments = Some(requested).filter(|it| *it != self.call.arguments);
        }
        self.metadata.repairs = details.repairs;
        self
    }

    /// Splits the record of a call into what its tool returns.
    pub(crate) fn into_details(mut self) -> (Outcome, CallDetails) {
        let repairs = std::mem::take(&mut self.metadata.repairs);
        let reviewed = Reviewed { arguments: self.call.arguments, metadata: self.metadata };
        (self.outcome, CallDetails { repairs, reviewed: Some(Box::new(reviewed)) })
    }

    /// Returns this record with another outcome.
    pub(crate) fn with_outcome(mut self, outcome: Result<ToolOutput, ToolError>) -> Self {
        self.replace_outcome(outcome);
        self
    }

    pub(crate) fn replace_outcome(&mut self, outcome: Result<ToolOutput, ToolError>) {
        self.metadata.is_uncertain |= self.leaves_effect_unknown();
        let original = std::mem::replace(&mut self.outcome, outcome);
        self.metadata.original_outcome.get_or_insert_with(|| Box::new(OriginalOutcome(original)));
    }

    /// Returns this record of an attempt that is repeated for the readers of events. Its error is hidden if layers judge outputs,
    /// because they see the last attempt alone.
    pub(crate) fn of_failed_attempt(&self, is_judged: bool) -> Self {
        match self.error() {
            Some(error) if is_judged => {
                Self::new(self.call.clone(), Err(error.with_text("the attempt failed".to_owned())))
            }
            _ => self.clone().with_notes(None),
        }
    }

    pub(crate) fn with_verdict(mut self, verdict: VerdictRecord) -> Self {
        self.metadata.verdicts.push(verdict);
        self
    }

    /// Marks the call as not executed because its outcome was given by a layer.
    pub(crate) fn without_execution(mut self) -> Self {
        self.metadata.origin = Origin::NotExecuted;
        self
    }

    /// Marks the call as not executed because the outcome of an earlier call was reused.
    pub(crate) fn into_reused(mut self) -> Self {
        self.metadata.origin = Origin::Recorded;
        self
    }

    /// Returns `true` if the model requested the same tool with the same arguments.
    pub(crate) fn was_requested_as(&self, call: &ToolCall) -> bool {
        self.call.name == call.name
            && without_whitespace(self.original_arguments()) == without_whitespace(&call.arguments)
    }

    /// Returns `true` if the run executed the same tool with the same arguments, whatever the model had requested.
    pub(crate) fn was_executed_as(&self, call: &ToolCall) -> bool {
        self.was_executed()
            && self.call.name == call.name
            && without_whitespace(&self.call.arguments) == without_whitespace(&call.arguments)
    }

    /// Creates the record of a call that has no outcome yet, because it waits for what is in its notes, or because the agent that it
    /// asked waits.
    pub(crate) fn waiting(call: ToolCall, notes: Option<CallNotes>) -> Self {
        let mut execution = Self::new(call, Err(ToolError::not_executed("it waits")));
        execution.metadata.is_waiting = true;
        execution.with_notes(notes)
    }

    pub(crate) fn with_notes(mut self, notes: Option<CallNotes>) -> Self {
        self.metadata.notes = notes.map(Box::new);
        self
    }

    /// Returns `true` if the call has no outcome yet: it [asks a person](crate::tool::Asker) or is parked, or an
    /// [agent](crate::Agent::as_tool) that it asked waits. Record it nevertheless: the call stays open, and its run waits.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.metadata.is_waiting
    }

    /// Returns the repairs of the arguments that preceded the call.
    #[must_use]
    pub fn repairs(&self) -> &[Repair] {
        &self.metadata.repairs
    }

    /// Returns the call with the arguments that it was executed with.
    #[must_use]
    pub fn call(&self) -> &ToolCall {
        &self.call
    }

    /// Returns the arguments that the model requested. They differ from the arguments in [`call`](Self::call) if a layer or a
    /// person changed them.
    #[must_use]
    pub fn original_arguments(&self) -> &str {
        self.metadata.original_arguments.as_deref().unwrap_or(&self.call.arguments)
    }

    /// Returns the number of times that the call was started. It is more than 1 if the call was
    /// [retried](crate::model::ToolPolicy::attempts), or if the process ended while the call was in flight.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.metadata.attempts.unwrap_or(1)
    }

    /// Returns the decisions about the call while it waited, in their order: approvals, replies to its questions, and supplied results.
    #[must_use]
    pub fn decisions(&self) -> &[DecisionRecord] {
        &self.metadata.decisions
    }

    /// Returns what [layers](crate::layer::Layer) decided about the call and its outcome, in their order.
    #[must_use]
    pub fn verdicts(&self) -> &[VerdictRecord] {
        &self.metadata.verdicts
    }

    /// Returns the outcome before layers replaced it.
    ///
    /// # Errors
    ///
    /// Returns the error of a call that failed.
    pub fn original_outcome(&self) -> Result<&ToolOutput, &ToolError> {
        self.metadata.original_outcome.as_ref().map_or(self.outcome(), |original| original.0.as_ref())
    }

    /// Returns this record without the outcome and the arguments that layers replaced, for readers from whom they hide them.
    #[must_use]
    pub fn without_replaced(mut self) -> Self {
        self.metadata.original_outcome = None;
        if self.metadata.verdicts.iter().any(|verdict| verdict.kind == VerdictKind::Rewritten) {
            self.metadata.original_arguments = None;
        }
        self
    }

    /// Returns `true` if a layer has still to judge the outcome, before the next step.
    #[cfg(feature = "unstable-internals")]
    #[must_use]
    pub fn is_unjudged(&self) -> bool {
        self.metadata.judgement == Some(Judgement::Pending)
    }

    /// Returns the origin of the outcome.
    #[must_use]
    pub fn origin(&self) -> Origin {
        match &self.outcome {
            Err(error) if matches!(error.kind(), ToolErrorKind::Denied | ToolErrorKind::NotExecuted) => {
                Origin::NotExecuted
            }
            _ => self.metadata.origin,
        }
    }

    pub(crate) fn leaves_effect_unknown(&self) -> bool {
        self.outcome.as_ref().is_err_and(|error| error.kind().leaves_effect_unknown())
    }

    /// Returns `true` if there may be an effect to undo.
    pub(crate) fn may_have_had_effect(&self) -> bool {
        // What layers made of the outcome changes nothing about the effect.
        let has_effect =
            self.original_outcome().map_or_else(|error| error.kind().leaves_effect_unknown(), |_| true);
        self.metadata.is_uncertain || self.metadata.origin == Origin::Executed && has_effect
    }

    /// Returns `true` if the run executed the call.
    pub(crate) fn was_executed(&self) -> bool {
        self.origin() == Origin::Executed
    }

    /// Returns the outcome of the call.
    ///
    /// # Errors
    ///
    /// Returns the error of a call that failed.
    pub fn outcome(&self) -> Result<&ToolOutput, &ToolError> {
        self.outcome.as_ref()
    }

    /// Returns the output, or `None` if the call failed.
    #[must_use]
    pub fn output(&self) -> Option<&ToolOutput> {
        self.outcome.as_ref().ok()
    }

    /// Returns the error, or `None` if the call succeeded.
    #[must_use]
    pub fn error(&self) -> Option<&ToolError> {
        self.outcome.as_ref().err()
    }

    /// Returns the time when the call started, if it was measured.
    #[must_use]
    pub fn started_at(&self) -> Option<SystemTime> {
        self.metadata.started_at
    }

    /// Returns the duration of the call, or zero if it was not measured.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.metadata.duration
    }
}
