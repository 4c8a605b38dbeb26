//! Reasons to refuse a request before the server handles it.

use std::fmt;

use axum::http::StatusCode;

/// The reason that a request is refused. [`Display`](fmt::Display) shows the message for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The request names no host, several, or an invalid one.
    InvalidHost,
    /// The host is not allowed.
    Host(String),
    /// The origin of the web page is not allowed.
    Origin,
    /// The request has no valid key.
    Key {
        /// `true` if the request has an `Authorization` header.
        has_credentials: bool,
    },
    /// The body is not declared as JSON.
    NotJson,
    /// The body exceeds this number of bytes.
    BodyTooLarge(usize),
    /// The body did not arrive in time.
    BodyTimeout,
    /// The connection ended in the middle of the body.
    BodyIncomplete,
    /// A limit on the sum of all requests is reached.
    Overloaded,
    /// The server is shutting down.
    ShuttingDown,
}

impl Rejection {
    /// Returns the status of the response.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::InvalidHost | Self::BodyIncomplete => StatusCode::BAD_REQUEST,
            Self::Host(_) | Self::Origin => StatusCode::FORBIDDEN,
            Self::Key { .. } => StatusCode::UNAUTHORIZED,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::BodyTooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::Overloaded | Self::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidHost => f.write_str("the request must have exactly one valid `Host` header"),
            Self::Host(host) => write!(
                f,
                "the host `{host}` is not allowed; use `localhost`, or let the server allow it with `allow_host`"
            ),
            Self::Origin => f.write_str(
                "requests of web pages of this origin are not allowed; let the server allow it with `allow_origin`",
            ),
            Self::Key { .. } => f.write_str("missing or invalid bearer token"),
            Self::NotJson => f.write_str("send the body with `Content-Type: application/json`"),
            Self::BodyTooLarge(limit) => write!(f, "the request body exceeds the limit of {limit} bytes"),
            Self::BodyTimeout => f.write_str("the request body did not arrive in time"),
            Self::BodyIncomplete => f.write_str("the request body is incomplete"),
            Self::Overloaded => f.write_str("too many requests in flight; try again later"),
            Self::ShuttingDown => f.write_str("the server is shutting down"),
        }
    }
}

impl std::error::Error for Rejection {}
