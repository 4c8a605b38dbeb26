//! How likely tokens were, as both APIs have it.

use serde_json::{Value, json};
use tool_core::TokenLogprob;

pub(super) fn logprob_json(token: &TokenLogprob) -> Value {
    let of_one = |token: &TokenLogprob| {
        // The published form has bytes always.
        let bytes = token.bytes.as_deref().unwrap_or(token.token.as_bytes());
        json!({ "token": token.token, "logprob": token.logprob, "bytes": bytes })
    };
    let mut json = of_one(token);
    json["top_logprobs"] = token.top.iter().map(of_one).collect();
    json
}
