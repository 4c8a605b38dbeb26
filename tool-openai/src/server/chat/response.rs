//! Writes responses in the form of the API, complete and as chunks.

use axum::body::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};
use tool_core::model::{ChatResponse, Delta, FinishReason, Usage};
use tool_core::provider::TokenLogprob;
use tool_http::random_id;

use crate::server::backend::Deltas;
use crate::server::error::ApiError;
use crate::server::logprobs::logprob_json;

/// Writes a response. All chunks of a response share its id, model and time.
pub(super) struct CompletionWriter {
    id: String,
    model: String,
    created: u64,
}

impl CompletionWriter {
    pub(super) fn new(model: String, created: u64) -> Self {
        Self { id: random_id("chatcmpl-"), model, created }
    }

    /// Returns the complete response.
    pub(super) fn completion(&self, response: &ChatResponse) -> Value {
        let message = &response.message;
        let mut wire = json!({ "role": "assistant", "content": message.text, "refusal": message.refusal });
        if let Some(reasoning) = &message.reasoning {
            wire["reasoning_content"] = json!(reasoning);
        }
        if !message.tool_calls.is_empty() {
            if message.text.is_empty() {
                wire["content"] = Value::Null;
            }
            let calls = message.tool_calls.iter().map(|call| {
                let function = json!({ "name": call.name, "arguments": call.arguments });
                json!({ "id": call.id, "type": "function", "function": function })
            });
            wire["tool_calls"] = calls.collect();
        }
        let choice = json!({ "index": 0, "message": wire, "logprobs": logprobs_json(&response.logprobs), "finish_reason": finish_reason(response) });
        let mut completion = self.object("chat.completion", json!([choice]));
        if let Some(usage) = response.usage {
            completion["usage"] = usage_json(usage);
        }
        completion
    }

    /// Returns the server-sent events of a streamed response.
    pub(super) fn events(self, deltas: Deltas, includes_usage: bool) -> impl Stream<Item = Bytes> + Send {
        let first = event(&self.chunk(&json!({ "role": "assistant", "content": "" }), None));
        let rest = deltas.flat_map(move |delta| stream::iter(self.delta_events(delta, includes_usage)));
        stream::iter([first]).chain(rest)
    }

    fn delta_events(&self, delta: Result<Delta, ApiError>, includes_usage: bool) -> Vec<Bytes> {
        let delta = match delta {
            Ok(Delta::Text(text)) => json!({ "content": text }),
            Ok(Delta::Refusal(text)) => json!({ "refusal": text }),
            Ok(Delta::Reasoning(text)) => json!({ "reasoning_content": text }),
            Ok(Delta::ToolCall { index, id, name }) => {
                let function = json!({ "name": name, "arguments": "" });
                json!({ "tool_calls": [{ "index": index, "id": id, "type": "function", "function": function }] })
            }
            Ok(Delta::Arguments { index, text }) => {
                json!({ "tool_calls": [{ "index": index, "function": { "arguments": text } }] })
            }
            Ok(Delta::Done(response)) => return self.final_events(&response, includes_usage),
            Ok(_) => return Vec::new(),
            Err(error) => return vec![event(&error.body())],
        };
        vec![event(&self.chunk(&delta, None))]
    }

    fn final_events(&self, response: &ChatResponse, includes_usage: bool) -> Vec<Bytes> {
        let mut events = Vec::new();
        let mut end = self.chunk(&json!({}), Some(finish_reason(response)));
        end["choices"][0]["logprobs"] = logprobs_json(&response.logprobs);
        events.push(event(&end));
        if includes_usage {
            let mut usage = self.object("chat.completion.chunk", json!([]));
            usage["usage"] = usage_json(response.usage.unwrap_or_default());
            events.push(event(&usage));
        }
        events.push(Bytes::from_static(b"data: [DONE]\n\n"));
        events
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Value {
        let choice = json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason });
        self.object("chat.completion.chunk", json!([choice]))
    }

    fn object(&self, object: &str, choices: Value) -> Value {
        json!({ "id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices })
    }
}

fn event(data: &Value) -> Bytes {
    format!("data: {data}\n\n").into()
}

fn finish_reason(response: &ChatResponse) -> &str {
    match &response.finish_reason {
        FinishReason::Length => "length",
        FinishReason::ContentFilter => "content_filter",
        _ if !response.message.tool_calls.is_empty() => "tool_calls",
        _ => "stop",
    }
}

/// Returns the log probabilities of the tokens. A stream has them at its end, because the model's deltas do not contain
/// them.
fn logprobs_json(logprobs: &[TokenLogprob]) -> Value {
    if logprobs.is_empty() {
        return Value::Null;
    }
    json!({ "content": logprobs.iter().map(logprob_json).collect::<Vec<_>>(), "refusal": null })
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": { "cached_tokens": usage.cached_tokens.unwrap_or(0) },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning_tokens.unwrap_or(0) },
    })
}
