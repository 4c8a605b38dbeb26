//! Writes a response in the API's shape: its items as they come, the events that tell of them, and the whole.

use std::mem;

use bytes::Bytes;
use serde_json::{Value, json};
use tool_core::{ChatResponse, Delta, FinishReason, ToolCall, Usage};

use crate::server::endpoint::unix_time;
use crate::server::error::ApiError;
use crate::server::ids;
use crate::server::logprobs::logprob_json;

/// Puts a response together out of its pieces.
pub(super) struct Writer {
    response: Value,
    /// The items that are whole, by position; those that are not are null.
    output: Vec<Value>,
    open: Option<OpenItem>,
    calls: Vec<OpenCall>,
    /// How likely the tokens of the text were, which is known at the end.
    logprobs: Vec<Value>,
    events: Vec<Bytes>,
    sequence: u64,
}

/// A message of the model, or what it thinks, that is being written.
struct OpenItem {
    position: usize,
    id: String,
    kind: Kind,
    /// Of a message, what is whole.
    parts: Vec<Value>,
    /// Of a message, what the part that is being written is.
    part: Option<PartKind>,
    text: String,
}

#[derive(Clone, Copy, PartialEq)]
enum PartKind {
    Text,
    Refusal,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Message,
    Reasoning,
}

/// A call that is being written. Several may be at once.
struct OpenCall {
    position: usize,
    /// Its position among the calls of the reply.
    index: usize,
    id: String,
    call: ToolCall,
}

impl Writer {
    /// `echoed` is what the response repeats of its request.
    pub(super) fn new(echoed: Value) -> Self {
        let mut response = json!({
            "id": ids::unique("resp_"),
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
        Self {
            response,
            output: Vec::new(),
            open: None,
            calls: Vec::new(),
            logprobs: Vec::new(),
            events: Vec::new(),
            sequence: 0,
        }
    }

    /// What a stream begins with.
    pub(super) fn first_events(&mut self) -> Vec<Bytes> {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response.clone();
            self.tell(kind, json!({ "response": response }));
        }
        self.take_events()
    }

    /// The events since they were taken last.
    pub(super) fn take_events(&mut self) -> Vec<Bytes> {
        mem::take(&mut self.events)
    }

    pub(super) fn write(&mut self, delta: Delta) {
        match delta {
            Delta::Text(text) => self.write_part(PartKind::Text, &text),
            Delta::Refusal(text) => self.write_part(PartKind::Refusal, &text),
            Delta::Reasoning(text) => {
                self.open(Kind::Reasoning);
                self.add(&text);
            }
            Delta::ToolCall { index, id, name } => {
                self.close_item("completed");
                let position = self.next_position();
                let call =
                    OpenCall { position, index, id: ids::unique("fc_"), call: ToolCall::new(id, name, "") };
                let item = call.json("in_progress");
                self.tell("response.output_item.added", json!({ "output_index": position, "item": item }));
                self.calls.push(call);
            }
            Delta::Arguments { index, text } => {
                let Some(call) = self.calls.iter_mut().find(|call| call.index == index) else { return };
                call.call.arguments.push_str(&text);
                let told = json!({ "item_id": call.id, "output_index": call.position, "delta": text });
                self.tell("response.function_call_arguments.delta", told);
            }
            _ => {}
        }
    }

    /// Writes what is only known at the end, and gives the whole.
    pub(super) fn finish(&mut self, done: &ChatResponse) -> Value {
        let reason = match &done.finish_reason {
            FinishReason::Length => Some("max_output_tokens"),
            FinishReason::ContentFilter => Some("content_filter"),
            _ => None,
        };
        let status = if reason.is_some() { "incomplete" } else { "completed" };
        if self.output.is_empty() {
            // An answer of no words is one, too.
            self.write_part(PartKind::Text, "");
        }
        self.logprobs = done.logprobs.iter().map(logprob_json).collect();
        self.close_item(status);
        self.close_calls(&done.message.tool_calls, status);
        self.response["status"] = json!(status);
        self.response["incomplete_details"] =
            reason.map_or(Value::Null, |reason| json!({ "reason": reason }));
        if reason.is_none() {
            self.response["completed_at"] = json!(unix_time());
        }
        self.response["output"] = mem::take(&mut self.output).into();
        if let Some(usage) = done.usage {
            self.response["usage"] = usage_json(usage);
        }
        let response = self.response.clone();
        let kind = if reason.is_some() { "response.incomplete" } else { "response.completed" };
        self.tell(kind, json!({ "response": response }));
        self.response.clone()
    }

    /// Ends a stream that has no answer.
    pub(super) fn fail(&mut self, error: &ApiError) {
        self.close_item("incomplete");
        self.close_calls(&[], "incomplete");
        self.response["status"] = json!("failed");
        self.response["error"] = json!({ "code": error.code_of_response(), "message": error.message() });
        self.response["output"] = mem::take(&mut self.output).into();
        let response = self.response.clone();
        self.tell("response.failed", json!({ "response": response }));
    }

    fn write_part(&mut self, kind: PartKind, text: &str) {
        self.open(Kind::Message);
        if self.open.as_ref().is_some_and(|item| item.part != Some(kind)) {
            self.close_part();
        }
        if let Some(item) = self.open.as_mut().filter(|item| item.part.is_none()) {
            item.part = Some(kind);
            let place = item.place();
            self.tell_at("response.content_part.added", &place, json!({ "part": kind.json("", &[]) }));
        }
        self.add(text);
    }

    /// Opens an item of this kind, unless it is open; another is closed.
    fn open(&mut self, kind: Kind) {
        if self.open.as_ref().is_some_and(|item| item.kind == kind) {
            return;
        }
        self.close_item("completed");
        let prefix = if kind == Kind::Message { "msg_" } else { "rs_" };
        let position = self.next_position();
        let (id, parts, text) = (ids::unique(prefix), Vec::new(), String::new());
        let item = OpenItem { position, id, kind, parts, part: None, text };
        let json = item.json("in_progress");
        self.tell("response.output_item.added", json!({ "output_index": position, "item": json }));
        if kind == Kind::Reasoning {
            self.tell_at(
                "response.reasoning_summary_part.added",
                &item.place(),
                json!({ "part": summary_part("") }),
            );
        }
        self.open = Some(item);
    }

    /// Adds to the text of the item that is open.
    fn add(&mut self, text: &str) {
        let Some(item) = self.open.as_mut().filter(|_| !text.is_empty()) else { return };
        item.text.push_str(text);
        let (place, part) = (item.place(), item.part);
        match part {
            Some(PartKind::Text) => {
                self.tell_at("response.output_text.delta", &place, json!({ "delta": text, "logprobs": [] }));
            }
            Some(PartKind::Refusal) => {
                self.tell_at("response.refusal.delta", &place, json!({ "delta": text }));
            }
            None => self.tell_at("response.reasoning_summary_text.delta", &place, json!({ "delta": text })),
        }
    }

    /// Closes the part of a message that is open.
    fn close_part(&mut self) {
        let logprobs = mem::take(&mut self.logprobs);
        let Some(item) = &mut self.open else { return };
        let Some(kind) = item.part.take() else { return };
        let place = item.place();
        let text = mem::take(&mut item.text);
        let part = kind.json(&text, &logprobs);
        item.parts.push(part.clone());
        match kind {
            PartKind::Text => {
                let told = json!({ "text": text, "logprobs": logprobs });
                self.tell_at("response.output_text.done", &place, told);
            }
            PartKind::Refusal => self.tell_at("response.refusal.done", &place, json!({ "refusal": text })),
        }
        self.tell_at("response.content_part.done", &place, json!({ "part": part }));
    }

    fn close_item(&mut self, status: &str) {
        self.close_part();
        let Some(item) = self.open.take() else { return };
        if item.kind == Kind::Reasoning {
            let (place, part) = (item.place(), summary_part(&item.text));
            self.tell_at("response.reasoning_summary_text.done", &place, json!({ "text": item.text }));
            self.tell_at("response.reasoning_summary_part.done", &place, json!({ "part": part }));
        }
        self.item_done(item.position, item.json(status));
    }

    /// Closes the calls. What the reply says of them at its end is what holds.
    fn close_calls(&mut self, said: &[ToolCall], status: &str) {
        for mut open in mem::take(&mut self.calls) {
            if let Some(said) = said.get(open.index) {
                open.call = said.clone();
            }
            let call = &open.call;
            let told = json!({
                "item_id": open.id,
                "output_index": open.position,
                "name": call.name,
                "arguments": call.arguments,
            });
            self.tell("response.function_call_arguments.done", told);
            self.item_done(open.position, open.json(status));
        }
    }

    fn item_done(&mut self, position: usize, item: Value) {
        self.tell("response.output_item.done", json!({ "output_index": position, "item": item }));
        self.output[position] = item;
    }

    fn next_position(&mut self) -> usize {
        self.output.push(Value::Null);
        self.output.len() - 1
    }

    fn tell_at(&mut self, kind: &str, place: &Value, told: Value) {
        let mut place = place.clone();
        if let (Some(place), Value::Object(told)) = (place.as_object_mut(), told) {
            place.extend(told);
        }
        self.tell(kind, place);
    }

    fn tell(&mut self, kind: &str, told: Value) {
        let mut event = json!({ "type": kind, "sequence_number": self.sequence });
        if let (Some(event), Value::Object(told)) = (event.as_object_mut(), told) {
            event.extend(told);
        }
        self.sequence += 1;
        self.events.push(format!("event: {kind}\ndata: {event}\n\n").into());
    }
}

impl OpenItem {
    /// Where the part that comes next stands.
    fn place(&self) -> Value {
        match self.kind {
            Kind::Message => {
                json!({ "item_id": self.id, "output_index": self.position, "content_index": self.parts.len() })
            }
            Kind::Reasoning => {
                json!({ "item_id": self.id, "output_index": self.position, "summary_index": 0 })
            }
        }
    }

    fn json(&self, status: &str) -> Value {
        match self.kind {
            Kind::Message => json!({
                "id": self.id,
                "type": "message",
                "role": "assistant",
                "status": status,
                "content": self.parts,
            }),
            Kind::Reasoning => {
                let summary: Vec<_> = Some(&self.text).filter(|text| !text.is_empty()).into_iter().collect();
                let summary: Vec<_> = summary.into_iter().map(|text| summary_part(text)).collect();
                json!({ "id": self.id, "type": "reasoning", "summary": summary })
            }
        }
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
    fn json(self, text: &str, logprobs: &[Value]) -> Value {
        match self {
            Self::Text => {
                json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs })
            }
            Self::Refusal => json!({ "type": "refusal", "refusal": text }),
        }
    }
}

fn summary_part(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

fn usage_json(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input_tokens,
        "input_tokens_details": { "cached_tokens": usage.cached_tokens.unwrap_or(0), "cache_write_tokens": 0 },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning_tokens.unwrap_or(0) },
        "total_tokens": usage.total_tokens,
    })
}
