//! One item of a response's output, as far as it is read.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tool_core::TokenLogprob;

use crate::lenient::{self, Object};
use crate::logprobs::WireLogprob;
use crate::quirks;

/// So many parts have no item: the list of one is bounded.
const MOST_PARTS: usize = 1 << 10;

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
    /// There is reasoning in it that means something to a provider which stored nothing.
    pub(super) has_reasoning: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireItem<'a> {
    #[serde(rename = "type", borrow, deserialize_with = "lenient::text")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    call_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "quirks::arguments")]
    arguments: Option<Cow<'a, str>>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    encrypted_content: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct WireParts<'a> {
    #[serde(borrow, deserialize_with = "lenient::list::<MOST_PARTS, _, _>")]
    list: Vec<WirePart<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WirePart<'a> {
    #[serde(borrow, deserialize_with = "lenient::text")]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::text")]
    refusal: Option<Cow<'a, str>>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
}

impl Item {
    /// Reads an item; one that is not even an object is nothing.
    pub(super) fn read(json: &RawValue) -> Self {
        let read = serde_json::from_str::<Object<WireItem<'_>>>(json.get());
        let Ok(Object(Some(wire))) = read else { return Self::default() };
        let said = |text: Option<Cow<'_, str>>| text.filter(|text| !text.is_empty()).map(Cow::into_owned);
        let mut item = Self {
            kind: match wire.kind.as_deref() {
                Some("message") => Kind::Message,
                Some("reasoning") => Kind::Reasoning,
                Some("function_call") => Kind::Call,
                _ => Kind::Other,
            },
            id: said(wire.id),
            ..Self::default()
        };
        match item.kind {
            Kind::Message => item.add_parts(wire.content, PartKind::Text),
            Kind::Reasoning => {
                item.add_parts(wire.summary, PartKind::Summary);
                item.add_parts(wire.content, PartKind::Thought);
                let has_thought = item.parts.iter().any(|(kind, ..)| *kind == PartKind::Thought);
                item.has_reasoning = has_thought || said(wire.encrypted_content).is_some();
            }
            Kind::Call => {
                item.call_id = said(wire.call_id);
                item.name = said(wire.name);
                item.arguments = wire.arguments.map(Cow::into_owned);
            }
            Kind::Other => {}
        }
        item
    }

    fn add_parts(&mut self, json: Option<&RawValue>, kind: PartKind) {
        let Some(json) = json.map(RawValue::get) else { return };
        if let Ok(text) = serde_json::from_str::<String>(json) {
            // Some servers have a plain text there.
            self.parts.push((kind, 0, Part { text, logprobs: Vec::new() }));
        }
        let parts =
            serde_json::from_str::<WireParts<'_>>(json).map_or_else(|_| Vec::new(), |parts| parts.list);
        for (index, part) in (0..).zip(parts) {
            let logprobs = part.logprobs.map(logprobs).unwrap_or_default();
            let refusal = part.refusal.map(|text| (PartKind::Refusal, text));
            let found = part.text.map(|text| (kind, text)).or(refusal);
            self.parts
                .extend(found.map(|(kind, text)| (kind, index, Part { text: text.into_owned(), logprobs })));
        }
    }

    /// What the item says of this kind, part by part.
    pub(super) fn texts_of(&self, of: PartKind) -> impl Iterator<Item = &str> {
        self.parts.iter().filter(move |(kind, ..)| *kind == of).map(|(_, _, part)| &*part.text)
    }
}

/// How likely tokens were. It is beside what matters: what is not of the API is left out.
pub(super) fn logprobs(json: &RawValue) -> Vec<TokenLogprob> {
    let read = serde_json::from_str::<Vec<WireLogprob<'_>>>(json.get()).unwrap_or_default();
    read.into_iter().map(Into::into).collect()
}
