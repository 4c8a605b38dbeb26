//! Assembles a response from its events. A response that is not streamed is processed like the last event.

use serde_json::value::RawValue;
use tool_core::model::{AssistantMessage, ChatResponse, Delta, FinishReason, Usage};
use tool_http::client::sse::Event;
use tool_http::client::{Assembler, EventError, Flow, is_error_body};

use super::output_item::{ItemKind, OutputItem, Part, PartKind};
use super::partial_item::{ItemDelta, PartialItem};
use super::replay;
use super::response::{MAX_ITEMS, WireEvent, WireResponse};
use crate::json::is_error_value;
use crate::lenient::Text;
use crate::usage::WireUsage;
use crate::{annotations, logprobs, quirks};

/// The data that some servers send after the last event, as in Chat Completions.
const DONE: &str = "[DONE]";

/// The separator between two parts of the reasoning.
const REASONING_SEPARATOR: &str = "\n\n";

/// Assembles a response from the events that have arrived.
#[derive(Default)]
pub(crate) struct EventAssembler<'a> {
    /// The name to store the items under.
    provider: &'a str,
    id: Option<String>,
    model: Option<String>,
    items: Vec<PartialItem>,
    emitted_calls: usize,
    /// The part of the reasoning that was emitted last.
    reasoning_part: Option<(usize, PartKind, u64)>,
    truncation: Option<FinishReason>,
    usage: Option<Usage>,
    is_whole: bool,
}

impl<'a> EventAssembler<'a> {
    /// Creates an assembler that stores the items of the response under this name.
    pub(super) fn new(provider: &'a str) -> Self {
        Self { provider, ..Self::default() }
    }

    /// Consumes an event of this type, which was parsed from `data`, and emits its deltas.
    fn push_event(
        &mut self,
        kind: &str,
        event: &WireEvent<'_>,
        data: &str,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<Flow, EventError> {
        if self.items.len() > MAX_ITEMS {
            return Err(EventError::Malformed(format!("more than {MAX_ITEMS} items")));
        }
        match kind {
            // An annotation is a part without text.
            "response.output_text.delta" | "response.output_text.annotation.added" => {
                self.append_part(event, PartKind::Text, emit)
            }
            "response.refusal.delta" => self.append_part(event, PartKind::Refusal, emit),
            "response.reasoning_summary_text.delta" => self.append_part(event, PartKind::Summary, emit),
            "response.reasoning_text.delta" => self.append_part(event, PartKind::Reasoning, emit),
            "response.output_text.done" => self.set_part(event, PartKind::Text, emit),
            "response.refusal.done" => self.set_part(event, PartKind::Refusal, emit),
            "response.reasoning_summary_text.done" => self.set_part(event, PartKind::Summary, emit),
            "response.reasoning_text.done" => self.set_part(event, PartKind::Reasoning, emit),
            "response.function_call_arguments.delta" => {
                let more = event.delta.0.as_deref().unwrap_or_default();
                self.update_item(event, emit, |item, emit| item.append_arguments(more, emit));
            }
            "response.function_call_arguments.done" => {
                if let Some(whole) = event.arguments.0.as_deref() {
                    self.update_item(event, emit, |item, emit| item.set_arguments(whole.to_owned(), emit));
                }
            }
            "response.output_item.added" => {
                if let Some(item) = event.item.map(OutputItem::parse) {
                    let position = self.start_item(event.output_index.0);
                    self.update_at(position, emit, |partial, emit| partial.update(item, emit));
                }
            }
            "response.output_item.done" => {
                if let Some(json) = event.item {
                    let item = OutputItem::parse(json);
                    let position = self.find_or_add(event.output_index.0, item.id.as_deref());
                    self.update_at(position, emit, |partial, emit| partial.complete(item, json, emit));
                }
            }
            "response.created" | "response.queued" | "response.in_progress" => {
                let response = event.response()?;
                self.identify(response.id, response.model);
            }
            "response.completed"
            | "response.done"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled" => {
                self.push_response(kind.strip_prefix("response."), event.response()?, emit)?;
                return Ok(Flow::End);
            }
            "error" | "response.error" => return Err(EventError::Api(data.to_owned())),
            "" if is_error_body(data) => return Err(EventError::Api(data.to_owned())),
            // Unknown types, and those whose content is repeated when their item is complete.
            _ => {}
        }
        Ok(Flow::Continue)
    }

    /// Consumes a whole response, as the last event or a response that is not streamed contains it. `event_status` is the
    /// status according to the type of the event.
    fn push_response(
        &mut self,
        event_status: Option<&str>,
        response: WireResponse<'_>,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<(), EventError> {
        self.identify(response.id, response.model);
        self.usage = response.usage.0.and_then(WireUsage::to_usage);
        let error = response.error.map(RawValue::get).filter(|error| is_error_value(error));
        let failed = || match error {
            Some(error) => EventError::Api(error.to_owned()),
            None => EventError::Aborted("the response failed without an error message".into()),
        };
        match event_status.or(response.status.0.as_deref()) {
            Some("failed") => return Err(failed()),
            Some("cancelled") => return Err(EventError::Aborted("the response was cancelled".into())),
            Some(status @ ("queued" | "in_progress")) => {
                return Err(EventError::Malformed(format!(
                    "the response is still `{status}`; unset the extra field `background`"
                )));
            }
            Some("incomplete") => {
                let reason = response.incomplete_details.0.and_then(|details| details.reason.0);
                self.truncation = Some(match reason.as_deref() {
                    Some("content_filter") => FinishReason::ContentFilter,
                    // For any other reason, too: the calls of an incomplete reply must not be executed.
                    _ => FinishReason::Length,
                });
            }
            _ if error.is_some() => return Err(failed()),
            _ => {}
        }
        self.push_output(response.output.0.as_deref().unwrap_or_default(), emit);
        self.is_whole = true;
        Ok(())
    }

    /// Consumes the items of the whole output that were not completed by events, and calls that had no event. Other unknown
    /// items are ignored: if neither indices nor ids match, earlier events decide.
    fn push_output(&mut self, output: &[&RawValue], emit: &mut dyn FnMut(Delta)) {
        let had_no_events = self.items.is_empty();
        for (index, json) in (0..).zip(output) {
            let item = OutputItem::parse(json);
            let is_item = |partial: &PartialItem| {
                partial.index == Some(index) || (item.id.is_some() && partial.id == item.id)
            };
            let is_same_call = |partial: &PartialItem| partial.call.id == item.call_id;
            let is_new_call = item.kind == ItemKind::FunctionCall && item.call_id.is_some();
            let position = match self.items.iter().position(is_item) {
                _ if had_no_events => self.add_item(Some(index)),
                Some(position) if self.items[position].complete_json.is_none() => position,
                _ if is_new_call && !self.items.iter().any(is_same_call) => self.add_item(Some(index)),
                _ => continue,
            };
            self.update_at(position, emit, |partial, emit| partial.complete(item, json, emit));
        }
    }

    fn identify(&mut self, id: Text<'_>, model: Text<'_>) {
        for (field, text) in [(&mut self.id, id), (&mut self.model, model)] {
            *field = field.take().or_else(|| text.non_empty());
        }
    }

    fn append_part(&mut self, event: &WireEvent<'_>, kind: PartKind, emit: &mut dyn FnMut(Delta)) {
        let more = part(event.delta.0.as_deref().unwrap_or_default(), event);
        let index = part_index(event, kind);
        self.update_item(event, emit, |item, emit| item.append(kind, index, more, emit));
    }

    fn set_part(&mut self, event: &WireEvent<'_>, kind: PartKind, emit: &mut dyn FnMut(Delta)) {
        let whole = if kind == PartKind::Refusal { &event.refusal.0 } else { &event.text.0 };
        if let Some(text) = whole {
            let (whole, index) = (part(text, event), part_index(event, kind));
            self.update_item(event, emit, |item, emit| item.set(kind, index, whole, emit));
        }
    }

    /// Updates the item of an event.
    fn update_item(
        &mut self,
        event: &WireEvent<'_>,
        emit: &mut dyn FnMut(Delta),
        update: impl FnOnce(&mut PartialItem, &mut dyn FnMut(ItemDelta)),
    ) {
        let position = self.find_or_add(event.output_index.0, event.item_id.0.as_deref());
        self.update_at(position, emit, update);
    }

    /// Updates an item and emits its deltas; for a call, once it has a name.
    fn update_at(
        &mut self,
        position: usize,
        emit: &mut dyn FnMut(Delta),
        update: impl FnOnce(&mut PartialItem, &mut dyn FnMut(ItemDelta)),
    ) {
        let item = &mut self.items[position];
        let emitted_index = item.call.emitted_index;
        let reasoning_part = &mut self.reasoning_part;
        update(item, &mut |delta| match delta {
            ItemDelta::Arguments(text) => {
                if let Some(index) = emitted_index {
                    emit(Delta::Arguments { index, text });
                }
            }
            ItemDelta::Part { kind: PartKind::Text, text, .. } => emit(Delta::Text(text)),
            ItemDelta::Part { kind: PartKind::Refusal, text, .. } => emit(Delta::Refusal(text)),
            ItemDelta::Part { kind, index, text } => {
                let part = Some((position, kind, index));
                let is_another = reasoning_part.is_some() && *reasoning_part != part;
                *reasoning_part = part;
                let separator = if is_another { REASONING_SEPARATOR } else { "" };
                emit(Delta::Reasoning(format!("{separator}{text}")));
            }
        });
        let is_call = item.kind == ItemKind::FunctionCall;
        if is_call && item.call.emitted_index.is_none() && item.call.name.is_some() {
            let index = self.emitted_calls;
            self.emitted_calls += 1;
            item.call.emitted_index = Some(index);
            self.ensure_call_id(position);
            let call = self.items[position].to_call();
            emit(Delta::ToolCall { index, id: call.id, name: call.name });
            if !call.arguments.is_empty() {
                emit(Delta::Arguments { index, text: call.arguments });
            }
        }
    }

    /// Sets the id of a call that has none, to the item's id or a generated one.
    fn ensure_call_id(&mut self, position: usize) {
        let item = &mut self.items[position];
        if item.kind == ItemKind::FunctionCall && item.call.id.is_none() {
            item.call.id = Some(item.id.clone().unwrap_or_else(quirks::generate_call_id));
        }
    }

    /// Returns the position of an item that starts: a new one, unless a delta of it has already arrived.
    fn start_item(&mut self, index: Option<u64>) -> usize {
        let has_index = |item: &PartialItem| index.is_some() && item.index == index;
        let has_started = |item: &PartialItem| item.complete_json.is_some() || item.kind != ItemKind::Other;
        let found = self.items.iter().rposition(|item| has_index(item) && !has_started(item));
        found.unwrap_or_else(|| self.add_item(index))
    }

    /// Returns the position of an item: by index and id; by index alone, because ids may change; without an index, by id;
    /// and if that is unknown, the last one. Adds an item if there is none.
    fn find_or_add(&mut self, index: Option<u64>, id: Option<&str>) -> usize {
        let has_id = |item: &PartialItem| id.is_some() && item.id.as_deref() == id;
        let items = self.items.iter();
        let found = if index.is_some() {
            let has_index = |item: &PartialItem| item.index == index;
            let both = items.clone().rposition(|item| has_index(item) && has_id(item));
            both.or_else(|| items.clone().rposition(has_index))
        } else {
            items.clone().rposition(has_id).or_else(|| items.len().checked_sub(1))
        };
        found.unwrap_or_else(|| self.add_item(index))
    }

    fn add_item(&mut self, index: Option<u64>) -> usize {
        self.items.push(PartialItem::new(index));
        self.items.len() - 1
    }
}

impl Assembler for EventAssembler<'_> {
    fn push(&mut self, event: &Event<'_>, emit: &mut dyn FnMut(Delta)) -> Result<Flow, EventError> {
        let data = event.data.trim_ascii();
        if data.is_empty() || data == DONE {
            return Ok(Flow::Continue);
        }
        let data = &*quirks::repair_surrogates(data);
        let wire = WireEvent::parse(data)?;
        // Event names repeat the type, except for errors, which have none.
        let kind = match (&*event.name, wire.kind.0.as_deref()) {
            ("error", _) => "error",
            (_, Some(kind)) => kind,
            (name, None) => name,
        };
        self.push_event(kind, &wire, data, emit)
    }

    fn push_whole(&mut self, json: &str) -> Result<(), EventError> {
        let json = quirks::repair_surrogates(json);
        self.push_response(None, WireResponse::parse(&json)?, &mut drop)
    }

    fn has_started(&self) -> bool {
        true
    }

    /// Returns `false`: only the last event completes a response.
    fn is_complete(&self) -> bool {
        false
    }

    fn finish(mut self) -> ChatResponse {
        for position in 0..self.items.len() {
            self.ensure_call_id(position);
        }
        let mut items: Vec<_> = (0..).zip(self.items).collect();
        // Items without an index are ordered by arrival.
        items.sort_by_key(|(position, item)| item.index.unwrap_or(*position));
        let items: Vec<_> = items.into_iter().map(|(_, item)| item).collect();
        let parts = |kind| items.iter().flat_map(move |item| item.parts(kind));
        let text = |kind| parts(kind).map(|part| &*part.text).collect::<String>();
        let reasoning = items
            .iter()
            .flat_map(|item| item.parts(PartKind::Summary).chain(item.parts(PartKind::Reasoning)))
            .map(|part| &*part.text)
            .filter(|text| !text.is_empty())
            .collect::<Vec<_>>();
        let mut message = AssistantMessage::default();
        for part in parts(PartKind::Text) {
            let start = message.text.len();
            message.text.push_str(&part.text);
            message.citations.extend(annotations::with_byte_ranges(&part.citations, &part.text, start));
        }
        message.reasoning =
            Some(reasoning.join(REASONING_SEPARATOR)).filter(|reasoning| !reasoning.is_empty());
        message.refusal = Some(text(PartKind::Refusal)).filter(|refusal| !refusal.is_empty());
        let calls = items.iter().filter(|item| item.kind == ItemKind::FunctionCall);
        message.tool_calls = calls.map(PartialItem::to_call).collect();
        let complete: Option<Vec<_>> = items.iter().map(|item| item.complete_json.as_deref()).collect();
        message.provider_data = complete
            .filter(|items| self.is_whole && !items.is_empty())
            .and_then(|items| replay::provider_data(self.provider, items));
        let logprobs = parts(PartKind::Text).flat_map(|part| part.logprobs.clone()).collect();
        let mut response = ChatResponse::new(message);
        if let Some(reason) = self.truncation {
            response.finish_reason = reason;
        }
        response.usage = self.usage;
        response.id = self.id;
        response.model = self.model;
        response.logprobs = logprobs;
        response
    }
}

fn part(text: &str, event: &WireEvent<'_>) -> Part {
    Part {
        text: text.to_owned(),
        logprobs: logprobs::parse_array(event.logprobs),
        citations: annotations::parse_array(event.annotation),
    }
}

fn part_index(event: &WireEvent<'_>, kind: PartKind) -> u64 {
    let index = if kind == PartKind::Summary { event.summary_index.0 } else { event.content_index.0 };
    index.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some servers stream only texts and send calls with the last event.
    #[test]
    fn reads_calls_that_only_the_last_event_contains() {
        let call = |id: &str| {
            format!(
                r#"{{"type":"function_call","id":"f{id}","call_id":"c{id}","name":"now","arguments":"{{}}"}}"#
            )
        };
        let message = r#"{"type":"message","id":"m","content":[{"type":"output_text","text":"Hm."}]}"#;
        let done = |index: usize, item: &str| {
            format!(r#"{{"type":"response.output_item.done","output_index":{index},"item":{item}}}"#)
        };
        let (one, two) = (call("1"), call("2"));
        let last =
            format!(r#"{{"type":"response.completed","response":{{"output":[{message},{one},{two}]}}}}"#);
        let table = [
            vec![done(0, message)],
            vec![done(0, message), done(1, &one)],
            // Indices that start at one, and ids that change.
            vec![done(1, message), done(2, &one.replace("f1", "g1"))],
            vec![done(0, message), done(1, &one), done(2, &two)],
        ];
        for events in table {
            let mut assembler = EventAssembler::new("here/responses");
            let mut deltas = Vec::new();
            for data in events.iter().chain([&last]) {
                let event = Event { data: data.into(), is_whole: true, ..Event::default() };
                assembler.push(&event, &mut |delta| deltas.push(delta)).expect("it is an event");
            }
            let message = assembler.finish().message;
            let ids: Vec<_> = message.tool_calls.iter().map(|call| &*call.id).collect();
            assert_eq!((&*message.text, &*ids), ("Hm.", &["c1", "c2"][..]), "{events:?}");
            let calls = deltas.iter().filter(|delta| matches!(delta, Delta::ToolCall { .. })).count();
            assert_eq!(calls, 2, "{events:?}");
        }
    }

    #[test]
    fn replaces_lone_surrogates() {
        let output = r#"{"output":[
            {"type":"message","content":[{"type":"output_text","text":"a\ud83d"}]},
            {"type":"function_call","call_id":"1","name":"now","arguments":"{\"a\":\"\ude00\"}"}
        ]}"#;
        let mut whole = EventAssembler::new("here/responses");
        whole.push_whole(output).expect("it can be read");
        let mut assembler = EventAssembler::new("here/responses");
        let data = format!(r#"{{"type":"response.completed","response":{output}}}"#);
        let event = Event { data: data.into(), is_whole: true, ..Event::default() };
        assembler.push(&event, &mut |_| {}).expect("it can be read");
        for message in [whole, assembler].map(|assembler| assembler.finish().message) {
            assert_eq!(message.text, "a\u{fffd}");
            assert_eq!(message.tool_calls[0].arguments, "{\"a\":\"\u{fffd}\"}");
            let data = message.provider_data.expect("items are stored");
            assert!(
                !data
                    .for_provider("here/responses")
                    .expect("the data is this provider's")
                    .as_str()
                    .contains("ud83d")
            );
        }
    }

    /// Finding an item must not take forever with a malicious server.
    #[test]
    fn rejects_items_beyond_the_limit() {
        let mut assembler = EventAssembler::new("here/responses");
        let first = MAX_ITEMS - 100;
        assembler.items.extend((0..first as u64).map(|index| PartialItem::new(Some(index))));
        let mut push = |index: usize| {
            let data =
                format!(r#"{{"type":"response.output_text.delta","output_index":{index},"delta":"a"}}"#);
            let event = Event { data: data.into(), is_whole: true, ..Event::default() };
            assembler.push(&event, &mut |_| {})
        };
        assert!((first..MAX_ITEMS).all(|index| matches!(push(index), Ok(Flow::Continue))));
        let error = (0..2).map(|more| push(MAX_ITEMS + more)).find_map(Result::err);
        assert!(matches!(error, Some(EventError::Malformed(reason)) if reason == "more than 10000 items"));

        let items = vec!["1"; MAX_ITEMS + 1].join(",");
        let whole = assembler.push_whole(&format!(r#"{{"output":[{items}]}}"#));
        assert!(
            matches!(whole, Err(EventError::Malformed(reason)) if reason.starts_with("more than 10000 items"))
        );
    }
}
