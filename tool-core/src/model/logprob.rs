//! Log probabilities of tokens.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The log probability of a token of a response, and of its alternatives.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TokenLogprob {
    /// The token.
    pub token: String,
    /// The natural logarithm of its probability.
    pub logprob: f64,
    /// The token's UTF-8 bytes, if the provider reports them. One token need not consist of whole characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Vec<u8>>,
    /// The most likely tokens at this position, which can include this one. Their own `top` is empty.
    #[serde(default, rename = "top_logprobs", skip_serializing_if = "Vec::is_empty")]
    pub top: Vec<TokenLogprob>,
}

impl TokenLogprob {
    /// Creates an entry from a token and the natural logarithm of its probability.
    #[must_use]
    pub fn new(token: impl Into<String>, logprob: f64) -> Self {
        Self { token: token.into(), logprob, bytes: None, top: Vec::new() }
    }
}

/// Omits the tokens, as conversations are private.
impl fmt::Debug for TokenLogprob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenLogprob({} bytes, {}, {} others)", self.token.len(), self.logprob, self.top.len())
    }
}
