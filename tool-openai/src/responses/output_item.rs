//! The items of a response's output.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tool_core::provider::{Citation, TokenLogprob};

use crate::lenient::{List, Object, Text};
use crate::quirks::Arguments;
use crate::{annotations, logprobs};

/// The type of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ItemKind {
    Message,
    Reasoning,
    FunctionCall,
    /// A search of the provider for deferred tools.
    ToolSearchCall,
    /// The definitions of the tools that a search has found.
    ToolSearchOutput,
    /// What the provider has made of a conversation, encrypted.
    Compaction,
    /// Instructions, which a compacted conversation repeats.
    Instructions,
    /// Messages of the user in a compacted conversation, calls of the provider's own tools, and unknown types. They are ignored, except that they are sent back.
    #[default]
    Other,
}

/// The type of a part of an item. The parts of an item have this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PartKind {
    /// A summary of the reasoning.
    Summary,
    /// The reasoning itself.
    Reasoning,
    Text,
    Refusal,
}

/// A part of an item.
#[derive(Default)]
pub(super) struct Part {
    pub(super) text: String,
    pub(super) logprobs: Vec<TokenLogprob>,
    /// The sources of the text, whose ranges count its characters.
    pub(super) citations: Vec<Citation>,
}

/// An item that is complete or still in progress.
#[derive(Default)]
pub(super) struct OutputItem {
    pub(super) kind: ItemKind,
    pub(super) id: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: Option<String>,
    /// Each part with its index among the parts of its type.
    pub(super) parts: Vec<(PartKind, u64, Part)>,
    /// The item contains reasoning, or a compacted conversation, that is meaningful to a provider that has not stored it.
    pub(super) is_self_contained: bool,
    /// The call is of a tool in a namespace, as those are that the provider has found.
    pub(super) has_namespace: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct WireItem<'a> {
    #[serde(rename = "type")]
    kind: Text<'a>,
    role: Text<'a>,
    id: Text<'a>,
    call_id: Text<'a>,
    name: Text<'a>,
    namespace: Text<'a>,
    arguments: Arguments<'a>,
    summary: Option<&'a RawValue>,
    content: Option<&'a RawValue>,
    encrypted_content: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct WirePart<'a> {
    text: Text<'a>,
    refusal: Text<'a>,
    logprobs: Option<&'a RawValue>,
    annotations: Option<&'a RawValue>,
}

impl OutputItem {
    /// Parses an item. JSON that is not an object is treated as an empty item.
    pub(super) fn parse(json: &RawValue) -> Self {
        let parsed = serde_json::from_str::<Object<WireItem<'_>>>(json.get());
        let Ok(Object(Some(wire))) = parsed else { return Self::default() };
        let mut item = Self {
            kind: match wire.kind.0.as_deref() {
                Some("message") => match wire.role.0.as_deref() {
                    Some("user") => ItemKind::Other,
                    Some("system" | "developer") => ItemKind::Instructions,
                    _ => ItemKind::Message,
                },
                Some("compaction") => ItemKind::Compaction,
                Some("reasoning") => ItemKind::Reasoning,
                Some("function_call") => ItemKind::FunctionCall,
                Some("tool_search_call") => ItemKind::ToolSearchCall,
                Some("tool_search_output") => ItemKind::ToolSearchOutput,
                _ => ItemKind::Other,
            },
            id: wire.id.non_empty(),
            ..Self::default()
        };
        match item.kind {
            ItemKind::Message => item.add_parts(wire.content, PartKind::Text),
            ItemKind::Reasoning => {
                item.add_parts(wire.summary, PartKind::Summary);
                item.add_parts(wire.content, PartKind::Reasoning);
                let has_text = item.parts.iter().any(|(kind, ..)| *kind == PartKind::Reasoning);
                item.is_self_contained = has_text || wire.encrypted_content.non_empty().is_some();
            }
            ItemKind::FunctionCall => {
                item.call_id = wire.call_id.non_empty();
                item.name = wire.name.non_empty();
                item.has_namespace = wire.namespace.non_empty().is_some();
                item.arguments = wire.arguments.0.map(Cow::into_owned);
            }
            ItemKind::Compaction => item.is_self_contained = wire.encrypted_content.non_empty().is_some(),
            ItemKind::ToolSearchCall
            | ItemKind::ToolSearchOutput
            | ItemKind::Instructions
            | ItemKind::Other => {}
        }
        item
    }

    fn add_parts(&mut self, json: Option<&RawValue>, kind: PartKind) {
        let Some(json) = json.map(RawValue::get) else { return };
        if let Ok(text) = serde_json::from_str::<String>(json) {
            // Some servers send a string.
            self.parts.push((kind, 0, Part { text, ..Part::default() }));
        }
        let parts = serde_json::from_str::<List<WirePart<'_>>>(json).unwrap_or_default();
        for (index, part) in (0..).zip(parts.0) {
            let logprobs = logprobs::parse_array(part.logprobs);
            let citations = annotations::parse_array(part.annotations);
            let refusal = part.refusal.0.map(|text| (PartKind::Refusal, text));
            let found = part.text.0.map(|text| (kind, text)).or(refusal);
            self.parts
                .extend(found.map(|(kind, text)| {
                    (kind, index, Part { text: text.into_owned(), logprobs, citations })
                }));
        }
    }

    /// Returns the texts of the parts of this type.
    pub(super) fn texts(&self, wanted: PartKind) -> impl Iterator<Item = &str> {
        self.parts.iter().filter(move |(kind, ..)| *kind == wanted).map(|(_, _, part)| &*part.text)
    }
}
