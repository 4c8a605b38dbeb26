//! Maps errors of models and agents to the errors that callers receive.
//!
//! A caller learns the kind of an error, and so whether to try again. The text of an error may describe internal systems and is
//! sent only if the server is verbose.

use std::error::Error as StdError;

use axum::http::StatusCode;
use tool_core::{ModelError, RunError, RunErrorKind, ToolSetError};

use super::error::ApiError;

/// Maps errors of models and agents to API errors, with or without their text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ErrorMapper {
    pub(super) is_verbose: bool,
}

impl ErrorMapper {
    /// Maps an error of a model.
    pub(super) fn map_model_error(self, error: &ModelError) -> ApiError {
        let mapped = error.downcast_ref::<crate::Error>().map_or_else(ApiError::internal, map_upstream_error);
        self.with_details(mapped, error)
    }

    /// Maps the error of a run that ended without an answer.
    pub(super) fn map_run_error(self, error: &RunError) -> ApiError {
        if let Some(error) = error.model_error() {
            return self.map_model_error(error);
        }
        let limit = |reason: &str| {
            let message = format!("the agent stopped: {reason}");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).with_code("agent_limit")
        };
        let mapped = match error.kind() {
            RunErrorKind::TurnLimit => limit("it reached the limit of turns"),
            RunErrorKind::CallLimit => limit("it reached the limit of tool calls"),
            RunErrorKind::TokenLimit => limit("it reached the limit of tokens"),
            RunErrorKind::TimeLimit => limit("it reached the time limit"),
            RunErrorKind::OutputLimit => limit("its tool calls returned too much output"),
            RunErrorKind::RepeatLimit => limit("it repeated the same tool call too often"),
            RunErrorKind::CutShort => limit("its reply was truncated in the middle of its tool calls"),
            RunErrorKind::Tools if is_duplicate_tool(error) => ApiError::invalid(
                "tools",
                "a tool of the request has the same name as a tool of the agent; rename the tool of the request",
            ),
            _ => ApiError::internal(),
        };
        self.with_details(mapped, error)
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

fn is_duplicate_tool(error: &RunError) -> bool {
    let error = error.tools_error().and_then(|error| error.downcast_ref::<ToolSetError>());
    error.is_some_and(ToolSetError::is_duplicate)
}

/// Maps an error of the OpenAI-compatible endpoint behind a model.
fn map_upstream_error(error: &crate::Error) -> ApiError {
    let mapped = if error.is_context_length() {
        ApiError::new(StatusCode::BAD_REQUEST, "the conversation exceeds the context length of the model")
            .with_code("context_length_exceeded")
    } else if error.is_content_filter() {
        ApiError::new(
            StatusCode::BAD_REQUEST,
            "the content filter of the model's provider refused the request",
        )
        .with_code("content_filter")
    } else if error.is_quota() {
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "the quota of this model is exhausted")
            .with_kind("insufficient_quota")
            .with_code("insufficient_quota")
    } else if error.is_rate_limited() {
        ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "the rate limit of the model is exceeded; try again later",
        )
        .with_code("rate_limit_exceeded")
    } else if error.is_overloaded() {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the model is overloaded; try again later")
    } else if error.is_timeout() {
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, "the model did not respond in time")
    } else if error.is_invalid_request() && !matches!(error.status(), Some(404 | 405)) {
        ApiError::new(StatusCode::BAD_REQUEST, "the endpoint of the model refused the request")
    } else if error.is_config() {
        ApiError::internal()
    } else {
        // A wrong key or model name of the upstream endpoint is not the caller's mistake.
        ApiError::new(StatusCode::BAD_GATEWAY, "the request to the model failed")
    };
    mapped.with_retry_after(error.retry_after())
}
