//! The words by which traces tell how something ended.

use crate::{FinishReason, RunError, ToolErrorKind};

/// What ended a run, by the name of the query that says so.
pub(super) fn of_run_error(error: &RunError) -> &'static str {
    let kinds = [
        (error.is_model(), "model"),
        (error.is_turn_limit(), "turn_limit"),
        (error.is_call_limit(), "call_limit"),
        (error.is_token_limit(), "token_limit"),
        (error.is_time_limit(), "time_limit"),
        (error.is_output_limit(), "output_limit"),
        (error.is_repeat_limit(), "repeat_limit"),
        (error.is_cut_short(), "cut_short"),
        (error.is_wrong_answer(), "wrong_answer"),
        (error.is_cancelled(), "cancelled"),
        (error.is_tool(), "tool"),
        (error.is_tools(), "tools"),
        (error.is_missing_context(), "missing_context"),
        (error.is_not_kept(), "not_kept"),
        (error.is_out_of_step(), "out_of_step"),
    ];
    // The convention's word for what has no other.
    kinds.into_iter().find(|(is, _)| *is).map_or("_OTHER", |(_, name)| name)
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
        ToolErrorKind::NotMade => "not_made",
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
