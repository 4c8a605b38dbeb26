//! The reasons why there is no valid token.

use std::error::Error;
use std::fmt;

/// The reason why a request has no valid token. The message contains no secrets, and follows the name of the MCP server.
#[derive(Clone, Debug)]
pub(crate) enum OAuthError {
    /// A person has to log in.
    LoginRequired(String),
    /// The user or the authorization server has refused the login, or nobody has logged in within the time for that.
    LoginRefused(String),
    /// The authorization server does not accept the code or the refresh token.
    InvalidGrant(String),
    /// The authorization server does not know the client, or not with this secret.
    InvalidClient(String),
    Failed(String),
}

impl OAuthError {
    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Converts an error of the credential store.
    pub(super) fn store(error: impl fmt::Display) -> Self {
        Self::Failed(format!("the credential store failed: {error}"))
    }
}

impl fmt::Display for OAuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::LoginRequired(message)
        | Self::LoginRefused(message)
        | Self::InvalidGrant(message)
        | Self::InvalidClient(message)
        | Self::Failed(message)) = self;
        f.write_str(message)
    }
}

impl Error for OAuthError {}
