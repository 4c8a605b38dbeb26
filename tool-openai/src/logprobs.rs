//! Token probabilities, which both APIs send in the same form.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tool_core::provider::TokenLogprob;

/// The probability of a token.
#[derive(Deserialize)]
struct WireLogprob<'a> {
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

/// Parses an array of probabilities. They are optional data, so an array that cannot be parsed is treated as empty.
pub(crate) fn parse_array(json: Option<&RawValue>) -> Vec<TokenLogprob> {
    let logprobs = json.and_then(|json| serde_json::from_str::<Vec<WireLogprob<'_>>>(json.get()).ok());
    logprobs.into_iter().flatten().map(Into::into).collect()
}
