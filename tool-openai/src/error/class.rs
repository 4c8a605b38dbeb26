//! What kind of error the API tells of.

use super::ApiError;

/// What kind of error the API tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    RateLimit,
    Quota,
    Overloaded,
    ContextLength,
    ContentFilter,
    /// The model wrote a call that the server could not read.
    ToolGeneration,
    Authentication,
    InvalidRequest,
    Server,
}

/// What codes, types and messages stand for, the narrowest first. A code or type is compared whole, a message is searched.
const CODES: [(&str, Class); 22] = [
    ("insufficient_quota", Class::Quota),
    ("billing_hard_limit_reached", Class::Quota),
    ("billing_not_active", Class::Quota),
    ("context_length_exceeded", Class::ContextLength),
    ("exceed_context_size_error", Class::ContextLength),
    ("model_max_prompt_tokens_exceeded", Class::ContextLength),
    ("content_filter", Class::ContentFilter),
    ("content_policy_violation", Class::ContentFilter),
    ("tool_use_failed", Class::ToolGeneration),
    ("overloaded_error", Class::Overloaded),
    ("rate_limit_exceeded", Class::RateLimit),
    ("rate_limit_error", Class::RateLimit),
    ("RESOURCE_EXHAUSTED", Class::RateLimit),
    ("invalid_api_key", Class::Authentication),
    ("authentication_error", Class::Authentication),
    ("permission_error", Class::Authentication),
    ("server_error", Class::Server),
    ("internal_error", Class::Server),
    ("api_error", Class::Server),
    ("UNAVAILABLE", Class::Overloaded),
    ("invalid_request_error", Class::InvalidRequest),
    ("BadRequestError", Class::InvalidRequest),
];

const MESSAGES: [(&str, Class); 7] = [
    ("maximum context length", Class::ContextLength),
    ("context length exceeded", Class::ContextLength),
    ("context window", Class::ContextLength),
    ("prompt is too long", Class::ContextLength),
    ("exceeds the available context size", Class::ContextLength),
    ("insufficient balance", Class::Quota),
    ("exceeded your current quota", Class::Quota),
];

impl Class {
    /// What the code, type, message and status of an error tell, in this order.
    pub(super) fn of(error: &ApiError) -> Self {
        let words = [&error.code, &error.kind, &error.status_word].map(Option::as_deref);
        let is_narrow = |class: Self| !matches!(class, Self::InvalidRequest | Self::Server);
        let named =
            |word: Option<&str>| CODES.iter().find(|(code, _)| Some(*code) == word).map(|(_, class)| *class);
        let narrow = words.iter().find_map(|word| named(*word).filter(|class| is_narrow(*class)));
        let message = error.message.to_lowercase();
        let in_message = || MESSAGES.iter().find(|(part, _)| message.contains(part)).map(|(_, class)| *class);
        // Under 200 the status may stand in the code.
        let code_status = || error.code.as_deref()?.parse::<u16>().ok();
        let status = error.status.map(|status| status.as_u16()).filter(|status| *status >= 400);
        narrow
            .or_else(in_message)
            .or_else(|| status.or_else(code_status).map(Self::of_status))
            .or_else(|| words.iter().find_map(|word| named(*word)))
            .unwrap_or(Self::Server)
    }

    fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Authentication,
            402 => Self::Quota,
            429 => Self::RateLimit,
            503 | 529 => Self::Overloaded,
            408 | 409 | 500.. => Self::Server,
            _ => Self::InvalidRequest,
        }
    }

    /// Sending the same again may help.
    pub(super) fn is_passing(self) -> bool {
        matches!(self, Self::RateLimit | Self::Overloaded | Self::Server)
    }
}
