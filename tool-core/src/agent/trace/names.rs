//! The words by which traces tell how something ended.

use crate::model::FinishReason;
use crate::run::{RunError, RunErrorKind};
use crate::tool::ToolErrorKind;

/// What ended a run, by the name of the query that says so.
pub(super) fn of_run_error(error: &RunError) -> &'static str {
    match error.kind() {
        RunErrorKind::Model => "model",
        RunErrorKind::Tools => "tools",
        RunErrorKind::MissingContext => "missing_context",
        RunErrorKind::NotKept => "not_kept",
        RunErrorKind::StepError => "out_of_step",
        RunErrorKind::ApprovalNeeded => "approval_needed",
        RunErrorKind::TurnLimit => "turn_limit",
        RunErrorKind::CallLimit => "call_limit",
        RunErrorKind::TokenLimit => "token_limit",
        RunErrorKind::TimeLimit => "time_limit",
        RunErrorKind::OutputLimit => "output_limit",
        RunErrorKind::RepeatLimit => "repeat_limit",
        RunErrorKind::CutShort => "cut_short",
        RunErrorKind::WrongAnswer => "wrong_answer",
        RunErrorKind::Refused => "refused",
        RunErrorKind::Cancelled => "cancelled",
        RunErrorKind::Tool => "tool",
    }
}

/// Why a call failed.
pub(super) fn of_tool_error(kind: ToolErrorKind) -> &'static str {
    match kind {
        ToolErrorKind::UnknownTool => "unknown_tool",
        ToolErrorKind::InvalidArguments => "invalid_arguments",
        ToolErrorKind::Failed => "failed",
        ToolErrorKind::Panicked => "panicked",
        ToolErrorKind::TimedOut => "timed_out",
        ToolErrorKind::MissingContext => "missing_context",
        ToolErrorKind::Denied => "denied",
        ToolErrorKind::NotExecuted => "not_made",
        ToolErrorKind::OutcomeUnknown => "outcome_unknown",
    }
}

/// Why the model stopped, in the words of the convention.
pub(super) fn of_finish_reason(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_call",
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
        FinishReason::Other(other) => other,
    }
}
