//! The names of outcomes in traces.

use crate::model::FinishReason;
use crate::run::{RunError, RunErrorKind, StopReason};

/// Returns the `error.type` of a run: the name of the kind of its error, or of the reason why it stopped.
pub(super) fn run_error_type(error: &RunError) -> &'static str {
    match error.kind() {
        RunErrorKind::Stopped(reason) => stop_reason(reason),
        RunErrorKind::Waiting => "waiting",
        RunErrorKind::Model(_) => "model",
        RunErrorKind::Store(_) => "store",
        RunErrorKind::Conflict => "conflict",
        RunErrorKind::RunningElsewhere => "running_elsewhere",
        RunErrorKind::Expired => "expired",
        RunErrorKind::RunSetup(_) => "run_setup",
        RunErrorKind::OtherAgent { .. } => "other_agent",
        RunErrorKind::ConversationWaits { .. } => "conversation_waits",
        RunErrorKind::Question(_) => "question",
        RunErrorKind::Tools { .. } => "tools",
        RunErrorKind::MissingContext(_) => "missing_context",
        RunErrorKind::Layer { .. } => "layer",
        RunErrorKind::Decision(_) => "decision",
        RunErrorKind::Step(_) => "step",
        RunErrorKind::MaxCost { .. } => "max_cost",
        RunErrorKind::Budget { .. } => "budget",
        RunErrorKind::BudgetInUse { .. } => "budget_in_use",
        RunErrorKind::UnknownAnswerLength { .. } => "unknown_answer_length",
    }
}

fn stop_reason(reason: &StopReason) -> &'static str {
    match reason {
        StopReason::MaxTurns(_) => "max_turns",
        StopReason::MaxCalls(_) => "max_calls",
        StopReason::MaxTotalTokens(_) => "max_total_tokens",
        StopReason::MaxCost(_) => "max_cost",
        StopReason::MaxTime(_) => "max_time",
        StopReason::MaxTotalOutputChars(_) => "max_output_chars",
        StopReason::RepeatedCall(_) => "repeated_call",
        StopReason::Truncated(_) => "truncated",
        StopReason::ToolFailed { .. } => "tool_failed",
        StopReason::WrongAnswer(_) => "wrong_answer",
        StopReason::Refused(_) => "refused",
        StopReason::Blocked { .. } => "blocked",
        StopReason::Cancelled => "cancelled",
    }
}

/// Returns the convention's name for why the model stopped.
pub(super) fn finish_reason(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_call",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::Compaction => "compaction",
        FinishReason::Other(other) => other,
    }
}
