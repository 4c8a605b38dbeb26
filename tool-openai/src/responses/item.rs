//! One item of a response's output, as far as it is read.

use serde::Deserialize;
use serde_json::value::RawValue;
use tool_core::TokenLogprob;

use crate::quirks;

/// What an item is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Reasoning,
    Call,
    /// What the provider's own tools did, and whatever else there may come to be: passed over, but for being sent back.
    #[default]
    Other,
}

/// What a part of an item is. An item has its parts in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PartKind {
    /// What is told of the reasoning.
    Summary,
    /// The reasoning itself.
    Thought,
    Text,
    Refusal,
}

/// A part of an item.
#[derive(Default)]
pub(super) struct Part {
    pub(super) text: String,
    pub(super) logprobs: Vec<TokenLogprob>,
}

/// An item, whole or with what there is of it so far.
#[derive(Default)]
pub(super) struct Item {
    pub(super) kind: Kind,
    pub(super) id: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: Option<String>,
    /// Each with its place among those of its kind.
    pub(super) parts: Vec<(PartKind, u64, Part)>,
    /// What can be sent back of reasoning to a provider that stored nothing.
    pub(super) has_reasoning: bool,
}

/// Each field as it is, so that an item of an unknown kind is one all the same.
#[derive(Deserialize)]
struct WireItem<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    encrypted_content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WirePart<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
}

impl Item {
    /// Reads an item; one that is not even an object is nothing.
    pub(super) fn read(json: &RawValue) -> Self {
        let Ok(wire) = serde_json::from_str::<WireItem<'_>>(json.get()) else { return Self::default() };
        let mut item = Self {
            kind: match wire.kind.and_then(text).as_deref() {
                Some("message") => Kind::Message,
                Some("reasoning") => Kind::Reasoning,
                Some("function_call") => Kind::Call,
                _ => Kind::Other,
            },
            id: wire.id.and_then(text),
            ..Self::default()
        };
        match item.kind {
            Kind::Message => item.add_parts(wire.content, PartKind::Text),
            Kind::Reasoning => {
                item.add_parts(wire.summary, PartKind::Summary);
                item.add_parts(wire.content, PartKind::Thought);
                item.has_reasoning = wire.encrypted_content.and_then(text).is_some()
                    || item.parts.iter().any(|(kind, ..)| *kind == PartKind::Thought);
            }
            Kind::Call => {
                item.call_id = wire.call_id.and_then(text);
                item.name = wire.name.and_then(text);
                item.arguments = wire.arguments.and_then(arguments);
            }
            Kind::Other => {}
        }
        item
    }

    fn add_parts(&mut self, list: Option<&RawValue>, kind: PartKind) {
        let Some(list) = list else { return };
        let Ok(parts) = serde_json::from_str::<Vec<WirePart<'_>>>(list.get()) else {
            // Some servers have a plain text there.
            self.parts.extend(text(list).map(|text| (kind, 0, Part { text, logprobs: Vec::new() })));
            return;
        };
        for (index, part) in (0..).zip(parts) {
            let logprobs = part.logprobs.map(logprobs).unwrap_or_default();
            let refusal = part.refusal.and_then(text).map(|text| (PartKind::Refusal, text));
            let found = part.text.and_then(text).map(|text| (kind, text)).or(refusal);
            self.parts.extend(found.map(|(kind, text)| (kind, index, Part { text, logprobs })));
        }
    }

    /// What the item says of this kind, all parts of it.
    pub(super) fn text_of(&self, of: PartKind) -> impl Iterator<Item = &str> {
        self.parts.iter().filter(move |(kind, ..)| *kind == of).map(|(_, _, part)| &*part.text)
    }
}

/// A text that says something.
pub(super) fn text(json: &RawValue) -> Option<String> {
    serde_json::from_str::<String>(json.get()).ok().filter(|text| !text.is_empty())
}

/// Arguments, which some servers send as the object itself.
pub(super) fn arguments(json: &RawValue) -> Option<String> {
    quirks::arguments(json).ok().flatten()
}

/// Likelihoods; what cannot be read of them is no reason to lose the answer.
pub(super) fn logprobs(json: &RawValue) -> Vec<TokenLogprob> {
    serde_json::from_str(json.get()).unwrap_or_default()
}
