//! Unique ids for calls, and calls that the model repeats.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashSet};

use super::state::Stage;
use crate::model::{AssistantMessage, Message, ToolCall};
use crate::run::{Run, StopReason};
use crate::tool::{ToolError, ToolExecution};

impl Run {
    /// Replaces every id that is blank or was used before, because an id ties a result to its call. Returns, by position,
    /// the outcomes of calls that an id identifies as calls of an earlier turn.
    ///
    /// Two calls of one reply are two calls, whatever their ids. A repeated id of an earlier turn refers to that call: with
    /// the same arguments its outcome is reused, with others the call is refused. Some servers, however, count calls from
    /// zero in every reply or use the tool's name as the id; such ids identify nothing.
    pub(super) fn assign_call_ids(&self, message: &mut AssistantMessage) -> Vec<(usize, ToolExecution)> {
        let mut known = Vec::new();
        let used_before = self.ids_used_before(&message.tool_calls);
        // Collected only if an id is replaced, as conversations can be long.
        let all_before = LazyCell::new(|| self.call_ids().collect::<HashSet<_>>());
        let (mut in_this_reply, mut replaced) = (HashSet::new(), HashSet::new());
        let is_single = message.tool_calls.len() == 1;
        for (position, call) in message.tool_calls.iter_mut().enumerate() {
            let is_duplicate = in_this_reply.contains(&call.id) || replaced.contains(&call.id);
            if is_duplicate || call.id.trim().is_empty() || used_before.contains(&call.id) {
                let identifies = !is_duplicate && call.id != call.name && !is_count(&call.id);
                let find =
                    || self.tool_executions.iter().find(|one| one.was_executed() && one.call().id == call.id);
                let earlier = if identifies { find().cloned() } else { None };
                let mut id = format!("call_{}_{position}", self.turns);
                while in_this_reply.contains(&id) || all_before.contains(&*id) {
                    id.push('_');
                }
                replaced.insert(std::mem::replace(&mut call.id, id));
                known.extend(earlier.map(|earlier| {
                    let outcome = if earlier.was_requested_as(call) {
                        ToolExecution::new(call.clone(), earlier.result().clone()).into_reused()
                    } else {
                        let why = "its id is that of an earlier call with other arguments; give each call a unique id";
                        ToolExecution::new(call.clone(), Err(ToolError::not_executed(why)))
                    };
                    (position, outcome)
                }));
            }
            if !is_single {
                in_this_reply.insert(call.id.clone());
            }
        }
        known
    }

    /// Returns the ids of these calls that the conversation has used before.
    fn ids_used_before(&self, calls: &[ToolCall]) -> HashSet<String> {
        if let [call] = calls {
            return self.call_ids().find(|id| *id == call.id).map(str::to_owned).into_iter().collect();
        }
        // A hash lookup, as a reply can contain thousands of calls.
        let ids: HashSet<&str> = calls.iter().map(|call| &*call.id).collect();
        self.call_ids().filter(|id| ids.contains(id)).map(str::to_owned).collect()
    }

    /// Returns the ids of all calls of the conversation.
    pub(super) fn call_ids(&self) -> impl Iterator<Item = &str> {
        let replies = self.messages.iter().filter_map(Message::as_assistant);
        replies.flat_map(|message| &message.tool_calls).map(|call| &*call.id)
    }

    /// Refuses calls that were repeated too often, with a result that says so; stops the run if the model keeps repeating
    /// them.
    pub(super) fn refuse_repeated_calls(&mut self) {
        let limit = self.settings.limits.max_repeated_calls.max(1) as usize;
        let calls = self.calls();
        if let [call] = calls
            && self.tool_executions.iter().filter(|one| one.was_requested_as(call)).count() < limit
        {
            return;
        }
        let mut counts: BTreeMap<(&str, &str), usize> =
            calls.iter().map(|call| (name_and_arguments(call), 0)).collect();
        for one in &self.tool_executions {
            if let Some(count) = counts.get_mut(&(&*one.call().name, one.original_arguments())) {
                *count += 1;
            }
        }
        let mut stop_reason = None;
        let mut refused = Vec::new();
        for (position, call) in calls.iter().enumerate() {
            let before = counts.get_mut(&name_and_arguments(call)).map_or(0, |count| {
                *count += 1;
                *count - 1
            });
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

/// Returns the parts that are equal in identical calls.
fn name_and_arguments(call: &ToolCall) -> (&str, &str) {
    (&call.name, &call.arguments)
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
