//! One item of a response that is coming.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;
use tool_core::ToolCall;

use super::item::{Item, Kind, Part, PartKind};
use crate::quirks::compact;

/// What is new of an item.
pub(super) enum Piece {
    Part { kind: PartKind, index: u64, text: String },
    Arguments(String),
}

/// One item that is coming.
#[derive(Default)]
pub(super) struct Slot {
    /// Its place among the items, as the server counts them.
    pub(super) index: Option<u64>,
    pub(super) kind: Kind,
    /// The id that it had last: some servers give it another one with every event.
    pub(super) id: Option<String>,
    pub(super) call: Call,
    parts: BTreeMap<(PartKind, u64), Part>,
    /// The item as it came when it was done.
    pub(super) done: Option<String>,
}

/// What the item of a call says of it.
#[derive(Default)]
pub(super) struct Call {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: String,
    /// Its position among the calls that were told of, once it was.
    pub(super) told: Option<usize>,
}

impl Slot {
    pub(super) fn new(index: Option<u64>) -> Self {
        Self { index, ..Self::default() }
    }

    /// Takes in more of a part.
    pub(super) fn add(&mut self, kind: PartKind, index: u64, more: Part, tell: &mut dyn FnMut(Piece)) {
        if more.text.is_empty() && more.logprobs.is_empty() {
            return;
        }
        let part = self.parts.entry((kind, index)).or_default();
        part.logprobs.extend(more.logprobs);
        if !more.text.is_empty() {
            part.text.push_str(&more.text);
            tell(Piece::Part { kind, index, text: more.text });
        }
    }

    /// Takes in a part as it is when it is whole, and tells what was not told of it.
    pub(super) fn set(&mut self, kind: PartKind, index: u64, whole: Part, tell: &mut dyn FnMut(Piece)) {
        let part = self.parts.entry((kind, index)).or_default();
        if let Some(rest) = whole.text.strip_prefix(&*part.text).filter(|rest| !rest.is_empty()) {
            tell(Piece::Part { kind, index, text: rest.to_owned() });
        }
        part.text = whole.text;
        if !whole.logprobs.is_empty() {
            part.logprobs = whole.logprobs;
        }
    }

    /// Takes in more of the arguments.
    pub(super) fn add_arguments(&mut self, more: &str, tell: &mut dyn FnMut(Piece)) {
        self.call.arguments.push_str(more);
        if !more.is_empty() {
            tell(Piece::Arguments(more.to_owned()));
        }
    }

    /// Takes in the arguments as they are when they are whole, and tells what was not told of them.
    pub(super) fn set_arguments(&mut self, whole: String, tell: &mut dyn FnMut(Piece)) {
        let rest = whole.strip_prefix(&*self.call.arguments).filter(|rest| !rest.is_empty());
        if let Some(rest) = rest {
            tell(Piece::Arguments(rest.to_owned()));
        }
        self.call.arguments = whole;
    }

    /// Takes in the item as it is when it is done, which is what counts.
    pub(super) fn finish(&mut self, item: Item, json: &RawValue, tell: &mut dyn FnMut(Piece)) {
        // Some servers leave the parts out there, though they told them.
        if !item.parts.is_empty() {
            let there: BTreeSet<_> = item.parts.iter().map(|(kind, index, _)| (*kind, *index)).collect();
            self.parts.retain(|key, _| there.contains(key));
        }
        self.take(item, tell);
        self.done = Some(compact(json.get()));
    }

    /// Takes in the item as it is so far.
    pub(super) fn take(&mut self, item: Item, tell: &mut dyn FnMut(Piece)) {
        self.kind = item.kind;
        self.id = item.id.or(self.id.take());
        if self.call.told.is_none() {
            self.call.id = item.call_id.or(self.call.id.take());
            self.call.name = item.name.or(self.call.name.take());
        }
        if let Some(arguments) = item.arguments {
            self.set_arguments(arguments, tell);
        }
        for (kind, index, part) in item.parts {
            self.set(kind, index, part, tell);
        }
    }

    /// What the item says of this kind, part by part.
    pub(super) fn parts_of(&self, kind: PartKind) -> impl Iterator<Item = &Part> {
        self.parts.range((kind, 0)..=(kind, u64::MAX)).map(|(_, part)| part)
    }

    /// The call, which has an id once it was told of.
    pub(super) fn to_call(&self) -> ToolCall {
        let Call { id, name, arguments, told: _ } = &self.call;
        ToolCall::new(id.clone().unwrap_or_default(), name.clone().unwrap_or_default(), arguments)
    }
}
