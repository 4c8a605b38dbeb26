//! Calls that come again: ids that were there before, and calls of the same tool with the same arguments.

use std::cell::LazyCell;
use std::collections::{BTreeMap, HashSet};

use super::ending::Ending;
use super::state::Stage;
use crate::model::{AssistantMessage, Message, ToolCall};
use crate::run::Run;
use crate::tool::{ToolError, ToolExecution};

impl Run {
    /// Gives an id of its own to every call whose id is blank or was there before: an id ties a result to its call.
    /// Gives the outcomes of the calls that are known by their ids already, by position.
    ///
    /// Two calls of one reply are two calls, whatever their ids. An id of an earlier turn that comes again names the
    /// call of that turn: with the same arguments its outcome stands, with others the call is refused. But some servers
    /// count their calls from zero in every reply, or give the name of the tool, so such an id names nothing.
    pub(super) fn name_calls(&self, message: &mut AssistantMessage) -> Vec<(usize, ToolExecution)> {
        let mut known = Vec::new();
        let came_before = self.came_before(&message.tool_calls);
        // Only made if an id is replaced, as a conversation may be long.
        let all_before = LazyCell::new(|| self.ids_of_calls().collect::<HashSet<_>>());
        let (mut of_this_reply, mut replaced) = (HashSet::new(), HashSet::new());
        let is_alone = message.tool_calls.len() == 1;
        for (position, call) in message.tool_calls.iter_mut().enumerate() {
            let is_second = of_this_reply.contains(&call.id) || replaced.contains(&call.id);
            if is_second || call.id.trim().is_empty() || came_before.contains(&call.id) {
                let again = !is_second && call.id != call.name && !is_count(&call.id);
                let find = || self.tool_executions.iter().find(|one| one.call().id == call.id);
                let same = if again { find().cloned() } else { None };
                let mut id = format!("call_{}_{position}", self.turns);
                while of_this_reply.contains(&id) || all_before.contains(&*id) {
                    id.push('_');
                }
                replaced.insert(std::mem::replace(&mut call.id, id));
                known.extend(same.map(|same| {
                    let outcome = if same.was_requested_as(call) {
                        ToolExecution::new(call.clone(), same.result().clone()).into_reused()
                    } else {
                        let why = "its id is that of an earlier call with other arguments; give each call an id of its own";
                        ToolExecution::new(call.clone(), Err(ToolError::not_executed(why)))
                    };
                    (position, outcome)
                }));
            }
            if !is_alone {
                of_this_reply.insert(call.id.clone());
            }
        }
        known
    }

    /// Those ids of the calls that were there before.
    fn came_before(&self, calls: &[ToolCall]) -> HashSet<String> {
        if let [call] = calls {
            return self.ids_of_calls().find(|id| *id == call.id).map(str::to_owned).into_iter().collect();
        }
        // Looked up and not searched for, as a reply may have thousands of calls.
        let ids: HashSet<&str> = calls.iter().map(|call| &*call.id).collect();
        self.ids_of_calls().filter(|id| ids.contains(id)).map(str::to_owned).collect()
    }

    /// The ids of all calls of the conversation.
    pub(super) fn ids_of_calls(&self) -> impl Iterator<Item = &str> {
        let replies = self.messages.iter().filter_map(Message::as_assistant);
        replies.flat_map(|message| &message.tool_calls).map(|call| &*call.id)
    }

    /// Tells the model of calls that it makes again and again, in place of making them; ends the run if that does not
    /// help.
    pub(super) fn tell_of_repeated_calls(&mut self) {
        let limit = self.settings.limits.repeated_calls.max(1) as usize;
        let calls = self.calls();
        if let [call] = calls
            && self.tool_executions.iter().filter(|one| one.was_requested_as(call)).count() < limit
        {
            return;
        }
        let mut times: BTreeMap<(&str, &str), usize> = calls.iter().map(|call| (words_of(call), 0)).collect();
        for one in &self.tool_executions {
            if let Some(times) = times.get_mut(&(&*one.call().name, one.original_arguments())) {
                *times += 1;
            }
        }
        let mut ending = None;
        let mut told = Vec::new();
        for (position, call) in calls.iter().enumerate() {
            let before = times.get_mut(&words_of(call)).map_or(0, |times| {
                *times += 1;
                *times - 1
            });
            if before < limit {
                continue;
            }
            if before >= limit.saturating_mul(2) {
                ending = Some(Ending::Repeated(call.name.clone()));
            }
            let why = format!(
                "it was asked for {before} times with these arguments already; \
                 go on with what it gave, or call with other arguments"
            );
            told.push((position, ToolExecution::new(call.clone(), Err(ToolError::not_executed(&why)))));
        }
        if let Stage::Calling(turn) = &mut self.stage {
            for (position, told) in told {
                if let Some(standing) = turn.calls.get_mut(position) {
                    standing.outcome.get_or_insert(told);
                }
            }
        }
        if let Some(ending) = ending {
            self.end(ending);
        }
    }
}

/// What two calls have in common that are the same.
fn words_of(call: &ToolCall) -> (&str, &str) {
    (&call.name, &call.arguments)
}

/// An id made of words and small numbers only, such as `0`, `call_1` or `functions.sum:0`.
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
    fn ids_that_are_counts() {
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
