//! Errors in the form of the API: <https://platform.openai.com/docs/guides/error-codes>.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tool_http::server::{PermitLimit, Rejection, json_response};

/// An error that is sent to the caller.
#[derive(Clone, Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    message: String,
    kind: Option<&'static str>,
    param: Option<String>,
    code: Option<&'static str>,
    retry_after: Option<Duration>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), kind: None, param: None, code: None, retry_after: None }
    }

    /// An invalid field of the request.
    pub(super) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message).with_param(param)
    }

    pub(super) fn unknown_model(name: &str) -> Self {
        let message = format!("unknown model `{name}`; `GET /v1/models` lists the available models");
        Self::new(StatusCode::NOT_FOUND, message).with_param("model").with_code("model_not_found")
    }

    fn invalid_key() -> Self {
        let message = "missing or invalid API key; send it as `Authorization: Bearer …`";
        Self::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key")
    }

    fn overloaded() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests in flight; try again later")
            .with_code("server_overloaded")
            .with_retry_after(Duration::from_secs(1))
    }

    /// A request beyond what its key, or all keys together, may have in flight.
    pub(super) fn too_many_requests(limit: PermitLimit) -> Self {
        let PermitLimit::Sender(max) = limit else { return Self::overloaded() };
        let message = format!("this key has {max} requests in flight, which is its limit; try again later");
        Self::new(StatusCode::TOO_MANY_REQUESTS, message)
            .with_code("rate_limit_exceeded")
            .with_retry_after(Duration::from_secs(1))
    }

    /// A repeated request whose first attempt was cancelled at a point where it cannot continue.
    pub(super) fn interrupted() -> Self {
        let message = "an earlier request with these results was cancelled while a tool of the agent was executed that must not \
                       be executed twice; its outcome is unknown; add a user message to continue";
        Self::new(StatusCode::CONFLICT, message).with_code("outcome_unknown")
    }

    /// A run that another process or person drives or has ended meanwhile.
    pub(super) fn run_conflict() -> Self {
        let message = "the run was continued or removed elsewhere while this request was answered; send the request again";
        Self::new(StatusCode::CONFLICT, message).with_code("run_conflict")
    }

    /// A run that was cancelled or has expired after its calls had effects, which a new run would have again.
    pub(super) fn run_ended() -> Self {
        let message = "the run of these results was cancelled or has expired; what its tools have done remains; add a user message to \
                       continue the conversation";
        Self::new(StatusCode::CONFLICT, message).with_code("run_ended")
    }

    /// An error whose cause is not disclosed to the caller.
    pub(super) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal server error")
    }

    /// Sets the `type`, where it does not follow from the status.
    pub(super) fn with_kind(self, kind: &'static str) -> Self {
        Self { kind: Some(kind), ..self }
    }

    pub(super) fn with_param(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    pub(super) fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(super) fn with_retry_after(self, after: impl Into<Option<Duration>>) -> Self {
        Self { retry_after: after.into(), ..self }
    }

    /// Replaces the message.
    pub(super) fn with_message(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Returns one of the codes that the Responses API has for failed responses.
    pub(super) fn response_code(&self) -> &'static str {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_exceeded",
            status if status.is_client_error() => "invalid_prompt",
            _ => "server_error",
        }
    }

    pub(super) fn body(&self) -> Value {
        let kind = self.kind.unwrap_or(match self.status {
            status if status.is_server_error() => "server_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            _ => "invalid_request_error",
        });
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        match rejection {
            Rejection::Key { .. } => Self::invalid_key(),
            Rejection::Overloaded => Self::overloaded(),
            rejection => Self::new(rejection.status(), rejection.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, self.body());
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(after) = self.retry_after {
            // The header takes whole seconds; rounded up, so that no one retries too early.
            let seconds = after.as_secs().saturating_add(u64::from(after.subsec_nanos() > 0));
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_is_sent_in_whole_seconds_and_never_too_short() {
        for (after, expected) in [
            (Duration::from_secs(7), "7"),
            (Duration::from_millis(7_001), "8"),
            (Duration::MAX, "18446744073709551615"),
        ] {
            let response = ApiError::internal().with_retry_after(after).into_response();
            assert_eq!(response.headers()[header::RETRY_AFTER], expected);
        }
    }
}
