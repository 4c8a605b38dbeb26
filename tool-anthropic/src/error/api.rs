//! Errors as the API reports them.

use reqwest::StatusCode;
use serde_json::Value;
use tool_http::client::RetryHeaders;

/// An error that the API reports.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: Option<StatusCode>,
    pub(crate) message: String,
    pub(crate) error_type: Option<String>,
    pub(crate) code: Option<String>,
    pub(crate) request_id: Option<String>,
    pub(crate) retry: RetryHeaders,
    /// The request was sent without a key.
    pub(crate) lacks_key: bool,
}

impl ApiError {
    /// Parses the error in a body: `{error: {type, message, details: {error_code}}, request_id}`, and what compatible servers send
    /// in its place, such as `{error: "…"}`, `{message}` and `{detail}`. Returns `None` if there is none.
    pub(crate) fn parse(body: &str) -> Option<Self> {
        let body: Value = serde_json::from_str(body).ok()?;
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(&body);
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let message = [Some(error), error.get("message"), error.get("detail")];
        let message = message.into_iter().flatten().find_map(|message| message.as_str())?.to_owned();
        let code = error.pointer("/details/error_code").or_else(|| error.get("code"));
        Some(Self {
            message,
            error_type: error.get("type").and_then(text).filter(|kind| kind != "error"),
            code: code.and_then(text),
            request_id: body.get("request_id").and_then(text),
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_forms_of_servers() {
        // The body, and the message, type and code of the error.
        type Row = (&'static str, Option<(&'static str, Option<&'static str>, Option<&'static str>)>);
        let table: [Row; 6] = [
            (
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"m","details":{"error_code":"c"}},"request_id":"r"}"#,
                Some(("m", Some("rate_limit_error"), Some("c"))),
            ),
            (r#"{"error":{"type":"1000","message":"m"}}"#, Some(("m", Some("1000"), None))),
            (r#"{"error":{"code":404,"message":"m"}}"#, Some(("m", None, Some("404")))),
            (r#"{"error":"m"}"#, Some(("m", None, None))),
            (r#"{"detail":"m"}"#, Some(("m", None, None))),
            (r#"{"type":"message","content":[]}"#, None),
        ];
        for (body, expected) in table {
            let error = ApiError::parse(body);
            let found = error
                .as_ref()
                .map(|error| (&*error.message, error.error_type.as_deref(), error.code.as_deref()));
            assert_eq!(found, expected, "{body}");
        }
    }
}
