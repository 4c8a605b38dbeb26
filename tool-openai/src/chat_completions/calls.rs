//! The calls of a response, put together from their fragments.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use tool_core::{Delta, JsonText, ProviderData, ToolCall};

use super::outline::Outline;
use super::response::{MOST_CALLS, WireCall, WireFunction};
use crate::quirks;
use crate::streaming::Problem;

/// The calls that are coming.
#[derive(Default)]
pub(super) struct Calls {
    slots: Vec<Slot>,
    /// How many were told of.
    told: usize,
    /// The slots are of `tool_calls`, so a `function_call` says the same again.
    has_tool_calls: bool,
}

/// One call that is coming.
struct Slot {
    index: Option<u64>,
    call: ToolCall,
    /// Of the arguments that came.
    outline: Outline,
    /// The call had no id when it was told of; it keeps the one that it was given then.
    has_made_up_id: bool,
    /// Its position among the calls that were told of, once it has a name.
    told: Option<usize>,
    /// What is sent back with it.
    extra_content: Option<Box<str>>,
}

/// What the entries of a list of calls are.
#[derive(Clone, Copy)]
pub(super) enum Entries {
    Whole,
    Fragments,
}

impl Calls {
    /// Takes in an entry of the list of calls, and tells what is new.
    pub(super) fn add(
        &mut self,
        wire: WireCall<'_>,
        entries: Entries,
        tell: &mut impl FnMut(Delta),
    ) -> Result<(), Problem> {
        self.has_tool_calls = true;
        self.add_any(wire, entries, tell)
    }

    /// Takes in the one call of old servers; of others, that is one of those in the list.
    pub(super) fn add_function_call(
        &mut self,
        function: WireFunction<'_>,
        entries: Entries,
        tell: &mut impl FnMut(Delta),
    ) -> Result<(), Problem> {
        if self.has_tool_calls {
            return Ok(());
        }
        self.add_any(WireCall { function: Some(function), ..WireCall::default() }, entries, tell)
    }

    fn add_any(
        &mut self,
        wire: WireCall<'_>,
        entries: Entries,
        tell: &mut impl FnMut(Delta),
    ) -> Result<(), Problem> {
        let is_said = |text: &Cow<'_, str>| !text.trim().is_empty();
        let id = wire.id.filter(is_said);
        let WireFunction { name, arguments } = wire.function.unwrap_or_default();
        let name = name.filter(is_said);
        let arguments = arguments.unwrap_or_default();
        let found = match entries {
            Entries::Whole => None,
            Entries::Fragments => self.find(wire.index, id.as_deref(), name.as_deref(), &arguments),
        };
        let position = match found {
            Some(position) => position,
            None => self.new_slot(wire.index)?,
        };
        let slot = &mut self.slots[position];
        if let Some(id) = id.filter(|_| !slot.has_made_up_id) {
            slot.call.id = id.into_owned();
        }
        // Some servers repeat the name in every fragment: it is set once.
        if let Some(name) = name.filter(|_| slot.call.name.is_empty()) {
            slot.call.name = name.into_owned();
        }
        slot.call.arguments.push_str(&arguments);
        slot.outline.add(&arguments);
        if let Some(extra) = wire.extra_content {
            slot.extra_content = Some(extra.get().into());
        }
        match slot.told {
            Some(index) if !arguments.is_empty() => {
                tell(Delta::Arguments { index, text: arguments.into_owned() });
            }
            None if !slot.call.name.is_empty() => {
                slot.tell(self.told, tell);
                self.told += 1;
            }
            _ => {}
        }
        Ok(())
    }

    /// The slot that a fragment belongs to, if it begins no call.
    ///
    /// The index is the key, where there is one; but one index with two ids are two calls, and without an index a new id
    /// is a new call. Without both, the fragment belongs to the latest call, unless it can only be another.
    fn find(
        &self,
        index: Option<u64>,
        id: Option<&str>,
        name: Option<&str>,
        arguments: &str,
    ) -> Option<usize> {
        let is_same_id = |slot: &Slot| {
            id.is_none_or(|id| slot.call.id.is_empty() || slot.has_made_up_id || slot.call.id == id)
        };
        let found = match (index, id) {
            (Some(_), _) => self.slots.iter().rposition(|slot| slot.index == index && is_same_id(slot)),
            (None, Some(id)) => self.slots.iter().rposition(|slot| slot.call.id == id),
            (None, None) => self.slots.len().checked_sub(1),
        }?;
        let slot = &self.slots[found];
        let begins_another =
            id.is_none() && name.is_some_and(|name| slot.is_before_another(name, index.is_some(), arguments));
        (!begins_another).then_some(found)
    }

    fn new_slot(&mut self, index: Option<u64>) -> Result<usize, Problem> {
        if self.slots.len() == MOST_CALLS {
            return Err(Problem::Unreadable(format!("it has more than {MOST_CALLS} calls")));
        }
        self.slots.push(Slot {
            index,
            call: ToolCall::new("", "", ""),
            outline: Outline::default(),
            has_made_up_id: false,
            told: None,
            extra_content: None,
        });
        Ok(self.slots.len() - 1)
    }

    /// The calls, in the order in which they were told of.
    pub(super) fn into_calls(mut self, provider: &str) -> Vec<ToolCall> {
        self.slots.sort_by_key(|slot| slot.told.unwrap_or(usize::MAX));
        // DeepSeek ends with a call that is nothing.
        let slots = self.slots.into_iter();
        let slots = slots.filter(|slot| !(slot.call.name.is_empty() && slot.call.arguments.is_empty()));
        slots.map(|slot| slot.into_call(provider)).collect()
    }
}

impl Slot {
    /// Tells of the call, and of the arguments that came before its name.
    fn tell(&mut self, index: usize, tell: &mut impl FnMut(Delta)) {
        self.told = Some(index);
        if self.call.id.is_empty() {
            self.call.id = quirks::made_up_id();
            self.has_made_up_id = true;
        }
        tell(Delta::ToolCall { index, id: self.call.id.clone(), name: self.call.name.clone() });
        if !self.call.arguments.is_empty() {
            tell(Delta::Arguments { index, text: self.call.arguments.clone() });
        }
    }

    /// A fragment without an id, but with this name, is of another call: of another tool, where no index says that it is
    /// this one; or it has arguments, and not only blanks, though this call has all of its own.
    fn is_before_another(&self, name: &str, has_index: bool, arguments: &str) -> bool {
        if self.call.name.is_empty() {
            return false;
        }
        let is_other_tool = !has_index && self.call.name != name;
        is_other_tool || (!arguments.trim_ascii().is_empty() && self.has_whole_arguments())
    }

    /// The arguments are an object. They are read only when their brackets are closed, which what comes behind them undoes:
    /// no text is read again and again.
    fn has_whole_arguments(&self) -> bool {
        self.outline.is_closed() && serde_json::from_str::<IgnoredAny>(&self.call.arguments).is_ok()
    }

    fn into_call(mut self, provider: &str) -> ToolCall {
        if self.call.id.is_empty() {
            self.call.id = quirks::made_up_id();
        }
        let fields = self.extra_content.map(|extra| format!(r#"{{"extra_content":{extra}}}"#));
        let json = fields.and_then(|fields| JsonText::from_json(&fields).ok());
        self.call.provider_data = json.map(|json| ProviderData::new(provider, json));
        self.call
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// How long it takes to put a call together from so many pieces.
    fn time(pieces: usize, name: Option<&str>) -> Duration {
        let piece = |arguments: &'static str, name: Option<&str>| WireCall {
            function: Some(WireFunction {
                name: name.map(|name| name.to_owned().into()),
                arguments: Some(arguments.into()),
            }),
            ..WireCall::default()
        };
        let mut calls = Calls::default();
        let begun = Instant::now();
        calls.add(piece(r#"{"a": [{}"#, Some("f")), Entries::Fragments, &mut drop).unwrap();
        for _ in 0..pieces {
            calls.add(piece(r#",{"a": "bcdefg"}"#, name), Entries::Fragments, &mut drop).unwrap();
        }
        calls.add(piece("]}", name), Entries::Fragments, &mut drop).unwrap();
        let time = begun.elapsed();
        let calls = calls.into_calls("p");
        assert_eq!(calls.len(), 1);
        assert!(serde_json::from_str::<IgnoredAny>(&calls[0].arguments).is_ok());
        time
    }

    #[test]
    fn a_name_in_every_piece_costs_next_to_nothing() {
        const PIECES: usize = 5_000;
        let (without, with) = (time(PIECES, None), time(PIECES, Some("f")));
        // Reading all that came with every piece takes thousands of times as long.
        assert!(with < without * 50 + Duration::from_millis(100), "{with:?}, and without a name {without:?}");
    }
}
