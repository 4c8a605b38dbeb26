//! What a caller is told of a model or an agent that gave no answer.
//!
//! Only the kind of what went wrong, so that the caller knows whether to try again: the words of an error may tell of what
//! stands behind this server, and are for its log.

use std::error::Error as StdError;

use axum::http::StatusCode;
use tool_core::{ModelError, RunError, RunErrorKind, StopReason, ToolSetError};

use super::error::ApiError;

/// How failures are told: with their own words, or with their kind alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Telling {
    pub(super) is_verbose: bool,
}

impl Telling {
    /// A model that could not be asked.
    pub(super) fn model(self, error: &ModelError) -> ApiError {
        let told = error.downcast_ref::<crate::Error>().map_or_else(ApiError::internal, of_endpoint);
        self.in_words(told, error)
    }

    /// An agent's run that ended without an answer.
    pub(super) fn run(self, error: &RunError) -> ApiError {
        let told = match error.kind() {
            RunErrorKind::Model(error) => return self.model(error),
            RunErrorKind::Stopped(reason) => stopped(reason),
            RunErrorKind::Tools { error, .. } if is_duplicate(&**error) => ApiError::invalid(
                "tools",
                "one of these tools has the name of a tool that the agent has itself; give it another name",
            ),
            _ => ApiError::internal(),
        };
        self.in_words(told, error)
    }

    fn in_words(self, told: ApiError, error: &dyn StdError) -> ApiError {
        if !self.is_verbose {
            return told;
        }
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            message.extend([": ", &error.to_string()]);
            source = error.source();
        }
        told.with_message(message)
    }
}

fn stopped(reason: &StopReason) -> ApiError {
    let what = match reason {
        StopReason::MaxTurns(_) => "it took all its turns",
        StopReason::MaxCalls(_) => "it would have made too many calls",
        StopReason::MaxTotalTokens(_) => "it used all its tokens",
        StopReason::MaxTime(_) => "it took too long",
        StopReason::MaxOutputChars(_) => "its calls gave back too much",
        StopReason::RepeatedCall(_) => "it repeated one call again and again",
        StopReason::Truncated(_) => "its reply was cut short in the middle of its calls",
        _ => return ApiError::internal(),
    };
    let message = format!("the agent gave up: {what}");
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message).with_code("agent_limit")
}

fn is_duplicate(error: &(dyn StdError + Send + Sync + 'static)) -> bool {
    error.downcast_ref::<ToolSetError>().is_some_and(ToolSetError::is_duplicate)
}

/// What an error of the endpoint behind a model means to who asks here.
fn of_endpoint(error: &crate::Error) -> ApiError {
    let told = if error.is_context_length() {
        ApiError::new(StatusCode::BAD_REQUEST, "the conversation is longer than the model can read")
            .with_code("context_length_exceeded")
    } else if error.is_content_filter() {
        ApiError::new(StatusCode::BAD_REQUEST, "a filter of the model's provider refused the request")
            .with_code("content_filter")
    } else if error.is_quota() {
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "the quota behind this model is used up")
            .with_kind("insufficient_quota")
            .with_code("insufficient_quota")
    } else if error.is_rate_limited() {
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "the model is asked too often; try again later")
            .with_code("rate_limit_exceeded")
    } else if error.is_overloaded() {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the model is overloaded; try again later")
    } else if error.is_timeout() {
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, "the model took too long")
    } else if error.is_invalid_request() && !matches!(error.status(), Some(404 | 405)) {
        ApiError::new(StatusCode::BAD_REQUEST, "the model's endpoint refused the request")
    } else if error.is_config() {
        ApiError::internal()
    } else {
        // Whoever asks here is not at fault for a key or a name that is wrong there.
        ApiError::new(StatusCode::BAD_GATEWAY, "the model could not be asked")
    };
    told.with_retry_after(error.retry_after())
}
