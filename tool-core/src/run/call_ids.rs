//! Unique ids for calls.

use std::collections::HashSet;

use super::state::Run;
use crate::model::{AssistantMessage, Message};
use crate::tool::{ToolError, ToolExecution};

impl Run {
    /// Replaces every id that is blank or was used before, because an id ties a result to its call; also one that contains a `/`,
    /// which separates the ids of a [path](crate::run::Wait::path). Returns, by position, the outcomes of calls that an id identifies
    /// as calls of an earlier turn.
    ///
    /// Two calls of one reply are two calls, whatever their ids. A repeated id of an earlier turn of the agent refers to that call:
    /// with the same arguments its outcome is reused, with others the call is refused. Some servers, however, count calls from
    /// zero in every reply or use the tool's name as the id; such ids identify nothing.
    pub(super) fn assign_call_ids(&mut self, message: &mut AssistantMessage) -> Vec<(usize, ToolExecution)> {
        self.index_calls();
        let mut index = self.call_index.take().unwrap_or_default();
        let mut known = Vec::new();
        let mut replaced = HashSet::new();
        let first_of_agent = self.head.handoffs.last().map_or(0, |handoff| handoff.executions);
        for (position, call) in message.tool_calls.iter_mut().enumerate() {
            let is_usable = !call.id.trim().is_empty() && !call.id.contains('/');
            let is_replaced = replaced.contains(&call.id);
            if is_usable && !is_replaced && index.insert_id(&call.id, position) {
                continue;
            }
            let mut id = format!("call_{}_{position}", self.head.turns);
            while !index.insert_id(&id, position) {
                id.push('_');
            }
            let repeated = std::mem::replace(&mut call.id, id);
            if !is_replaced && repeated != call.name && !is_count(&repeated) {
                let earlier = index.execution(&repeated).filter(|position| *position >= first_of_agent);
                let earlier = earlier.and_then(|position| self.history.executions().get(position));
                let outcome = earlier.map(|earlier| {
                    if earlier.was_requested_as(call) {
                        return ToolExecution::new(call.clone(), earlier.outcome.clone()).into_reused();
                    }
                    let why =
                        "an earlier call with other arguments has the same id; give each call a unique id";
                    ToolExecution::new(call.clone(), Err(ToolError::not_executed(why)))
                });
                known.extend(outcome.map(|outcome| (position, outcome)));
            }
            replaced.insert(repeated);
        }
        self.call_index = Some(index);
        known
    }

    /// Brings the index of calls up to date, so that copies of the run need not read all of it.
    pub(crate) fn index_calls(&mut self) {
        let index = self.call_index.get_or_insert_default();
        // A compaction begins a new index.
        let hidden = if index.is_new() { self.history.hidden_outputs() } else { HashSet::new() };
        index.catch_up(self.history.messages(), self.history.executions(), &hidden);
    }

    /// Returns the ids of all calls of the conversation.
    pub(super) fn call_ids(&self) -> impl Iterator<Item = &str> {
        let calls = self.messages().iter().filter_map(Message::as_assistant).flat_map(|one| &one.tool_calls);
        calls.map(|call| &*call.id)
    }
}

/// Returns `true` for an id that consists of words and small numbers only, such as `0`, `call_1` or `functions.sum:0`.
fn is_count(id: &str) -> bool {
    let is_number = |piece: &str| piece.len() <= 3 && piece.bytes().all(|byte| byte.is_ascii_digit());
    let is_word = |piece: &str| piece.chars().all(char::is_alphabetic);
    let mut pieces = id.split(|c: char| !c.is_alphanumeric()).filter(|piece| !piece.is_empty()).peekable();
    pieces.clone().any(is_number) && pieces.all(|piece| is_number(piece) || is_word(piece))
}

#[cfg(test)]
mod tests {
    use super::is_count;

    #[test]
    fn recognizes_ids_that_only_count() {
        for id in ["0", "12", "call_0", "call-7", "functions.get_weather:0", "tool_call_3", "call_1_0"] {
            assert!(is_count(id), "{id}");
        }
        for id in [
            "",
            "a",
            "call_abc",
            "call_abc123",
            "call_9xT2",
            "f4f1d9c0-0d65-4d1b",
            "call_17639",
            "toolu_01A0",
        ] {
            assert!(!is_count(id), "{id}");
        }
    }
}
