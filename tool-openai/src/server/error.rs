//! Errors in the API's shape: <https://platform.openai.com/docs/guides/error-codes>.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// What the caller is told.
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

    /// The request is wrong, at this place of it.
    pub(super) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message).with_param(param)
    }

    pub(super) fn unknown_model(name: &str) -> Self {
        let message = format!("there is no model `{name}` here; `GET /v1/models` lists those that are");
        Self::new(StatusCode::NOT_FOUND, message).with_param("model").with_code("model_not_found")
    }

    pub(super) fn wrong_key() -> Self {
        let message = "the key is missing or wrong; send it as `Authorization: Bearer …`";
        Self::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key")
    }

    pub(super) fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "the request did not come to its end in time")
    }

    /// Something went wrong here, of which the caller is told no more.
    pub(super) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the server could not answer this request")
    }

    /// The API's `type`, where the status does not say it.
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

    /// The same error in other words.
    pub(super) fn with_message(self, message: impl Into<String>) -> Self {
        Self { message: message.into(), ..self }
    }

    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// One of the few codes that a failed response of the Responses API has.
    pub(super) fn code_of_response(&self) -> &'static str {
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

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = super::http::json(self.status, &self.body());
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(after) = self.retry_after {
            // A whole number of seconds, so that nobody comes back too early.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
