//! What the errors of the Messages API are called.

use tool_http::client::{ErrorKind, ErrorKinds};

/// The most specific names come first.
pub(crate) const KNOWN_ERRORS: ErrorKinds = ErrorKinds {
    names: &[
        ("billing_error", ErrorKind::Quota),
        // This one and the next have the type of a rate limit, and only the second one passes.
        ("enforced_spend_limit_reached", ErrorKind::Quota),
        ("ramp_limit_exceeded", ErrorKind::RateLimit),
        ("overloaded_error", ErrorKind::Overloaded),
        ("rate_limit_error", ErrorKind::RateLimit),
        ("authentication_error", ErrorKind::Authentication),
        ("permission_error", ErrorKind::Authentication),
        ("api_error", ErrorKind::Server),
        ("timeout_error", ErrorKind::Server),
        ("invalid_request_error", ErrorKind::InvalidRequest),
        ("not_found_error", ErrorKind::InvalidRequest),
        ("request_too_large", ErrorKind::ContextLength),
    ],
    messages: &[
        ("context window", ErrorKind::ContextLength),
        ("prompt is too long", ErrorKind::ContextLength),
        ("exceed context limit", ErrorKind::ContextLength),
        ("credit balance is too low", ErrorKind::Quota),
    ],
    // Bedrock answers with 403.
    expired_tokens: &["token has expired", "security token included in the request is expired"],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_errors_of_the_api() {
        let names = [
            ("enforced_spend_limit_reached", ErrorKind::Quota),
            ("ramp_limit_exceeded", ErrorKind::RateLimit),
            ("billing_error", ErrorKind::Quota),
            ("overloaded_error", ErrorKind::Overloaded),
            ("not_found_error", ErrorKind::InvalidRequest),
            ("request_too_large", ErrorKind::ContextLength),
        ];
        for (name, kind) in names {
            assert_eq!(KNOWN_ERRORS.by_name(name), Some(kind), "{name}");
        }
        let too_long = KNOWN_ERRORS.by_message("Prompt is too long: 200001 tokens > 200000 maximum");
        assert_eq!(too_long, Some(ErrorKind::ContextLength));
        assert_eq!(KNOWN_ERRORS.by_message("tools: bad"), None);
    }
}
