//! The items of a response's output.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use tool_core::model::{Citation, TokenLogprob};

use crate::lenient::{self, MaybeObject};
use crate::{annotations, logprobs, quirks};

/// The maximum number of parts of an item: far more than any item has.
const MAX_PARTS: usize = 1 << 10;

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
    /// Calls of the provider's own tools, and unknown types. They are ignored, except that they are sent back.
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
    /// The item contains reasoning that is meaningful to a provider that has not stored it.
    pub(super) is_self_contained: bool,
    /// The call is of a tool in a namespace, as those are that the provider has found.
    pub(super) has_namespace: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireItem<'a> {
    #[serde(rename = "type", borrow, deserialize_with = "lenient::string")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    call_id: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "quirks::deserialize_arguments")]
    arguments: Option<Cow<'a, str>>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    encrypted_content: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(transparent)]
struct WireParts<'a> {
    #[serde(borrow, deserialize_with = "lenient::array::<MAX_PARTS, _, _>")]
    parts: Vec<WirePart<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WirePart<'a> {
    #[serde(borrow, deserialize_with = "lenient::string")]
    text: Option<Cow<'a, str>>,
    #[serde(borrow, deserialize_with = "lenient::string")]
    refusal: Option<Cow<'a, str>>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
}

impl OutputItem {
    /// Parses an item. JSON that is not an object is treated as an empty item.
    pub(super) fn parse(json: &RawValue) -> Self {
        let parsed = serde_json::from_str::<MaybeObject<WireItem<'_>>>(json.get());
        let Ok(MaybeObject(Some(wire))) = parsed else { return Self::default() };
        let non_empty =
            |text: Option<Cow<'_, str>>| text.filter(|text| !text.is_empty()).map(Cow::into_owned);
        let mut item = Self {
            kind: match wire.kind.as_deref() {
                Some("message") => ItemKind::Message,
                Some("reasoning") => ItemKind::Reasoning,
                Some("function_call") => ItemKind::FunctionCall,
                Some("tool_search_call") => ItemKind::ToolSearchCall,
                Some("tool_search_output") => ItemKind::ToolSearchOutput,
                _ => ItemKind::Other,
            },
            id: non_empty(wire.id),
            ..Self::default()
        };
        match item.kind {
            ItemKind::Message => item.add_parts(wire.content, PartKind::Text),
            ItemKind::Reasoning => {
                item.add_parts(wire.summary, PartKind::Summary);
                item.add_parts(wire.content, PartKind::Reasoning);
                let has_text = item.parts.iter().any(|(kind, ..)| *kind == PartKind::Reasoning);
                item.is_self_contained = has_text || non_empty(wire.encrypted_content).is_some();
            }
            ItemKind::FunctionCall => {
                item.call_id = non_empty(wire.call_id);
                item.name = non_empty(wire.name);
                item.has_namespace = non_empty(wire.namespace).is_some();
                item.arguments = wire.arguments.map(Cow::into_owned);
            }
            ItemKind::ToolSearchCall | ItemKind::ToolSearchOutput | ItemKind::Other => {}
        }
        item
    }

    fn add_parts(&mut self, json: Option<&RawValue>, kind: PartKind) {
        let Some(json) = json.map(RawValue::get) else { return };
        if let Ok(text) = serde_json::from_str::<String>(json) {
            // Some servers send a string.
            self.parts.push((kind, 0, Part { text, ..Part::default() }));
        }
        let parts =
            serde_json::from_str::<WireParts<'_>>(json).map_or_else(|_| Vec::new(), |parts| parts.parts);
        for (index, part) in (0..).zip(parts) {
            let logprobs = logprobs::parse_array(part.logprobs);
            let citations = annotations::parse_array(part.annotations);
            let refusal = part.refusal.map(|text| (PartKind::Refusal, text));
            let found = part.text.map(|text| (kind, text)).or(refusal);
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
