//! Errors as the API reports them.

use reqwest::StatusCode;
use tool_http::client::{ErrorBody, RetryHeaders};

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
    /// Parses the error in a body. Few errors have a code, in their details. Returns `None` if there is no error.
    pub(crate) fn parse(body: &str) -> Option<Self> {
        let error = ErrorBody::parse(body)?;
        Some(Self {
            code: error.text("/details/error_code").or(error.code.clone()),
            request_id: error.outer_text("/request_id"),
            message: error.message,
            error_type: error.error_type,
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
