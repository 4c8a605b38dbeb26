//! The kinds of the API's errors.

use tool_http::client::ErrorKind;

use super::api::ApiError;

/// The kinds for codes and types, the most specific first: <https://platform.claude.com/docs/en/api/errors>.
const NAMES: [(&str, ErrorKind); 8] = [
    // These two have the type of a rate limit, and only the second one passes.
    ("enforced_spend_limit_reached", ErrorKind::Quota),
    ("ramp_limit_exceeded", ErrorKind::RateLimit),
    ("billing_error", ErrorKind::Quota),
    ("authentication_error", ErrorKind::Authentication),
    ("permission_error", ErrorKind::Authentication),
    ("rate_limit_error", ErrorKind::RateLimit),
    ("overloaded_error", ErrorKind::Overloaded),
    ("timeout_error", ErrorKind::Server),
];

/// The kinds for parts of messages, whose type is only `invalid_request_error`.
const MESSAGES: [(&str, ErrorKind); 5] = [
    ("prompt is too long", ErrorKind::ContextLength),
    ("exceed context limit", ErrorKind::ContextLength),
    ("context window", ErrorKind::ContextLength),
    ("exceeds the available context size", ErrorKind::ContextLength),
    ("credit balance is too low", ErrorKind::Quota),
];

/// Classifies an error of the API by its code, its type, its message or its status, in this order.
pub(super) fn classify(error: &ApiError) -> ErrorKind {
    let by_name = |name: &Option<String>| NAMES.iter().find(|(known, _)| Some(*known) == name.as_deref());
    let message = error.message.to_lowercase();
    let by_message = || MESSAGES.iter().find(|(part, _)| message.contains(part));
    let by_status = || error.status.map(|status| status.as_u16()).filter(|status| *status >= 400);
    by_name(&error.code)
        .or_else(|| by_name(&error.error_type))
        .or_else(by_message)
        .map(|(_, kind)| *kind)
        .or_else(|| by_status().map(ErrorKind::from_status))
        .unwrap_or(match error.error_type.as_deref() {
            Some("invalid_request_error" | "not_found_error" | "request_too_large") => {
                ErrorKind::InvalidRequest
            }
            _ => ErrorKind::Server,
        })
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;

    use super::*;

    #[test]
    fn classifies_errors() {
        let error = |status: u16, kind: &str, code: Option<&str>, message: &str| ApiError {
            status: StatusCode::from_u16(status).ok(),
            message: message.into(),
            error_type: Some(kind.into()).filter(|kind: &String| !kind.is_empty()),
            code: code.map(Into::into),
            ..ApiError::default()
        };
        let table = [
            (error(429, "rate_limit_error", None, ""), ErrorKind::RateLimit),
            (error(429, "rate_limit_error", Some("enforced_spend_limit_reached"), ""), ErrorKind::Quota),
            (error(429, "rate_limit_error", Some("ramp_limit_exceeded"), ""), ErrorKind::RateLimit),
            (error(402, "billing_error", None, ""), ErrorKind::Quota),
            (error(529, "overloaded_error", None, ""), ErrorKind::Overloaded),
            (
                error(400, "invalid_request_error", None, "prompt is too long: 3 > 2"),
                ErrorKind::ContextLength,
            ),
            (error(400, "invalid_request_error", None, "tools: bad"), ErrorKind::InvalidRequest),
            (error(413, "request_too_large", None, ""), ErrorKind::InvalidRequest),
            (error(409, "conflict_error", None, ""), ErrorKind::Server),
            (error(500, "api_error", None, ""), ErrorKind::Server),
            (error(504, "timeout_error", None, ""), ErrorKind::Server),
            (error(401, "1000", None, ""), ErrorKind::Authentication),
            (error(0, "overloaded_error", None, ""), ErrorKind::Overloaded),
            (error(0, "api_error", None, ""), ErrorKind::Server),
            (error(0, "not_found_error", None, ""), ErrorKind::InvalidRequest),
        ];
        for (error, kind) in table {
            assert_eq!(classify(&error), kind, "{error:?}");
        }
    }
}
