//! The record of one call.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::arguments::{Repair, without_whitespace};
use crate::model::ToolCall;
use crate::tool::{
    CallHistory, CallNotes, DecisionRecord, OriginalOutcome, Outcome, OutcomeOrigin, ToolError,
    ToolErrorKind, ToolOutput, VerdictKind, VerdictRecord, write_outcome,
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
    pub(crate) history: CallHistory,
    /// The call has no outcome yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_waiting: bool,
    /// What the call needs when it is executed again. The run moves it into its own record of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) notes: Option<Box<CallNotes>>,
}

/// Omits arguments, the output and the text of an error, which can be secret; `Display` writes them.
impl fmt::Debug for ToolExecution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolExecution")
            .field("call", &self.call)
            .field("outcome", &self.outcome.as_ref().map_err(ToolError::kind))
            .field("history", &self.history)
            .finish()
    }
}

impl ToolExecution {
    /// Creates the record of a call whose duration was not measured.
    #[must_use]
    pub fn new(call: ToolCall, outcome: Result<ToolOutput, ToolError>) -> Self {
        Self { call, outcome, history: CallHistory::default(), is_waiting: false, notes: None }
    }

    /// Creates the record of a call whose outcome comes from an untrusted party, such as the results in a conversation that a
    /// caller sends. The model reads it, but it is not reused for any other call; see [`OutcomeOrigin`].
    #[must_use]
    pub fn external(call: ToolCall, outcome: Result<ToolOutput, ToolError>) -> Self {
        let mut execution = Self::new(call, outcome);
        execution.history.origin = OutcomeOrigin::External;
        execution
    }

    /// Returns this record with the start time and the duration of the call.
    #[must_use]
    pub fn with_timing(mut self, started_at: SystemTime, duration: Duration) -> Self {
        self.history.started_at = Some(started_at);
        self.history.duration = duration;
        self
    }

    /// Returns this record with the history of the call.
    pub(crate) fn with_history(mut self, history: Option<Box<CallHistory>>) -> Self {
        let mut history = history.map_or_else(CallHistory::default, |history| *history);
        if let Some(arguments) = history.rewritten_arguments.take() {
            let requested = std::mem::replace(&mut self.call.arguments, arguments);
            history.original_arguments = Some(requested).filter(|it| *it != self.call.arguments);
        }
        self.history = history;
        self
    }

    /// Splits the record of a call into what its tool returns.
    pub(crate) fn into_returned(mut self) -> (Outcome, Option<Box<CallHistory>>) {
        self.history.rewritten_arguments = Some(self.call.arguments);
        (self.outcome, Some(Box::new(self.history)))
    }

    /// Returns this record with another outcome.
    /// Returns the execution of an undo call whose outcome layers could not judge: it has happened, and the next one must follow.
    pub(crate) fn unjudged(self) -> Self {
        self.with_outcome(Err(ToolError::failed("a layer did not judge the outcome")))
    }

    pub(crate) fn with_outcome(mut self, outcome: Result<ToolOutput, ToolError>) -> Self {
        self.replace_outcome(outcome);
        self
    }

    /// Returns this record with what becomes of its outcome.
    pub(crate) fn map_outcome(self, change: impl FnOnce(Outcome) -> Outcome) -> Self {
        let outcome = change(self.outcome);
        Self { outcome, ..self }
    }

    pub(crate) fn replace_outcome(&mut self, outcome: Result<ToolOutput, ToolError>) {
        self.history.is_uncertain |= self.leaves_effect_unknown();
        let original = std::mem::replace(&mut self.outcome, outcome);
        self.history.original_outcome.get_or_insert_with(|| Box::new(OriginalOutcome(original)));
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
        self.history.verdicts.push(verdict);
        self
    }

    /// Marks the call as not executed because its outcome was given by a layer.
    pub(crate) fn without_execution(mut self) -> Self {
        self.history.origin = OutcomeOrigin::NotExecuted;
        self
    }

    /// Marks the call as not executed because the outcome of an earlier call was reused.
    pub(crate) fn into_reused(mut self) -> Self {
        self.history.origin = OutcomeOrigin::Recorded;
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
        execution.is_waiting = true;
        execution.with_notes(notes)
    }

    pub(crate) fn with_notes(mut self, notes: Option<CallNotes>) -> Self {
        self.notes = notes.map(Box::new);
        self
    }

    /// Returns `true` if the call has no outcome yet: it [asks a person](crate::tool::Asker) or is parked, or an
    /// [agent](crate::Agent::as_tool) that it asked waits. Record it nevertheless: the call stays open, and its run waits.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Returns the repairs of the arguments that preceded the call.
    #[must_use]
    pub fn repairs(&self) -> &[Repair] {
        &self.history.repairs
    }

    /// Returns the call with the arguments that it was executed with.
    #[must_use]
    pub fn call(&self) -> &ToolCall {
        &self.call
    }

    /// Returns the arguments with the [repairs](Self::repairs) that preceded the call, or `None` if they are no object. Those that the model
    /// omitted are not among them, also if the tool has a default.
    #[must_use]
    pub fn received_arguments(&self) -> Option<Map<String, Value>> {
        let Ok(Value::Object(mut arguments)) = self.call.arguments_as() else { return None };
        for repair in self.repairs() {
            let Some(name) = repair.argument() else { continue };
            match serde_json::from_str(repair.repaired()) {
                Ok(value) => drop(arguments.insert(name.to_owned(), value)),
                Err(_) => drop(arguments.remove(name)),
            }
        }
        Some(arguments)
    }

    /// Returns the arguments that the model requested. They differ from the arguments in [`call`](Self::call) if a layer or a
    /// person changed them.
    #[must_use]
    pub fn original_arguments(&self) -> &str {
        self.history.original_arguments.as_deref().unwrap_or(&self.call.arguments)
    }

    /// Returns the number of times that the call was started. It is more than 1 if the call was
    /// [retried](crate::model::ToolPolicy::attempts), or if the process ended while the call was in flight.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.history.attempts.unwrap_or(1)
    }

    /// Returns the decisions about the call while it waited, in their order: approvals, replies to its questions, and supplied results.
    #[must_use]
    pub fn decisions(&self) -> &[DecisionRecord] {
        &self.history.decisions
    }

    /// Returns what [layers](crate::layer::Layer) decided about the call and its outcome, in their order.
    #[must_use]
    pub fn verdicts(&self) -> &[VerdictRecord] {
        &self.history.verdicts
    }

    /// Returns the outcome before layers replaced it.
    ///
    /// # Errors
    ///
    /// Returns the error of a call that failed.
    pub fn original_outcome(&self) -> Result<&ToolOutput, &ToolError> {
        self.history.original_outcome.as_ref().map_or(self.outcome(), |original| original.0.as_ref())
    }

    /// Returns this record without the outcome and the arguments that layers replaced, for readers from whom they hide them.
    #[must_use]
    pub fn without_replaced(mut self) -> Self {
        self.history.original_outcome = None;
        if self.history.verdicts.iter().any(|verdict| verdict.kind == VerdictKind::Rewritten) {
            self.history.original_arguments = None;
        }
        self
    }

    /// Returns `true` if a layer has still to judge the outcome, before the next step.
    #[must_use]
    pub fn is_unjudged(&self) -> bool {
        self.history.judgement == Some(crate::tool::Judgement::Pending)
    }

    /// Returns the origin of the outcome.
    #[must_use]
    pub fn origin(&self) -> OutcomeOrigin {
        match &self.outcome {
            Err(error) if matches!(error.kind(), ToolErrorKind::Denied | ToolErrorKind::NotExecuted) => {
                OutcomeOrigin::NotExecuted
            }
            _ => self.history.origin,
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
        self.history.is_uncertain || self.history.origin == OutcomeOrigin::Executed && has_effect
    }

    /// Returns `true` if the run executed the call.
    pub(crate) fn was_executed(&self) -> bool {
        self.origin() == OutcomeOrigin::Executed
    }

    /// Returns the outcome of the call.
    ///
    /// # Errors
    ///
    /// Returns the error of a call that failed.
    pub fn outcome(&self) -> Result<&ToolOutput, &ToolError> {
        self.outcome.as_ref()
    }

    /// Returns the outcome of the call without its record.
    ///
    /// # Errors
    ///
    /// Returns the error of a call that failed.
    pub fn into_outcome(self) -> Result<ToolOutput, ToolError> {
        self.outcome
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
        self.history.started_at
    }

    /// Returns the duration of the call, or zero if it was not measured.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.history.duration
    }
}
