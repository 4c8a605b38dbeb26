//! The kinds of errors of model endpoints.

use tool_core::model::ModelErrorKind;

/// The kind of an error of a model's endpoint, the same for all providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The configuration of the endpoint is invalid.
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
    /// Too many requests or tokens in a period of time: see the error's `retry_after`.
    RateLimit,
    /// The account has no credit or quota left, or has reached its spend limit. Waiting does not help.
    Quota,
    /// The provider is overloaded.
    Overloaded,
    /// The conversation is longer than the model's context, or the request than the endpoint accepts.
    ContextLength,
    /// A content filter of the provider rejected the request.
    ContentFilter,
    /// The model wrote a tool call that the server could not parse.
    MalformedToolCall,
    /// The server failed.
    Server,
    /// The response does not follow the API, or is a redirect.
    InvalidResponse,
    /// The stream ended before the response was complete: see the error's `partial`.
    Incomplete,
}

impl ErrorKind {
    /// Returns the kind of an error response with this status and nothing else that says more.
    #[must_use]
    pub fn from_status(status: u16) -> Self {
        match status {
            401 | 403 => Self::Authentication,
            402 => Self::Quota,
            413 => Self::ContextLength,
            429 => Self::RateLimit,
            503 | 529 => Self::Overloaded,
            408 | 409 | 500.. => Self::Server,
            _ => Self::InvalidRequest,
        }
    }

    /// Returns `true` if a response with this status reports that the request was rejected and costs nothing. Behind other statuses of
    /// servers that fail, a model may have answered.
    #[must_use]
    pub fn is_rejection(status: u16) -> bool {
        matches!(status, 400..=407 | 409..=499 | 503 | 529)
    }

    /// Returns `true` if the same request may succeed later.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self, Self::RateLimit | Self::Overloaded | Self::Server)
    }

    /// Returns `true` if the same request fails again, whatever the delay.
    pub(super) fn is_permanent(self) -> bool {
        matches!(self, Self::Config | Self::InvalidRequest | Self::ContextLength | Self::ContentFilter)
    }
}

/// What a provider calls its errors.
#[derive(Clone, Copy, Debug, Default)]
pub struct ErrorKinds {
    /// The kinds for codes and types, which are compared as a whole.
    pub names: &'static [(&'static str, ErrorKind)],
    /// The kinds for parts of messages, in lower case.
    pub messages: &'static [(&'static str, ErrorKind)],
    /// Parts of messages, in lower case, by which a response with status 403 reports that the token has expired.
    pub expired_tokens: &'static [&'static str],
}

impl ErrorKinds {
    /// Returns the kind for a code or a type, if it is known.
    #[must_use]
    pub fn by_name(&self, name: &str) -> Option<ErrorKind> {
        self.names.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Returns the kind for a message, if part of it is known.
    #[must_use]
    pub fn by_message(&self, message: &str) -> Option<ErrorKind> {
        let message = message.to_lowercase();
        self.messages.iter().find(|(part, _)| message.contains(part)).map(|(_, kind)| *kind)
    }
}

impl From<ErrorKind> for ModelErrorKind {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Config | ErrorKind::InvalidRequest => Self::InvalidRequest,
            ErrorKind::Timeout => Self::Timeout,
            ErrorKind::Authentication => Self::Authentication,
            ErrorKind::RateLimit => Self::RateLimit,
            ErrorKind::Quota => Self::Quota,
            ErrorKind::ContextLength => Self::ContextLength,
            ErrorKind::ContentFilter => Self::ContentFilter,
            ErrorKind::MalformedToolCall => Self::Other,
            ErrorKind::Connect
            | ErrorKind::Transport
            | ErrorKind::Overloaded
            | ErrorKind::Server
            | ErrorKind::InvalidResponse
            | ErrorKind::Incomplete => Self::Unavailable,
        }
    }
}
