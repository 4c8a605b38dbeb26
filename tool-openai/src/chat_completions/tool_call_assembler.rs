//! Assembles the tool calls of a response from their fragments.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use tool_core::ToolCall;
use tool_core::model::Delta;
use tool_core::provider::{JsonText, ProviderData};
use tool_http::client::EventError;

use super::brackets::BracketTracker;
use super::response::WireCall;
use crate::quirks;

/// The maximum number of tool calls: far more than any reply has.
const MAX_CALLS: usize = 1 << 10;

/// Assembles tool calls.
#[derive(Default)]
pub(super) struct ToolCallAssembler {
    calls: Vec<PartialCall>,
    /// The number of calls that were emitted.
    emitted: usize,
}

/// A call that has arrived in part.
struct PartialCall {
    index: Option<u64>,
    call: ToolCall,
    /// The brackets of the arguments so far.
    brackets: BracketTracker,
    /// The call had no id when it was emitted. It keeps the id that was generated for it.
    has_generated_id: bool,
    /// Its index among the emitted calls, once it has a name.
    emitted_index: Option<usize>,
    /// Provider data that is sent back with the call.
    extra_content: Option<Box<str>>,
}

/// The content of an entry of the array of calls.
#[derive(Clone, Copy)]
pub(super) enum EntryKind {
    Whole,
    Fragment,
}

impl ToolCallAssembler {
    /// Consumes an entry of the array of calls and emits its deltas.
    pub(super) fn push(
        &mut self,
        wire: WireCall<'_>,
        entry_kind: EntryKind,
        emit: &mut dyn FnMut(Delta),
    ) -> Result<(), EventError> {
        let is_not_blank = |text: &Cow<'_, str>| !text.trim().is_empty();
        let (index, id) = (wire.index.0, wire.id.0.filter(is_not_blank));
        let function = wire.function.0.unwrap_or_default();
        let name = function.name.0.filter(is_not_blank);
        let arguments = function.arguments.0.unwrap_or_default();
        let found = match entry_kind {
            EntryKind::Whole => None,
            EntryKind::Fragment => self.find(index, id.as_deref(), name.as_deref(), &arguments),
        };
        let position = match found {
            Some(position) => position,
            None => self.start_call(index)?,
        };
        let partial = &mut self.calls[position];
        if let Some(id) = id.filter(|_| !partial.has_generated_id) {
            partial.call.id = id.into_owned();
        }
        // Some servers repeat the name in every fragment.
        if let Some(name) = name.filter(|_| partial.call.name.is_empty()) {
            partial.call.name = name.into_owned();
        }
        partial.call.arguments.push_str(&arguments);
        partial.brackets.push(&arguments);
        if let Some(extra) = wire.extra_content {
            partial.extra_content = Some(extra.get().into());
        }
        match partial.emitted_index {
            Some(index) if !arguments.is_empty() => {
                emit(Delta::Arguments { index, text: arguments.into_owned() });
            }
            None if !partial.call.name.is_empty() => {
                partial.emit(self.emitted, emit);
                self.emitted += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the position of the call that a fragment belongs to, or `None` if it starts a new call.
    ///
    /// The index identifies the call if there is one, but two ids with one index are two calls. Without an index, a new id
    /// starts a new call. Without both, the fragment belongs to the latest call, unless it can only start another.
    fn find(
        &self,
        index: Option<u64>,
        id: Option<&str>,
        name: Option<&str>,
        arguments: &str,
    ) -> Option<usize> {
        let has_same_id = |known: &PartialCall| {
            id.is_none_or(|id| known.call.id.is_empty() || known.has_generated_id || known.call.id == id)
        };
        let found = match (index, id) {
            (Some(_), _) => self.calls.iter().rposition(|known| known.index == index && has_same_id(known)),
            (None, Some(id)) => self.calls.iter().rposition(|known| known.call.id == id),
            (None, None) => self.calls.len().checked_sub(1),
        }?;
        let latest = &self.calls[found];
        let starts_another =
            id.is_none() && name.is_some_and(|name| latest.is_followed_by(name, index.is_some(), arguments));
        (!starts_another).then_some(found)
    }

    fn start_call(&mut self, index: Option<u64>) -> Result<usize, EventError> {
        if self.calls.len() == MAX_CALLS {
            return Err(EventError::Malformed(format!("more than {MAX_CALLS} tool calls")));
        }
        self.calls.push(PartialCall {
            index,
            call: ToolCall::new("", "", ""),
            brackets: BracketTracker::default(),
            has_generated_id: false,
            emitted_index: None,
            extra_content: None,
        });
        Ok(self.calls.len() - 1)
    }

    /// Returns the calls in the order in which they were emitted.
    pub(super) fn finish(mut self, provider: &str) -> Vec<ToolCall> {
        self.calls.sort_by_key(|partial| partial.emitted_index.unwrap_or(usize::MAX));
        // DeepSeek ends with an empty call.
        let is_empty = |call: &ToolCall| call.name.is_empty() && call.arguments.is_empty();
        let calls = self.calls.into_iter().filter(|partial| !is_empty(&partial.call));
        calls.map(|partial| partial.into_call(provider)).collect()
    }
}

impl PartialCall {
    /// Emits the call and the arguments that arrived before its name.
    fn emit(&mut self, index: usize, emit: &mut dyn FnMut(Delta)) {
        self.emitted_index = Some(index);
        if self.call.id.is_empty() {
            self.call.id = quirks::generate_call_id();
            self.has_generated_id = true;
        }
        emit(Delta::ToolCall { index, id: self.call.id.clone(), name: self.call.name.clone() });
        if !self.call.arguments.is_empty() {
            emit(Delta::Arguments { index, text: self.call.arguments.clone() });
        }
    }

    /// Returns `true` if a fragment without an id, but with this name, belongs to another call: it names another tool and
    /// has no index, or it has arguments although this call's are complete.
    fn is_followed_by(&self, name: &str, has_index: bool, arguments: &str) -> bool {
        if self.call.name.is_empty() {
            return false;
        }
        let is_other_tool = !has_index && self.call.name != name;
        is_other_tool || (!arguments.trim_ascii().is_empty() && self.has_complete_arguments())
    }

    /// Returns `true` if the arguments are an object. They are parsed only if their brackets are closed, so that they are
    /// not parsed for every fragment.
    fn has_complete_arguments(&self) -> bool {
        self.brackets.is_closed() && serde_json::from_str::<IgnoredAny>(&self.call.arguments).is_ok()
    }

    fn into_call(mut self, provider: &str) -> ToolCall {
        if self.call.id.is_empty() {
            self.call.id = quirks::generate_call_id();
        }
        let fields = self.extra_content.map(|extra| format!(r#"{{"extra_content":{extra}}}"#));
        let json = fields.and_then(|fields| JsonText::from_json(&fields).ok());
        self.call.provider_data = json.map(|json| ProviderData::new(provider, json));
        self.call
    }
}
