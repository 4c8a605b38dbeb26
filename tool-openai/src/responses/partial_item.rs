//! An item of a streamed response that is still in progress.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;
use tool_core::ToolCall;
use tool_core::provider::compact_json;

use super::output_item::{ItemKind, OutputItem, Part, PartKind};

/// New data of an item.
pub(super) enum ItemDelta {
    Part { kind: PartKind, index: u64, text: String },
    Arguments(String),
}

/// An item that has arrived in part.
#[derive(Default)]
pub(super) struct PartialItem {
    /// The index that the server gives it.
    pub(super) index: Option<u64>,
    pub(super) kind: ItemKind,
    /// The latest id: some servers change it with every event.
    pub(super) id: Option<String>,
    pub(super) call: PartialCall,
    parts: BTreeMap<(PartKind, u64), Part>,
    /// The JSON of the item once it is complete.
    pub(super) complete_json: Option<String>,
}

/// The data of a function call.
#[derive(Default)]
pub(super) struct PartialCall {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: String,
    /// Its index among the emitted calls, once it was emitted.
    pub(super) emitted_index: Option<usize>,
}

impl PartialItem {
    pub(super) fn new(index: Option<u64>) -> Self {
        Self { index, ..Self::default() }
    }

    /// Appends to a part.
    pub(super) fn append(&mut self, kind: PartKind, index: u64, more: Part, emit: &mut dyn FnMut(ItemDelta)) {
        if more.text.is_empty() && more.logprobs.is_empty() && more.citations.is_empty() {
            return;
        }
        let part = self.parts.entry((kind, index)).or_default();
        part.logprobs.extend(more.logprobs);
        part.citations.extend(more.citations);
        if !more.text.is_empty() {
            part.text.push_str(&more.text);
            emit(ItemDelta::Part { kind, index, text: more.text });
        }
    }

    /// Sets a part to its final value and emits the rest of it.
    pub(super) fn set(&mut self, kind: PartKind, index: u64, whole: Part, emit: &mut dyn FnMut(ItemDelta)) {
        let part = self.parts.entry((kind, index)).or_default();
        if let Some(rest) = whole.text.strip_prefix(&*part.text).filter(|rest| !rest.is_empty()) {
            emit(ItemDelta::Part { kind, index, text: rest.to_owned() });
        }
        part.text = whole.text;
        if !whole.logprobs.is_empty() {
            part.logprobs = whole.logprobs;
        }
        if !whole.citations.is_empty() {
            part.citations = whole.citations;
        }
    }

    /// Appends to the arguments.
    pub(super) fn append_arguments(&mut self, more: &str, emit: &mut dyn FnMut(ItemDelta)) {
        self.call.arguments.push_str(more);
        if !more.is_empty() {
            emit(ItemDelta::Arguments(more.to_owned()));
        }
    }

    /// Sets the arguments to their final value and emits the rest of them.
    pub(super) fn set_arguments(&mut self, whole: String, emit: &mut dyn FnMut(ItemDelta)) {
        let rest = whole.strip_prefix(&*self.call.arguments).filter(|rest| !rest.is_empty());
        if let Some(rest) = rest {
            emit(ItemDelta::Arguments(rest.to_owned()));
        }
        self.call.arguments = whole;
    }

    /// Sets the item to its final value and emits the rest of it.
    pub(super) fn complete(&mut self, item: OutputItem, json: &RawValue, emit: &mut dyn FnMut(ItemDelta)) {
        // Some servers omit parts here that they have sent before.
        if !item.parts.is_empty() {
            let final_parts: BTreeSet<_> =
                item.parts.iter().map(|(kind, index, _)| (*kind, *index)).collect();
            self.parts.retain(|key, _| final_parts.contains(key));
        }
        self.update(item, emit);
        self.complete_json = Some(compact_json(json.get()).into_owned());
    }

    /// Updates the item with its current state.
    pub(super) fn update(&mut self, item: OutputItem, emit: &mut dyn FnMut(ItemDelta)) {
        self.kind = item.kind;
        self.id = item.id.or(self.id.take());
        if self.call.emitted_index.is_none() {
            self.call.id = item.call_id.or(self.call.id.take());
            self.call.name = item.name.or(self.call.name.take());
        }
        if let Some(arguments) = item.arguments {
            self.set_arguments(arguments, emit);
        }
        for (kind, index, part) in item.parts {
            self.set(kind, index, part, emit);
        }
    }

    /// Returns the parts of this type.
    pub(super) fn parts(&self, kind: PartKind) -> impl Iterator<Item = &Part> {
        self.parts.range((kind, 0)..=(kind, u64::MAX)).map(|(_, part)| part)
    }

    /// Returns the call. It has an id once it was emitted.
    pub(super) fn to_call(&self) -> ToolCall {
        let PartialCall { id, name, arguments, emitted_index: _ } = &self.call;
        ToolCall::new(id.clone().unwrap_or_default(), name.clone().unwrap_or_default(), arguments)
    }
}
