//! Unique ids for calls, and calls that the model repeats.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, RandomState};

use super::state::Stage;
use crate::model::{AssistantMessage, Message, ToolCall};
use crate::run::{Run, StopReason};
use crate::tool::{ToolError, ToolExecution};

/// An index of the calls of a run, so that a turn costs no more in a longer conversation. It follows from the rest of the run
/// and is not stored.
///
/// It contains hashes, because arguments can be long. They have 64 bits and a random key, so equal ones are of equal calls.
#[derive(Clone, Default)]
pub(super) struct CallIndex {
    hasher: RandomState,
    /// The number of messages that the index covers.
    messages: usize,
    /// The number of executions that the index covers.
    executions: usize,
    /// The ids of all calls.
    ids: HashSet<u64>,
    /// The position of the first execution with each id, of those that the run executed.
    executed: HashMap<u64, usize>,
    /// The number of finished calls with each name and arguments.
    requests: HashMap<u64, usize>,
}

impl CallIndex {
    /// Adds what was added to the run.
    fn update(&mut self, messages: &[Message], executions: &[ToolExecution]) {
        for call in calls_of(&messages[self.messages..]) {
            self.insert_id(&call.id);
        }
        for (position, execution) in executions.iter().enumerate().skip(self.executions) {
            let request = self.request(&execution.call.name, execution.original_arguments());
            *self.requests.entry(request).or_default() += 1;
            if execution.was_executed() {
                self.executed.entry(self.hasher.hash_one(&execution.call.id)).or_insert(position);
            }
        }
        (self.messages, self.executions) = (messages.len(), executions.len());
    }

    /// Adds an id. Returns `false` if a call has it already.
    fn insert_id(&mut self, id: &str) -> bool {
        self.ids.insert(self.hasher.hash_one(id))
    }

    fn request(&self, name: &str, arguments: &str) -> u64 {
        self.hasher.hash_one((name, arguments))
    }
}

impl fmt::Debug for CallIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallIndex").finish_non_exhaustive()
    }
}

/// Returns the calls in these messages.
fn calls_of(messages: &[Message]) -> impl Iterator<Item = &ToolCall> {
    messages.iter().filter_map(Message::as_assistant).flat_map(|message| &message.tool_calls)
}

impl Run {
    /// Replaces every id that is blank or was used before, because an id ties a result to its call; also one that contains a `/`,
    /// which separates the ids of a [path](crate::run::CallPath). Returns, by position, the outcomes of calls that an id identifies
    /// as calls of an earlier turn.
    ///
    /// Two calls of one reply are two calls, whatever their ids. A repeated id of an earlier turn refers to that call: with
    /// the same arguments its outcome is reused, with others the call is refused. Some servers, however, count calls from
    /// zero in every reply or use the tool's name as the id; such ids identify nothing.
    pub(super) fn assign_call_ids(&mut self, message: &mut AssistantMessage) -> Vec<(usize, ToolExecution)> {
        let mut known = Vec::new();
        let mut replaced = HashSet::new();
        let index = self.call_index.get_or_insert_default();
        index.update(&self.messages, &self.tool_executions);
        for (position, call) in message.tool_calls.iter_mut().enumerate() {
            let is_usable = !call.id.trim().is_empty() && !call.id.contains('/');
            if is_usable && !replaced.contains(&call.id) && index.insert_id(&call.id) {
                continue;
            }
            let identifies = !replaced.contains(&call.id) && call.id != call.name && !is_count(&call.id);
            let executed = index.executed.get(&index.hasher.hash_one(&call.id));
            let earlier = executed.filter(|_| identifies).map(|position| &self.tool_executions[*position]);
            let mut id = format!("call_{}_{position}", self.turns);
            while !index.insert_id(&id) {
                id.push('_');
            }
            replaced.insert(std::mem::replace(&mut call.id, id));
            known.extend(earlier.map(|earlier| {
                let outcome = if earlier.was_requested_as(call) {
                    ToolExecution::new(call.clone(), earlier.outcome.clone()).into_reused()
                } else {
                    let why =
                        "its id is that of an earlier call with other arguments; give each call a unique id";
                    ToolExecution::new(call.clone(), Err(ToolError::not_executed(why)))
                };
                (position, outcome)
            }));
        }
        known
    }

    /// Returns the ids of all calls of the conversation.
    pub(super) fn call_ids(&self) -> impl Iterator<Item = &str> {
        calls_of(&self.messages).map(|call| &*call.id)
    }

    /// Refuses calls that were repeated too often, with a result that says so; stops the run if the model keeps repeating
    /// them.
    pub(super) fn refuse_repeated_calls(&mut self) {
        let limit = self.settings.limits.max_repeated_calls.max(1) as usize;
        let Some(index) = &self.call_index else { return };
        let earlier = |request: &u64| index.requests.get(request).copied().unwrap_or_default();
        // The usual case, without allocations.
        if let [call] = self.calls()
            && earlier(&index.request(&call.name, &call.arguments)) < limit
        {
            return;
        }
        let mut counts = HashMap::new();
        let mut stop_reason = None;
        let mut refused = Vec::new();
        for (position, call) in self.calls().iter().enumerate() {
            let request = index.request(&call.name, &call.arguments);
            let count = counts.entry(request).or_insert_with_key(earlier);
            let before = *count;
            *count += 1;
            if before < limit {
                continue;
            }
            if before >= limit.saturating_mul(2) {
                stop_reason = Some(StopReason::RepeatedCall(call.name.clone()));
            }
            let why = format!(
                "it was requested {before} times with these arguments already; \
                 continue with its earlier result, or use other arguments"
            );
            refused.push((position, ToolExecution::new(call.clone(), Err(ToolError::not_executed(&why)))));
        }
        if let Stage::Calling(turn) = &mut self.stage {
            for (position, refused) in refused {
                if let Some(record) = turn.calls.get_mut(position).filter(|record| record.is_open()) {
                    record.finish(refused);
                }
            }
        }
        if let Some(reason) = stop_reason {
            self.stop(reason);
        }
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
