//! Maps errors of models and agents to the errors that callers receive.
//!
//! A caller learns the kind of an error, and so whether to try again. The text of an error may describe internal systems and is
//! sent only if the server is verbose.

use std::error::Error as StdError;

use axum::http::StatusCode;
use tool_core::model::ModelError;
use tool_core::run::StopReason;
use tool_core::toolset::{ToolSetError, ToolSetErrorKind};
use tool_core::{RunError, RunErrorKind};
use tool_http::client::{Error, ErrorKind};

use super::error::ApiError;

/// Maps errors of models and agents to API errors, with or without their text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ErrorMapper {
    pub(super) is_verbose: bool,
}

impl ErrorMapper {
    /// Maps an error of a model.
    pub(super) fn map_model_error(self, error: &ModelError) -> ApiError {
        let mapped = error.downcast_ref::<Error>().map_or_else(ApiError::internal, map_upstream_error);
        self.with_details(mapped, error)
    }

    /// Maps the error of a run that ended without an answer.
    pub(super) fn map_run_error(self, error: &RunError) -> ApiError {
        let mapped = match error.kind() {
            RunErrorKind::Model(error) => return self.map_model_error(error),
            RunErrorKind::Stopped(reason) => map_stop_reason(reason),
            RunErrorKind::Conflict | RunErrorKind::RunningElsewhere => ApiError::run_conflict(),
            RunErrorKind::ConversationWaits { .. } => ApiError::new(
                StatusCode::CONFLICT,
                "an earlier question of this conversation waits for an approval or a result",
            )
            .with_code("conversation_waits"),
            RunErrorKind::Budget { left: 1.., .. } => {
                let message = "the request is too long for what is left of its budget; send a shorter one, or this one later";
                ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("insufficient_quota")
            }
            RunErrorKind::MaxCost { .. } | RunErrorKind::Budget { .. } => {
                let message = "the budget for this request is used up; send it again later";
                ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("insufficient_quota")
            }
            RunErrorKind::BudgetInUse { .. } => {
                let message = "another request uses what is left of the budget; send this one again later";
                ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("rate_limit_exceeded")
            }
            RunErrorKind::Tools { error, .. } if is_duplicate_tool(&**error) => ApiError::invalid(
                "tools",
                "a tool of the request has the same name as a tool of the agent; rename the tool of the request",
            ),
            _ => ApiError::internal(),
        };
        self.with_details(mapped, error)
    }

    /// Maps an error of a run store.
    pub(super) fn map_internal_error(self, error: &dyn StdError) -> ApiError {
        self.with_details(ApiError::internal(), error)
    }

    /// Replaces the message by the text of the error and its sources if the server is verbose.
    fn with_details(self, mapped: ApiError, error: &dyn StdError) -> ApiError {
        if !self.is_verbose {
            return mapped;
        }
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            message.extend([": ", &error.to_string()]);
            source = error.source();
        }
        mapped.with_message(message)
    }
}

fn map_stop_reason(reason: &StopReason) -> ApiError {
    let reason = match reason {
        StopReason::MaxTurns(_) => "it reached the limit of turns",
        StopReason::MaxCalls(_) => "it reached the limit of tool calls",
        StopReason::MaxTotalTokens(_) => "it reached the limit of tokens",
        StopReason::MaxTime(_) => "it reached the time limit",
        StopReason::MaxTotalOutputChars(_) => "its tool calls returned too much output",
        StopReason::RepeatedCall(_) => "it repeated the same tool call too often",
        StopReason::Truncated(_) => "its reply was truncated in the middle of its tool calls",
        _ => return ApiError::internal(),
    };
    let message = format!("the agent stopped: {reason}");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).with_code("agent_limit")
}

fn is_duplicate_tool(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
    error.downcast_ref().map(ToolSetError::kind) == Some(ToolSetErrorKind::DuplicateTool)
}

/// Maps an error of the endpoint behind a model.
fn map_upstream_error(error: &Error) -> ApiError {
    let mapped = match error.kind() {
        ErrorKind::ContextLength => {
            ApiError::new(StatusCode::BAD_REQUEST, "the conversation exceeds the context length of the model")
                .with_code("context_length_exceeded")
        }
        ErrorKind::ContentFilter => ApiError::new(
            StatusCode::BAD_REQUEST,
            "the content filter of the model's provider refused the request",
        )
        .with_code("content_filter"),
        ErrorKind::Quota => {
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, "the quota of this model is exhausted")
                .with_kind("insufficient_quota")
                .with_code("insufficient_quota")
        }
        ErrorKind::RateLimit => ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "the rate limit of the model is exceeded; try again later",
        )
        .with_code("rate_limit_exceeded"),
        ErrorKind::Overloaded => {
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the model is overloaded; try again later")
        }
        _ if error.is_timeout() => {
            ApiError::new(StatusCode::GATEWAY_TIMEOUT, "the model did not respond in time")
        }
        ErrorKind::InvalidRequest if !matches!(error.status(), Some(404 | 405)) => {
            ApiError::new(StatusCode::BAD_REQUEST, "the endpoint of the model refused the request")
        }
        ErrorKind::Config => ApiError::internal(),
        // A wrong key or model name of the upstream endpoint is not the caller's mistake.
        _ => ApiError::new(StatusCode::BAD_GATEWAY, "the request to the model failed"),
    };
    mapped.with_retry_after(error.retry_after())
}
