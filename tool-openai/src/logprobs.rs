//! How likely tokens were, as both APIs tell it.

use std::borrow::Cow;

use serde::Deserialize;
use tool_core::TokenLogprob;

/// How likely a token was.
#[derive(Deserialize)]
pub(crate) struct WireLogprob<'a> {
    #[serde(borrow)]
    token: Cow<'a, str>,
    logprob: f64,
    bytes: Option<Vec<u8>>,
    #[serde(borrow)]
    top_logprobs: Option<Vec<WireLogprob<'a>>>,
}

impl From<WireLogprob<'_>> for TokenLogprob {
    fn from(wire: WireLogprob<'_>) -> Self {
        let mut token = Self::new(wire.token, wire.logprob);
        token.bytes = wire.bytes;
        token.top = wire.top_logprobs.unwrap_or_default().into_iter().map(Into::into).collect();
        token
    }
}
