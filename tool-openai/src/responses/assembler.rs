//! Puts a response together from its events; a whole answer is the last of them.

use std::borrow::Cow;

use serde_json::value::RawValue;
use tool_core::{AssistantMessage, ChatResponse, Delta, FinishReason, Usage};

use super::echo;
use super::item::{self, Item, Kind, Part, PartKind};
use super::response::{MOST_ITEMS, WireEvent, WireResponse};
use super::slot::{Piece, Slot};
use crate::quirks;
use crate::streaming::{Problem, Progress};

/// What stands between two parts of the reasoning.
const BETWEEN_THOUGHTS: &str = "\n\n";

/// What has come of a response.
pub(crate) struct Assembler<'a> {
    /// Who wants the items back.
    provider: &'a str,
    id: Option<String>,
    model: Option<String>,
    slots: Vec<Slot>,
    calls_told: usize,
    /// The part of the reasoning that was told of last.
    thought: Option<(usize, PartKind, u64)>,
    cut_short: Option<FinishReason>,
    usage: Option<Usage>,
    is_whole: bool,
}

impl<'a> Assembler<'a> {
    /// Nothing has come. The items of the response are kept under the provider's name.
    pub(super) fn new(provider: &'a str) -> Self {
        Self {
            provider,
            id: None,
            model: None,
            slots: Vec::new(),
            calls_told: 0,
            thought: None,
            cut_short: None,
            usage: None,
            is_whole: false,
        }
    }

    /// Takes in an event of this kind, and tells what is new. `data` is what it was read from.
    pub(super) fn add_event(
        &mut self,
        kind: &str,
        event: &WireEvent<'_>,
        data: &str,
        tell: &mut dyn FnMut(Delta),
    ) -> Result<Progress, Problem> {
        if self.slots.len() > MOST_ITEMS {
            return Err(Problem::Unreadable(format!("it has more than {MOST_ITEMS} items")));
        }
        match kind {
            "response.output_text.delta" => self.add_part(event, PartKind::Text, tell),
            "response.refusal.delta" => self.add_part(event, PartKind::Refusal, tell),
            "response.reasoning_summary_text.delta" => self.add_part(event, PartKind::Summary, tell),
            "response.reasoning_text.delta" => self.add_part(event, PartKind::Thought, tell),
            "response.output_text.done" => self.set_part(event, PartKind::Text, tell),
            "response.refusal.done" => self.set_part(event, PartKind::Refusal, tell),
            "response.reasoning_summary_text.done" => self.set_part(event, PartKind::Summary, tell),
            "response.reasoning_text.done" => self.set_part(event, PartKind::Thought, tell),
            "response.function_call_arguments.delta" => {
                let more = event.delta.as_deref().unwrap_or_default();
                self.with_slot(event, tell, |slot, tell| slot.add_arguments(more, tell));
            }
            "response.function_call_arguments.done" => {
                if let Some(whole) = event.arguments.as_deref() {
                    self.with_slot(event, tell, |slot, tell| slot.set_arguments(whole.to_owned(), tell));
                }
            }
            "response.output_item.added" => {
                if let Some(item) = event.item.map(Item::read) {
                    let position = self.begun(event.output_index);
                    self.change(position, tell, |slot, tell| slot.take(item, tell));
                }
            }
            "response.output_item.done" => {
                if let Some(json) = event.item {
                    let item = Item::read(json);
                    let position = self.slot(event.output_index, item.id.as_deref());
                    self.change(position, tell, |slot, tell| slot.finish(item, json, tell));
                }
            }
            "response.created" | "response.queued" | "response.in_progress" => {
                let response = event.response()?;
                self.identify(response.id, response.model);
            }
            "response.completed" | "response.done" => {
                return self.end(Some("completed"), event.response()?, tell);
            }
            "response.incomplete" => return self.end(Some("incomplete"), event.response()?, tell),
            "response.failed" => return self.end(Some("failed"), event.response()?, tell),
            "response.cancelled" => return self.end(Some("cancelled"), event.response()?, tell),
            "error" | "response.error" => return Err(Problem::Api(data.to_owned())),
            "" if quirks::is_error_body(data) => return Err(Problem::Api(data.to_owned())),
            // Further kinds, of which there are more and more, and those whose content comes again when their item is done.
            _ => {}
        }
        Ok(Progress::Goes)
    }

    /// Takes in what is told when the response ends: all of it, where nothing was told before. `told` is the status that the
    /// event tells, where it is one.
    pub(super) fn end(
        &mut self,
        told: Option<&str>,
        response: WireResponse<'_>,
        tell: &mut dyn FnMut(Delta),
    ) -> Result<Progress, Problem> {
        self.identify(response.id, response.model);
        self.usage = response.usage.map(Usage::from);
        let error = response.error.map(RawValue::get).filter(|error| quirks::is_error(error));
        let failed = || match error {
            Some(error) => Problem::Api(error.to_owned()),
            None => {
                Problem::GivenUp("the response failed, for a reason that the provider does not tell".into())
            }
        };
        match told.or(response.status.as_deref()) {
            Some("failed") => return Err(failed()),
            Some("cancelled") => return Err(Problem::GivenUp("the response was cancelled".into())),
            Some(status @ ("queued" | "in_progress")) => {
                return Err(Problem::Unreadable(format!(
                    "the response is not there yet, it is `{status}`; ask without `background`"
                )));
            }
            Some("incomplete") => {
                let reason = response.incomplete_details.and_then(|details| details.reason);
                self.cut_short = Some(match reason.as_deref() {
                    Some("content_filter") => FinishReason::ContentFilter,
                    // Whatever else the reason is: the calls of a reply that is not whole are not to be trusted.
                    _ => FinishReason::Length,
                });
            }
            _ if error.is_some() => return Err(failed()),
            _ => {}
        }
        self.complete(response.output.as_deref().unwrap_or_default(), tell);
        self.is_whole = true;
        Ok(Progress::Done)
    }

    /// Takes in the items of the whole output that were not told to their end, and the calls that no event told of. Other
    /// items that are not found are passed over: where neither places nor ids fit, they are those that were told.
    fn complete(&mut self, output: &[&RawValue], tell: &mut dyn FnMut(Delta)) {
        let nothing_was_told = self.slots.is_empty();
        for (index, json) in (0..).zip(output) {
            let item = Item::read(json);
            let is_it = |slot: &Slot| slot.index == Some(index) || (item.id.is_some() && slot.id == item.id);
            let is_same_call = |slot: &Slot| slot.call.id == item.call_id;
            let is_new_call = item.kind == Kind::Call && item.call_id.is_some();
            let position = match self.slots.iter().position(is_it) {
                _ if nothing_was_told => self.new_slot(Some(index)),
                Some(position) if self.slots[position].done.is_none() => position,
                _ if is_new_call && !self.slots.iter().any(is_same_call) => self.new_slot(Some(index)),
                _ => continue,
            };
            self.change(position, tell, |slot, tell| slot.finish(item, json, tell));
        }
    }

    fn identify(&mut self, id: Option<Cow<'_, str>>, model: Option<Cow<'_, str>>) {
        for (field, text) in [(&mut self.id, id), (&mut self.model, model)] {
            if field.is_none() {
                *field = text.filter(|text| !text.is_empty()).map(Cow::into_owned);
            }
        }
    }

    fn add_part(&mut self, event: &WireEvent<'_>, kind: PartKind, tell: &mut dyn FnMut(Delta)) {
        let more = part(event.delta.as_deref().unwrap_or_default(), event);
        self.with_slot(event, tell, |slot, tell| slot.add(kind, index_of_part(event, kind), more, tell));
    }

    fn set_part(&mut self, event: &WireEvent<'_>, kind: PartKind, tell: &mut dyn FnMut(Delta)) {
        let whole = if kind == PartKind::Refusal { &event.refusal } else { &event.text };
        if let Some(text) = whole {
            let whole = part(text, event);
            self.with_slot(event, tell, |slot, tell| slot.set(kind, index_of_part(event, kind), whole, tell));
        }
    }

    fn with_slot(
        &mut self,
        event: &WireEvent<'_>,
        tell: &mut dyn FnMut(Delta),
        change: impl FnOnce(&mut Slot, &mut dyn FnMut(Piece)),
    ) {
        let position = self.slot(event.output_index, event.item_id.as_deref());
        self.change(position, tell, change);
    }

    /// Changes a slot, and tells what is new of it; of a call nothing before its name.
    fn change(
        &mut self,
        position: usize,
        tell: &mut dyn FnMut(Delta),
        change: impl FnOnce(&mut Slot, &mut dyn FnMut(Piece)),
    ) {
        let slot = &mut self.slots[position];
        let told = slot.call.told;
        let thought = &mut self.thought;
        change(slot, &mut |piece| match piece {
            Piece::Arguments(text) => {
                if let Some(index) = told {
                    tell(Delta::Arguments { index, text });
                }
            }
            Piece::Part { kind: PartKind::Text, text, .. } => tell(Delta::Text(text)),
            Piece::Part { kind: PartKind::Refusal, text, .. } => tell(Delta::Refusal(text)),
            Piece::Part { kind, index, text } => {
                let part = Some((position, kind, index));
                let is_another = thought.is_some() && *thought != part;
                *thought = part;
                let between = if is_another { BETWEEN_THOUGHTS } else { "" };
                tell(Delta::Reasoning(format!("{between}{text}")));
            }
        });
        if slot.kind == Kind::Call && slot.call.told.is_none() && slot.call.name.is_some() {
            let index = self.calls_told;
            self.calls_told += 1;
            slot.call.told = Some(index);
            self.name_call(position);
            let call = self.slots[position].to_call();
            tell(Delta::ToolCall { index, id: call.id, name: call.name });
            if !call.arguments.is_empty() {
                tell(Delta::Arguments { index, text: call.arguments });
            }
        }
    }

    /// Gives a call an id, if it came without: the item's, or one that no other call has.
    fn name_call(&mut self, position: usize) {
        let slot = &mut self.slots[position];
        if slot.kind == Kind::Call && slot.call.id.is_none() {
            slot.call.id = Some(slot.id.clone().unwrap_or_else(quirks::made_up_id));
        }
    }

    /// The slot of an item that begins: a new one, unless a piece of it came before.
    fn begun(&mut self, index: Option<u64>) -> usize {
        let has_index = |slot: &Slot| index.is_some() && slot.index == index;
        let has_begun = |slot: &Slot| slot.done.is_some() || slot.kind != Kind::Other;
        let found = self.slots.iter().rposition(|slot| has_index(slot) && !has_begun(slot));
        found.unwrap_or_else(|| self.new_slot(index))
    }

    /// The slot of an item: by its place and its id; by its place alone, as ids may change; where no place is told, by its
    /// id; and where that is not known either, the last.
    fn slot(&mut self, index: Option<u64>, id: Option<&str>) -> usize {
        let has_id = |slot: &Slot| id.is_some() && slot.id.as_deref() == id;
        let slots = self.slots.iter();
        let found = if index.is_some() {
            let has_index = |slot: &Slot| slot.index == index;
            let both = slots.clone().rposition(|slot| has_index(slot) && has_id(slot));
            both.or_else(|| slots.clone().rposition(has_index))
        } else {
            slots.clone().rposition(has_id).or_else(|| slots.len().checked_sub(1))
        };
        found.unwrap_or_else(|| self.new_slot(index))
    }

    fn new_slot(&mut self, index: Option<u64>) -> usize {
        self.slots.push(Slot::new(index));
        self.slots.len() - 1
    }

    /// The response, of what has come.
    pub(super) fn into_response(mut self) -> ChatResponse {
        for position in 0..self.slots.len() {
            self.name_call(position);
        }
        let mut slots: Vec<_> = (0..).zip(self.slots).collect();
        // An item without a place stands where it came.
        slots.sort_by_key(|(position, slot)| slot.index.unwrap_or(*position));
        let slots: Vec<_> = slots.into_iter().map(|(_, slot)| slot).collect();
        let parts = |kind| slots.iter().flat_map(move |slot| slot.parts_of(kind));
        let text = |kind| parts(kind).map(|part| &*part.text).collect::<String>();
        let thoughts = slots
            .iter()
            .flat_map(|slot| slot.parts_of(PartKind::Summary).chain(slot.parts_of(PartKind::Thought)))
            .map(|part| &*part.text)
            .filter(|thought| !thought.is_empty())
            .collect::<Vec<_>>();
        let mut message = AssistantMessage::text(text(PartKind::Text));
        message.reasoning = Some(thoughts.join(BETWEEN_THOUGHTS)).filter(|thoughts| !thoughts.is_empty());
        message.refusal = Some(text(PartKind::Refusal)).filter(|refusal| !refusal.is_empty());
        message.tool_calls = slots.iter().filter(|slot| slot.kind == Kind::Call).map(Slot::to_call).collect();
        let done: Option<Vec<_>> = slots.iter().map(|slot| slot.done.as_deref()).collect();
        message.provider_data = done
            .filter(|done| self.is_whole && !done.is_empty())
            .and_then(|done| echo::keep(self.provider, done));
        let logprobs = parts(PartKind::Text).flat_map(|part| part.logprobs.clone()).collect();
        let mut response = ChatResponse::new(message);
        if let Some(reason) = self.cut_short {
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
    Part { text: text.to_owned(), logprobs: event.logprobs.map(item::logprobs).unwrap_or_default() }
}

fn index_of_part(event: &WireEvent<'_>, kind: PartKind) -> u64 {
    let index = if kind == PartKind::Summary { event.summary_index } else { event.content_index };
    index.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sse::Event;
    use crate::streaming::Assemble;

    /// Some servers stream texts only, and have calls in the last event.
    #[test]
    fn a_call_that_no_event_told_of_is_one() {
        let call = |id: &str| {
            format!(
                r#"{{"type":"function_call","id":"f{id}","call_id":"c{id}","name":"now","arguments":"{{}}"}}"#
            )
        };
        let said = r#"{"type":"message","id":"m","content":[{"type":"output_text","text":"Hm."}]}"#;
        let done = |index: usize, item: &str| {
            format!(r#"{{"type":"response.output_item.done","output_index":{index},"item":{item}}}"#)
        };
        let (one, two) = (call("1"), call("2"));
        let last = format!(r#"{{"type":"response.completed","response":{{"output":[{said},{one},{two}]}}}}"#);
        let table = [
            vec![done(0, said)],
            vec![done(0, said), done(1, &one)],
            // Counted from one, and with ids that change.
            vec![done(1, said), done(2, &one.replace("f1", "g1"))],
            vec![done(0, said), done(1, &one), done(2, &two)],
        ];
        for events in table {
            let mut assembler = Assembler::new("here/responses");
            let mut told = Vec::new();
            for data in events.iter().chain([&last]) {
                let event = Event { name: "".into(), data: data.into(), is_whole: true };
                assembler.add(&event, &mut |delta| told.push(delta)).expect("it is an event");
            }
            let message = assembler.into_response().message;
            let ids: Vec<_> = message.tool_calls.iter().map(|call| &*call.id).collect();
            assert_eq!((&*message.text, &*ids), ("Hm.", &["c1", "c2"][..]), "{events:?}");
            let calls = told.iter().filter(|delta| matches!(delta, Delta::ToolCall { .. })).count();
            assert_eq!(calls, 2, "{events:?}");
        }
    }

    /// Proxies that cut texts anywhere leave them; what they stand in is not lost for them.
    #[test]
    fn halves_of_characters_are_replaced() {
        let output = r#"{"output":[
            {"type":"message","content":[{"type":"output_text","text":"a\ud83d"}]},
            {"type":"function_call","call_id":"1","name":"now","arguments":"{\"a\":\"\ude00\"}"}
        ]}"#;
        let whole = super::super::response::read(output, "here/responses").expect("it can be read");
        let mut assembler = Assembler::new("here/responses");
        let data = format!(r#"{{"type":"response.completed","response":{output}}}"#);
        let event = Event { name: "".into(), data: data.into(), is_whole: true };
        assembler.add(&event, &mut |_| {}).expect("it can be read");
        for message in [whole.message, assembler.into_response().message] {
            assert_eq!(message.text, "a\u{fffd}");
            assert_eq!(message.tool_calls[0].arguments, "{\"a\":\"\u{fffd}\"}");
            let kept = message.provider_data.expect("items are kept");
            assert!(
                !kept.for_provider("here/responses").expect("they are its own").as_str().contains("ud83d")
            );
        }
    }

    /// A server that means ill may not make it take for ever to find an item.
    #[test]
    fn the_items_are_bounded() {
        let mut assembler = Assembler::new("here/responses");
        let mut add = |index: usize| {
            let data =
                format!(r#"{{"type":"response.output_text.delta","output_index":{index},"delta":"a"}}"#);
            let event = Event { name: "".into(), data: data.into(), is_whole: true };
            Assemble::add(&mut assembler, &event, &mut |_| {})
        };
        assert!((0..MOST_ITEMS).all(|index| matches!(add(index), Ok(Progress::Goes))));
        let refused = (0..2).map(|more| add(MOST_ITEMS + more)).find_map(Result::err);
        assert!(matches!(refused, Some(Problem::Unreadable(why)) if why == "it has more than 10000 items"));

        let items = vec!["1"; MOST_ITEMS + 1].join(",");
        let whole = super::super::response::read(&format!(r#"{{"output":[{items}]}}"#), "here/responses");
        assert!(
            matches!(whole, Err(Problem::Unreadable(why)) if why.starts_with("it has more than 10000 items"))
        );
    }
}
