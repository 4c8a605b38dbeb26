//! How likely a token was.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How likely a token of a reply was, and which others were.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TokenLogprob {
    /// The token.
    pub token: String,
    /// The natural logarithm of its probability.
    pub logprob: f64,
    /// The token in UTF-8, which of one token alone need not be whole characters, where the provider tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Vec<u8>>,
    /// The likeliest tokens at this place, this one perhaps among them; they have no further ones.
    #[serde(default, rename = "top_logprobs", skip_serializing_if = "Vec::is_empty")]
    pub top: Vec<TokenLogprob>,
}

impl TokenLogprob {
    /// A token, and the natural logarithm of its probability.
    #[must_use]
    pub fn new(token: impl Into<String>, logprob: f64) -> Self {
        Self { token: token.into(), logprob, bytes: None, top: Vec::new() }
    }
}

/// Leaves the tokens out: conversations are private.
impl fmt::Debug for TokenLogprob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenLogprob({} bytes, {}, {} others)", self.token.len(), self.logprob, self.top.len())
    }
}
