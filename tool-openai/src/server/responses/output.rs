//! Writes a response in the form of the API: the events of its items as they arrive, and the complete response.

use std::mem;

use axum::body::Bytes;
use serde_json::{Value, json};
use tool_core::ToolCall;
use tool_core::model::{ChatResponse, Delta, FinishReason, Usage};
use tool_http::random_id;

use crate::server::error::ApiError;
use crate::server::logprobs::logprob_json;
use crate::server::state::unix_time;

/// Assembles a response from deltas, and the events of its stream.
#[derive(Default)]
pub(super) struct ResponseWriter {
    response: Value,
    /// The complete items by position; incomplete ones are null.
    output: Vec<Value>,
    open_item: Option<OpenItem>,
    open_calls: Vec<OpenCall>,
    /// The log probabilities of the text's tokens, which are known at the end.
    logprobs: Vec<Value>,
    events: Vec<Bytes>,
    sequence: u64,
}

/// An incomplete message or reasoning item.
struct OpenItem {
    position: usize,
    id: String,
    is_reasoning: bool,
    /// The complete parts.
    parts: Vec<Value>,
    /// The part that is being written.
    open_part: Option<(PartKind, String)>,
}

/// The kind of a part. Reasoning items have summaries, and messages the others.
#[derive(Clone, Copy, PartialEq)]
enum PartKind {
    Text,
    Refusal,
    Summary,
}

/// An incomplete call. Several can be open at once.
struct OpenCall {
    position: usize,
    /// Its position among the calls of the reply.
    index: usize,
    id: String,
    call: ToolCall,
}

impl ResponseWriter {
    /// Creates a writer; `echoed` are the fields of the request that the response repeats.
    pub(super) fn new(echoed: Value) -> Self {
        let mut response = json!({
            "id": random_id("resp_"),
            "object": "response",
            "created_at": unix_time(),
            "status": "in_progress",
            "background": false,
            "completed_at": null,
            "error": null,
            "incomplete_details": null,
            "output": [],
        });
        if let (Some(response), Value::Object(echoed)) = (response.as_object_mut(), echoed) {
            response.extend(echoed);
        }
        Self { response, ..Self::default() }
    }

    /// Returns the events at the start of a stream.
    pub(super) fn start_events(&mut self) -> Vec<Bytes> {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response.clone();
            self.emit(kind, json!({ "response": response }));
        }
        self.take_events()
    }

    /// Returns the events since the last call.
    pub(super) fn take_events(&mut self) -> Vec<Bytes> {
        mem::take(&mut self.events)
    }

    pub(super) fn write(&mut self, delta: Delta) {
        match delta {
            Delta::Text(text) => self.write_part(PartKind::Text, &text),
            Delta::Refusal(text) => self.write_part(PartKind::Refusal, &text),
            Delta::Reasoning(text) => self.write_part(PartKind::Summary, &text),
            Delta::ToolCall { index, id, name } => {
                self.close_item("completed");
                let position = self.next_position();
                let call = ToolCall::new(id, name, "");
                let call = OpenCall { position, index, id: random_id("fc_"), call };
                let item = call.json("in_progress");
                self.emit("response.output_item.added", json!({ "output_index": position, "item": item }));
                self.open_calls.push(call);
            }
            Delta::Arguments { index, text } => {
                let Some(open) = self.open_calls.iter_mut().rfind(|call| call.index == index) else { return };
                open.call.arguments.push_str(&text);
                let fields = json!({ "item_id": open.id, "output_index": open.position, "delta": text });
                self.emit("response.function_call_arguments.delta", fields);
            }
            _ => {}
        }
    }

    /// Closes all items and returns the complete response.
    pub(super) fn finish(&mut self, response: &ChatResponse) -> Value {
        let reason = match &response.finish_reason {
            FinishReason::Length => Some("max_output_tokens"),
            FinishReason::ContentFilter => Some("content_filter"),
            _ => None,
        };
        let status = if reason.is_some() { "incomplete" } else { "completed" };
        if self.output.is_empty() {
            // An empty answer still has an item.
            self.write_part(PartKind::Text, "");
        }
        self.logprobs = response.logprobs.iter().map(logprob_json).collect();
        self.close_item(status);
        self.close_calls(&response.message.tool_calls, status);
        self.add_logprobs();
        self.response["status"] = json!(status);
        self.response["incomplete_details"] =
            reason.map_or(Value::Null, |reason| json!({ "reason": reason }));
        if reason.is_none() {
            self.response["completed_at"] = json!(unix_time());
        }
        self.response["output"] = mem::take(&mut self.output).into();
        if let Some(usage) = response.usage {
            self.response["usage"] = usage_json(usage);
        }
        let response = self.response.clone();
        let kind = if reason.is_some() { "response.incomplete" } else { "response.completed" };
        self.emit(kind, json!({ "response": response }));
        self.response.clone()
    }

    /// Ends the stream with an error.
    pub(super) fn fail(&mut self, error: &ApiError) {
        self.close_item("incomplete");
        self.close_calls(&[], "incomplete");
        self.response["status"] = json!("failed");
        self.response["error"] = json!({ "code": error.response_code(), "message": error.message() });
        self.response["output"] = mem::take(&mut self.output).into();
        let response = self.response.clone();
        self.emit("response.failed", json!({ "response": response }));
    }

    /// Appends to the open part, or opens one of this kind.
    fn write_part(&mut self, kind: PartKind, text: &str) {
        self.open_part(kind);
        let Some(item) = self.open_item.as_mut().filter(|_| !text.is_empty()) else { return };
        if let Some((_, part)) = &mut item.open_part {
            part.push_str(text);
        }
        let mut fields = json!({ "delta": text });
        if kind == PartKind::Text {
            fields["logprobs"] = json!([]);
        }
        let position = item.part_position();
        self.emit_at(&format!("{}.delta", kind.text_event()), &position, fields);
    }

    /// Opens a part of this kind unless one is open, and closes what it does not belong to.
    fn open_part(&mut self, kind: PartKind) {
        let is_reasoning = kind == PartKind::Summary;
        match &self.open_item {
            Some(item) if item.open_part.as_ref().is_some_and(|(open, _)| *open == kind) => return,
            Some(item) if item.is_reasoning == is_reasoning => self.close_part(),
            _ => {
                self.close_item("completed");
                let position = self.next_position();
                let id = random_id(if is_reasoning { "rs_" } else { "msg_" });
                let item = OpenItem { position, id, is_reasoning, parts: Vec::new(), open_part: None };
                let json = item.json("in_progress");
                self.emit("response.output_item.added", json!({ "output_index": position, "item": json }));
                self.open_item = Some(item);
            }
        }
        let Some(item) = &mut self.open_item else { return };
        item.open_part = Some((kind, String::new()));
        let position = item.part_position();
        let fields = json!({ "part": kind.json("", &[]) });
        self.emit_at(&format!("{}.added", kind.part_event()), &position, fields);
    }

    fn close_part(&mut self) {
        let Some(item) = &mut self.open_item else { return };
        let position = item.part_position();
        let Some((kind, text)) = item.open_part.take() else { return };
        let logprobs = if kind == PartKind::Text { mem::take(&mut self.logprobs) } else { Vec::new() };
        let part = kind.json(&text, &logprobs);
        // Reasoning without a text has no summary.
        if !item.is_reasoning || !text.is_empty() {
            item.parts.push(part.clone());
        }
        let fields = match kind {
            PartKind::Text => json!({ "text": text, "logprobs": logprobs }),
            PartKind::Refusal => json!({ "refusal": text }),
            PartKind::Summary => json!({ "text": text }),
        };
        self.emit_at(&format!("{}.done", kind.text_event()), &position, fields);
        self.emit_at(&format!("{}.done", kind.part_event()), &position, json!({ "part": part }));
    }

    fn close_item(&mut self, status: &str) {
        self.close_part();
        if let Some(item) = self.open_item.take() {
            self.complete_item(item.position, item.json(status));
        }
    }

    /// Closes the calls. The calls of the complete reply take precedence over the streamed ones.
    fn close_calls(&mut self, final_calls: &[ToolCall], status: &str) {
        for mut open in mem::take(&mut self.open_calls) {
            if let Some(call) = final_calls.get(open.index) {
                open.call = call.clone();
            }
            let call = &open.call;
            let fields = json!({
                "item_id": open.id,
                "output_index": open.position,
                "name": call.name,
                "arguments": call.arguments,
            });
            self.emit("response.function_call_arguments.done", fields);
            self.complete_item(open.position, open.json(status));
        }
    }

    /// Adds log probabilities to the last text if that was complete before they were known.
    fn add_logprobs(&mut self) {
        let logprobs = mem::take(&mut self.logprobs);
        let items = self.output.iter_mut().rev().filter_map(|item| item.get_mut("content")?.as_array_mut());
        let text = items.flatten().find(|part| part["type"] == "output_text");
        if let (Some(text), false) = (text, logprobs.is_empty()) {
            text["logprobs"] = logprobs.into();
        }
    }

    fn complete_item(&mut self, position: usize, item: Value) {
        self.emit("response.output_item.done", json!({ "output_index": position, "item": item }));
        self.output[position] = item;
    }

    fn next_position(&mut self) -> usize {
        self.output.push(Value::Null);
        self.output.len() - 1
    }

    /// Emits an event with the fields of a position and others.
    fn emit_at(&mut self, kind: &str, position: &Value, fields: Value) {
        let mut all = position.clone();
        if let (Some(all), Value::Object(fields)) = (all.as_object_mut(), fields) {
            all.extend(fields);
        }
        self.emit(kind, all);
    }

    fn emit(&mut self, kind: &str, fields: Value) {
        let mut event = json!({ "type": kind, "sequence_number": self.sequence });
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        self.sequence += 1;
        self.events.push(format!("event: {kind}\ndata: {event}\n\n").into());
    }
}

impl OpenItem {
    /// Returns the fields that locate the open or next part.
    fn part_position(&self) -> Value {
        let index = if self.is_reasoning { "summary_index" } else { "content_index" };
        json!({ "item_id": self.id, "output_index": self.position, index: self.parts.len() })
    }

    fn json(&self, status: &str) -> Value {
        if self.is_reasoning {
            return json!({ "id": self.id, "type": "reasoning", "summary": self.parts });
        }
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": self.parts,
        })
    }
}

impl OpenCall {
    fn json(&self, status: &str) -> Value {
        json!({
            "id": self.id,
            "type": "function_call",
            "status": status,
            "call_id": self.call.id,
            "name": self.call.name,
            "arguments": self.call.arguments,
        })
    }
}

impl PartKind {
    /// Returns the start of the names of the events of its text.
    fn text_event(self) -> &'static str {
        match self {
            Self::Text => "response.output_text",
            Self::Refusal => "response.refusal",
            Self::Summary => "response.reasoning_summary_text",
        }
    }

    /// Returns the start of the names of the events of the part itself.
    fn part_event(self) -> &'static str {
        match self {
            Self::Text | Self::Refusal => "response.content_part",
            Self::Summary => "response.reasoning_summary_part",
        }
    }

    fn json(self, text: &str, logprobs: &[Value]) -> Value {
        match self {
            Self::Text => {
                json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs })
            }
            Self::Refusal => json!({ "type": "refusal", "refusal": text }),
            Self::Summary => json!({ "type": "summary_text", "text": text }),
        }
    }
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": { "cached_tokens": usage.cached_tokens.unwrap_or(0), "cache_write_tokens": usage.cache_write_tokens.unwrap_or(0) },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens.unwrap_or(0) },
        "total_tokens": usage.total_tokens,
    })
}
