//! The reason that a run ended for good without an answer.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::{Cost, FinishReason};
use crate::tool::{ToolError, ToolExecution};

/// The reason that a run ended without an answer. It is final: it is saved with the run, which cannot be driven any further.
///
/// [`RunErrorKind::Stopped`](crate::RunErrorKind::Stopped) carries it. `Display` is for the operator of the program and can
/// contain text of the model or of a tool; `Debug` omits it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The model still called tools in its last turn. Carries [`max_turns`](crate::run::RunLimits::max_turns).
    #[serde(rename = "turns")]
    MaxTurns(u32),
    /// The model requested more calls than allowed. Carries [`max_calls`](crate::run::RunLimits::max_calls).
    #[serde(rename = "calls")]
    MaxCalls(u32),
    /// The run used more tokens than allowed. Carries [`max_total_tokens`](crate::run::RunLimits::max_total_tokens).
    #[serde(rename = "tokens")]
    MaxTotalTokens(u64),
    /// The run of an agent that was [called as a tool](crate::Agent::as_tool) spent as much as its own limit allows. Carries
    /// [`max_cost`](crate::run::RunLimits::max_cost). The outermost run returns
    /// [`RunErrorKind::MaxCost`](crate::RunErrorKind::MaxCost) instead.
    #[serde(rename = "cost")]
    MaxCost(Cost),
    /// The run took longer than allowed. Carries [`max_time`](crate::run::RunLimits::max_time).
    #[serde(rename = "time")]
    MaxTime(Duration),
    /// The calls returned more text than allowed. Carries [`max_total_output_chars`](crate::run::RunLimits::max_total_output_chars).
    #[serde(rename = "output")]
    MaxTotalOutputChars(usize),
    /// The model kept repeating one call, beyond [`max_repeated_calls`](crate::run::RunLimits::max_repeated_calls). Carries the
    /// tool's name.
    #[serde(rename = "repeated")]
    RepeatedCall(String),
    /// The model's reply was truncated inside its tool calls.
    #[serde(rename = "cut_short")]
    Truncated(FinishReason),
    /// A call failed, and its [policy](crate::run::ErrorPolicy::EndRun) or the [tool](ToolError::fatal) ended the run.
    #[serde(rename = "tool")]
    ToolFailed {
        /// The tool's name.
        tool: String,
        /// The error of the call.
        error: ToolError,
    },
    /// The model gave no answer of the requested form within
    /// [`max_wrong_answers`](crate::run::RunLimits::max_wrong_answers). Carries what was wrong with the last one.
    WrongAnswer(String),
    /// The model refused to give an answer of the requested [type](crate::agent::Ask::answer_as). Carries the model's refusal.
    /// If any text is accepted, a refusal is [an answer](crate::Answer::refusal).
    Refused(String),
    /// A [layer](crate::layer::Layer) ended the run.
    #[non_exhaustive]
    Blocked {
        /// The name of the layer.
        layer: String,
        /// The reason that it gave.
        reason: String,
    },
    /// The run was cancelled.
    Cancelled,
}

impl StopReason {
    /// Returns `true` if the run reached one of its [limits](crate::run::RunLimits), other than the limit of wrong answers.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        matches!(
            self,
            Self::MaxTurns(_)
                | Self::MaxCalls(_)
                | Self::MaxTotalTokens(_)
                | Self::MaxCost(_)
                | Self::MaxTime(_)
                | Self::MaxTotalOutputChars(_)
                | Self::RepeatedCall(_)
        )
    }

    /// Replaces the error of a call that ended the run, if layers have replaced it.
    pub(super) fn replace_error(&mut self, before: &ToolExecution, after: &ToolExecution) {
        if let Self::ToolFailed { tool, error } = self
            && *tool == before.call().name
            && before.error().is_some_and(|before| before.to_string() == error.to_string())
        {
            let replaced = || error.with_text("a layer has replaced the error".to_owned());
            *error = after.error().cloned().unwrap_or_else(replaced);
        }
    }

    /// Returns the reason that the model reads in place of the results of calls that were not executed.
    pub(super) fn why_not_executed(&self) -> &'static str {
        match self {
            Self::MaxTurns(_) => "the run had used all its turns",
            Self::MaxCalls(_) => "the run would have exceeded its limit of calls",
            Self::MaxTotalTokens(_) => "the run had used all its tokens",
            Self::MaxCost(_) => "the run had spent all its money",
            Self::MaxTime(_) => "the run had used all its time",
            Self::MaxTotalOutputChars(_) => "the run had reached its limit of tool output",
            Self::Truncated(_) => "the reply was cut short",
            Self::Cancelled => "the run was cancelled",
            Self::RepeatedCall(_)
            | Self::ToolFailed { .. }
            | Self::WrongAnswer(_)
            | Self::Refused(_)
            | Self::Blocked { .. } => "the run had ended",
        }
    }
}

/// Omits the texts of the model and the tools.
impl fmt::Debug for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxTurns(limit) => f.debug_tuple("MaxTurns").field(limit).finish(),
            Self::MaxCalls(limit) => f.debug_tuple("MaxCalls").field(limit).finish(),
            Self::MaxTotalTokens(limit) => f.debug_tuple("MaxTotalTokens").field(limit).finish(),
            Self::MaxCost(limit) => f.debug_tuple("MaxCost").field(limit).finish(),
            Self::MaxTime(limit) => f.debug_tuple("MaxTime").field(limit).finish(),
            Self::MaxTotalOutputChars(limit) => f.debug_tuple("MaxTotalOutputChars").field(limit).finish(),
            Self::RepeatedCall(tool) => f.debug_tuple("RepeatedCall").field(tool).finish(),
            Self::Truncated(reason) => f.debug_tuple("Truncated").field(reason).finish(),
            Self::ToolFailed { tool, error } => {
                f.debug_struct("ToolFailed").field("tool", tool).field("error", &error.kind()).finish()
            }
            Self::WrongAnswer(why) => write!(f, "WrongAnswer({} bytes)", why.len()),
            Self::Refused(refusal) => write!(f, "Refused({} bytes)", refusal.len()),
            Self::Blocked { layer, .. } => {
                f.debug_struct("Blocked").field("layer", layer).finish_non_exhaustive()
            }
            Self::Cancelled => f.write_str("Cancelled"),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MaxTurns(limit) => write!(
                f,
                "the model still called tools after {limit} turns; raise `max_turns`, \
                 or check `tool_executions()` for what it attempts"
            ),
            Self::MaxCalls(limit) => write!(
                f,
                "the model requested more than {limit} calls; raise `max_calls`, \
                 or check `tool_executions()` for what it attempts"
            ),
            Self::MaxTotalTokens(limit) => write!(
                f,
                "the run used more than {limit} tokens; raise `max_total_tokens`, or send less history"
            ),
            Self::MaxCost(limit) => write!(f, "the run would cost more than {limit}; raise `max_cost`"),
            Self::MaxTime(limit) => write!(f, "the run took longer than {limit:?}; raise `max_time`"),
            Self::MaxTotalOutputChars(limit) => write!(
                f,
                "the calls returned more than {limit} characters; raise `max_total_output_chars`, \
                 or limit each call with `max_output_chars`"
            ),
            Self::RepeatedCall(tool) => write!(
                f,
                "the model kept repeating one call of `{tool}`; raise `max_repeated_calls`, \
                 or let the tool's output say what to do next"
            ),
            Self::Truncated(FinishReason::ContentFilter) => f.write_str(
                "a filter of the provider cut the model's reply short in the middle of its calls, so none was executed",
            ),
            Self::Truncated(_) => f.write_str(
                "the model's reply was truncated inside its tool calls; none was executed; raise `max_output_tokens`",
            ),
            Self::ToolFailed { tool, error } => write!(f, "the tool `{tool}` ended the run: {error}"),
            Self::WrongAnswer(why) => write!(f, "the model gave no valid answer: {why}"),
            Self::Refused(refusal) => write!(f, "the model refused to answer: {refusal}"),
            Self::Blocked { layer, reason } => write!(f, "the layer `{layer}` has ended the run: {reason}"),
            Self::Cancelled => f.write_str("the run was cancelled"),
        }
    }
}
