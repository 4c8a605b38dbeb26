//! Log probabilities of tokens in the form that both APIs share.

use serde_json::{Value, json};
use tool_core::provider::TokenLogprob;

pub(super) fn logprob_json(token: &TokenLogprob) -> Value {
    let token_json = |token: &TokenLogprob| {
        // The published schema requires `bytes`.
        let bytes = token.bytes.as_deref().unwrap_or(token.token.as_bytes());
        json!({ "token": token.token, "logprob": token.logprob, "bytes": bytes })
    };
    let mut json = token_json(token);
    json["top_logprobs"] = token.top.iter().map(token_json).collect();
    json
}
