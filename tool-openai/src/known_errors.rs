//! What the errors of OpenAI, and of servers with its APIs, are called.

use tool_http::client::{ErrorKind, ErrorKinds};

/// The most specific names come first.
pub(crate) const KNOWN_ERRORS: ErrorKinds = ErrorKinds {
    names: &[
        ("insufficient_quota", ErrorKind::Quota),
        ("billing_hard_limit_reached", ErrorKind::Quota),
        ("billing_not_active", ErrorKind::Quota),
        ("billing_error", ErrorKind::Quota),
        // This one and the next have the type of a rate limit, and only the second one passes.
        ("enforced_spend_limit_reached", ErrorKind::Quota),
        ("ramp_limit_exceeded", ErrorKind::RateLimit),
        ("context_length_exceeded", ErrorKind::ContextLength),
        ("exceed_context_size_error", ErrorKind::ContextLength),
        ("model_max_prompt_tokens_exceeded", ErrorKind::ContextLength),
        ("content_filter", ErrorKind::ContentFilter),
        ("content_policy_violation", ErrorKind::ContentFilter),
        ("tool_use_failed", ErrorKind::MalformedToolCall),
        ("overloaded_error", ErrorKind::Overloaded),
        ("UNAVAILABLE", ErrorKind::Overloaded),
        ("rate_limit_exceeded", ErrorKind::RateLimit),
        ("rate_limit_error", ErrorKind::RateLimit),
        ("RESOURCE_EXHAUSTED", ErrorKind::RateLimit),
        ("invalid_api_key", ErrorKind::Authentication),
        ("authentication_error", ErrorKind::Authentication),
        ("permission_error", ErrorKind::Authentication),
        ("server_error", ErrorKind::Server),
        ("internal_error", ErrorKind::Server),
        ("api_error", ErrorKind::Server),
        ("timeout_error", ErrorKind::Server),
        ("invalid_request_error", ErrorKind::InvalidRequest),
        ("not_found_error", ErrorKind::InvalidRequest),
        ("request_too_large", ErrorKind::ContextLength),
        ("BadRequestError", ErrorKind::InvalidRequest),
        ("model_not_found", ErrorKind::InvalidRequest),
    ],
    messages: &[
        ("maximum context length", ErrorKind::ContextLength),
        ("context length exceeded", ErrorKind::ContextLength),
        ("context window", ErrorKind::ContextLength),
        ("prompt is too long", ErrorKind::ContextLength),
        ("exceed context limit", ErrorKind::ContextLength),
        ("exceeds the available context size", ErrorKind::ContextLength),
        ("insufficient balance", ErrorKind::Quota),
        ("exceeded your current quota", ErrorKind::Quota),
        ("credit balance is too low", ErrorKind::Quota),
    ],
    // Bedrock answers with 403.
    expired_tokens: &["token has expired", "security token included in the request is expired"],
};
