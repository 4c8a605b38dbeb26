//! Errors in the API's shape: <https://platform.openai.com/docs/guides/error-codes>.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// What the caller is told.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    message: String,
    param: Option<String>,
    code: Option<&'static str>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// The request is wrong, at this place of it.
    pub(super) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new(StatusCode::BAD_REQUEST, message) }
    }

    pub(super) fn unknown_model(name: &str) -> Self {
        let message = format!("there is no model `{name}` here; `GET /v1/models` lists those that are");
        let code = Some("model_not_found");
        Self { param: Some("model".into()), code, ..Self::new(StatusCode::NOT_FOUND, message) }
    }

    /// The request is right, but no answer came of it.
    pub(super) fn server(error: &dyn std::error::Error) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            message.extend([": ", &error.to_string()]);
            source = error.source();
        }
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    }

    pub(super) fn body(&self) -> Value {
        let kind = if self.status.is_server_error() { "server_error" } else { "invalid_request_error" };
        json!({ "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code } })
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        super::json_response(self.status, &self.body())
    }
}
