//! The kinds of errors, and how the API's errors are classified.

use super::ApiError;

/// The kind of an [`Error`](crate::Error).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The endpoint's configuration is invalid.
    Config,
    /// The request is invalid: the API rejected it, or it could not even be sent.
    InvalidRequest,
    /// Connecting to the endpoint failed.
    Connect,
    /// The endpoint took too long to respond.
    Timeout,
    /// The connection failed in another way.
    Transport,
    /// The key is missing, wrong or not authorized.
    Authentication,
    /// Too many requests or tokens in a period of time: see [`retry_after`](crate::Error::retry_after).
    RateLimit,
    /// The account has no credit or quota left. Waiting does not help.
    Quota,
    /// The provider is overloaded.
    Overloaded,
    /// The conversation is longer than the model's context.
    ContextLength,
    /// A content filter of the provider rejected the request.
    ContentFilter,
    /// The model wrote a tool call that the server could not parse: see
    /// [`failed_generation`](crate::Error::failed_generation).
    MalformedToolCall,
    /// The server failed.
    Server,
    /// The response does not follow the API, or is a redirect.
    InvalidResponse,
    /// The stream ended before the response was complete: see [`partial`](crate::Error::partial).
    Incomplete,
}

/// The kinds for codes and types, the most specific first. They are compared as a whole.
const CODES: [(&str, ErrorKind); 22] = [
    ("insufficient_quota", ErrorKind::Quota),
    ("billing_hard_limit_reached", ErrorKind::Quota),
    ("billing_not_active", ErrorKind::Quota),
    ("context_length_exceeded", ErrorKind::ContextLength),
    ("exceed_context_size_error", ErrorKind::ContextLength),
    ("model_max_prompt_tokens_exceeded", ErrorKind::ContextLength),
    ("content_filter", ErrorKind::ContentFilter),
    ("content_policy_violation", ErrorKind::ContentFilter),
    ("tool_use_failed", ErrorKind::MalformedToolCall),
    ("overloaded_error", ErrorKind::Overloaded),
    ("rate_limit_exceeded", ErrorKind::RateLimit),
    ("rate_limit_error", ErrorKind::RateLimit),
    ("RESOURCE_EXHAUSTED", ErrorKind::RateLimit),
    ("invalid_api_key", ErrorKind::Authentication),
    ("authentication_error", ErrorKind::Authentication),
    ("permission_error", ErrorKind::Authentication),
    ("server_error", ErrorKind::Server),
    ("internal_error", ErrorKind::Server),
    ("api_error", ErrorKind::Server),
    ("UNAVAILABLE", ErrorKind::Overloaded),
    ("invalid_request_error", ErrorKind::InvalidRequest),
    ("BadRequestError", ErrorKind::InvalidRequest),
];

/// The kinds for parts of messages.
const MESSAGES: [(&str, ErrorKind); 7] = [
    ("maximum context length", ErrorKind::ContextLength),
    ("context length exceeded", ErrorKind::ContextLength),
    ("context window", ErrorKind::ContextLength),
    ("prompt is too long", ErrorKind::ContextLength),
    ("exceeds the available context size", ErrorKind::ContextLength),
    ("insufficient balance", ErrorKind::Quota),
    ("exceeded your current quota", ErrorKind::Quota),
];

impl ErrorKind {
    /// Classifies an error of the API by a specific code or type, its message, its status, or a general code or type, in
    /// this order.
    pub(super) fn classify(error: &ApiError) -> Self {
        let names = [&error.code, &error.error_type].map(Option::as_deref);
        let is_specific = |kind: Self| !matches!(kind, Self::InvalidRequest | Self::Server);
        let by_name =
            |name: Option<&str>| CODES.iter().find(|(code, _)| Some(*code) == name).map(|(_, kind)| *kind);
        let specific = names.iter().find_map(|name| by_name(*name).filter(|kind| is_specific(*kind)));
        let message = error.message.to_lowercase();
        let by_message = || MESSAGES.iter().find(|(part, _)| message.contains(part)).map(|(_, kind)| *kind);
        // Errors with status 200 may have the status in the code.
        let code_status = || error.code.as_deref()?.parse::<u16>().ok();
        let status = error.status.map(|status| status.as_u16()).filter(|status| *status >= 400);
        specific
            .or_else(by_message)
            .or_else(|| status.or_else(code_status).map(Self::from_status))
            .or_else(|| names.iter().find_map(|name| by_name(*name)))
            .unwrap_or(Self::Server)
    }

    fn from_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Authentication,
            402 => Self::Quota,
            429 => Self::RateLimit,
            503 | 529 => Self::Overloaded,
            408 | 409 | 500.. => Self::Server,
            _ => Self::InvalidRequest,
        }
    }

    /// Returns `true` if the same request may succeed later.
    pub(super) fn is_transient(self) -> bool {
        matches!(self, Self::RateLimit | Self::Overloaded | Self::Server)
    }
}
