//! Repair of histories that providers would reject.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use crate::model::{Message, ToolCall, ToolMessage};

/// What the model reads as the result of a call that has none.
pub(crate) const INTERRUPTED: &str = "the call was interrupted before a result was produced";

/// Repairs a history so that providers accept it: every call has exactly one result, directly after the message with the
/// call.
///
/// - A call without a result gets an error result, which states that the call was interrupted.
/// - A result belongs to the last preceding call with its id. It is moved to its call if other messages are in between. A
///   result without a call, and a second result of a call, are removed.
/// - If two calls in one message have the same id, the second gets a new id. The same id in a later message refers to
///   another call, and is not changed.
///
/// All other messages and their order are preserved. A valid history is returned without a copy, so repairing a repaired
/// history has no effect.
///
/// ```
/// use std::borrow::Cow;
///
/// use tool_core::model::AssistantMessage;
/// use tool_core::provider::repair_history;
/// use tool_core::{Message, ToolCall};
///
/// let call = AssistantMessage::default().with_tool_calls([ToolCall::new("call_1", "now", "{}")]);
/// let broken = [Message::user("What time is it?"), Message::Assistant(call), Message::user("Hello?")];
/// let repaired = repair_history(&broken);
/// assert_eq!(repaired[2].text(), "the call was interrupted before a result was produced");
/// assert_eq!(repaired[3].text(), "Hello?");
/// assert!(matches!(repair_history(&repaired), Cow::Borrowed(_)));
/// ```
#[must_use]
pub fn repair_history(messages: &[Message]) -> Cow<'_, [Message]> {
    let results = CallResults::collect(messages);
    if results.are_valid(messages) {
        return Cow::Borrowed(messages);
    }
    let replies = messages.iter().filter_map(Message::as_assistant);
    let mut ids: HashSet<_> =
        replies.flat_map(|reply| &reply.tool_calls).map(|call| call.id.clone()).collect();
    let mut numbers = HashMap::new();
    let mut repaired = Vec::with_capacity(messages.len());
    for (position, message) in messages.iter().enumerate() {
        match message {
            Message::Tool(_) => {}
            Message::Assistant(message) if !message.tool_calls.is_empty() => {
                let mut message = message.clone();
                make_ids_unique(&mut message.tool_calls, &mut ids, &mut numbers);
                let results = results.results_for(position, &message.tool_calls);
                repaired.push(Message::Assistant(message));
                repaired.extend(results.into_iter().map(Message::Tool));
            }
            other => repaired.push(other.clone()),
        }
    }
    Cow::Owned(repaired)
}

/// [Repairs](repair_history) messages that were changed. Missing results are taken from the messages before.
pub(crate) fn restore_results<'a>(changed: &'a [Message], before: &[Message]) -> Cow<'a, [Message]> {
    let (found, known) = (CallResults::collect(changed), CallResults::collect(before));
    if found.0.values().flatten().all(|call| call.result.is_some()) {
        return repair_history(changed);
    }
    // From the last one backwards, because ids can be repeated: servers that count calls from zero.
    let mut earlier = (0..before.len()).rev().filter_map(|position| known.0.get(&position));
    let mut restored = Vec::with_capacity(before.len());
    for (position, message) in changed.iter().enumerate().rev() {
        if let Some(calls) = found.0.get(&position) {
            let has = |all: &[CallResult<'_>], id: &str| all.iter().any(|one| one.call.id == id);
            let mut rest = earlier.clone();
            let same = rest.find(|all| calls.iter().any(|one| has(all, &one.call.id)));
            if same.is_some() {
                earlier = rest;
            }
            let is_missing = |one: &&CallResult<'_>| {
                calls.iter().any(|call| call.call.id == one.call.id && call.result.is_none())
            };
            let results = same.into_iter().flatten().rev().filter(is_missing).filter_map(|one| one.result);
            restored.extend(results.map(|(_, result)| Message::Tool(result.clone())));
        }
        restored.push(message.clone());
    }
    restored.reverse();
    Cow::Owned(repair_history(&restored).into_owned())
}

/// The calls of a history and their results, by the position of the message with the calls.
struct CallResults<'a>(HashMap<usize, Vec<CallResult<'a>>>);

/// A call and its result with its position, if there is one.
struct CallResult<'a> {
    call: &'a ToolCall,
    result: Option<(usize, &'a ToolMessage)>,
}

impl<'a> CallResults<'a> {
    fn collect(messages: &'a [Message]) -> Self {
        let mut by_position: HashMap<usize, Vec<CallResult<'a>>> = HashMap::new();
        // The position of the last message with a call of each id, and the indices of its calls with this id that have no
        // result yet.
        let mut last_call: HashMap<&str, (usize, VecDeque<usize>)> = HashMap::new();
        for (position, message) in messages.iter().enumerate() {
            match message {
                Message::Assistant(message) if !message.tool_calls.is_empty() => {
                    for (index, call) in message.tool_calls.iter().enumerate() {
                        let last = last_call.entry(&call.id).or_default();
                        if last.0 != position {
                            *last = (position, VecDeque::new());
                        }
                        last.1.push_back(index);
                    }
                    let pending = message.tool_calls.iter().map(|call| CallResult { call, result: None });
                    by_position.insert(position, pending.collect());
                }
                Message::Tool(result) => {
                    let Some((call, pending)) = last_call.get_mut(&*result.call_id) else { continue };
                    if let (Some(index), Some(calls)) = (pending.pop_front(), by_position.get_mut(call)) {
                        calls[index].result = Some((position, result));
                    }
                }
                _ => {}
            }
        }
        Self(by_position)
    }

    /// Returns `true` if no result is missing, misplaced or superfluous, and no id is ambiguous.
    fn are_valid(&self, messages: &[Message]) -> bool {
        let results = messages.iter().filter(|message| matches!(message, Message::Tool(_))).count();
        let calls: usize = self.0.values().map(Vec::len).sum();
        results == calls
            && self.0.iter().all(|(&position, calls)| {
                let ids: HashSet<_> = calls.iter().map(|call| &call.call.id).collect();
                ids.len() == calls.len() && follow_directly(position, calls)
            })
    }

    /// Returns the results of the calls of a message. They retain their order if they directly follow the message, and have
    /// the order of the calls otherwise. `renamed` are the calls with unique ids.
    fn results_for(&self, position: usize, renamed: &[ToolCall]) -> Vec<ToolMessage> {
        let calls = self.0.get(&position).map(Vec::as_slice).unwrap_or_default();
        let mut results: Vec<_> = calls
            .iter()
            .zip(renamed)
            .map(|(original, call)| match original.result {
                Some((position, result)) => {
                    (position, ToolMessage { call_id: call.id.clone(), ..result.clone() })
                }
                None => (0, interrupted_result(call)),
            })
            .collect();
        if follow_directly(position, calls) {
            results.sort_by_key(|(position, _)| *position);
        }
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// Returns `true` if the results of all calls directly follow the message at this position.
fn follow_directly(position: usize, calls: &[CallResult<'_>]) -> bool {
    let expected = position + 1..=position + calls.len();
    calls.iter().all(|call| call.result.is_some_and(|(position, _)| expected.contains(&position)))
}

fn interrupted_result(call: &ToolCall) -> ToolMessage {
    let mut result = ToolMessage::new(&*call.id, &*call.name, INTERRUPTED);
    result.is_error = true;
    result
}

/// Replaces the id of every call of a message whose id an earlier one has. `taken` are the ids of all calls of the history, and
/// `numbers` the last number that was appended to each id.
fn make_ids_unique(
    calls: &mut [ToolCall],
    taken: &mut HashSet<String>,
    numbers: &mut HashMap<String, usize>,
) {
    let mut earlier = HashSet::new();
    for call in calls {
        if earlier.insert(call.id.clone()) {
            continue;
        }
        let number = numbers.entry(call.id.clone()).or_default();
        call.id = loop {
            *number += 1;
            let id = format!("{}_{number}", call.id);
            if taken.insert(id.clone()) {
                break id;
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::AssistantMessage;

    /// Parses a history: `a:1,2` is an assistant message with two calls, `1=x` is the result `x` of a call, and anything
    /// else is a user message.
    fn history(notation: &str) -> Vec<Message> {
        let message = |word: &str| match (word.strip_prefix("a:"), word.split_once('=')) {
            (Some(ids), _) => {
                let calls = ids.split(',').map(|id| ToolCall::new(id, "sum", "{}"));
                Message::Assistant(AssistantMessage::default().with_tool_calls(calls))
            }
            (_, Some((id, text))) => Message::Tool(ToolMessage::new(id, "sum", text)),
            _ => Message::user(word),
        };
        notation.split_whitespace().map(message).collect()
    }

    /// Formats a history; `1!` is the result of an interrupted call.
    fn notation(messages: &[Message]) -> String {
        let word = |message: &Message| match message {
            Message::Assistant(message) => {
                let ids: Vec<_> = message.tool_calls.iter().map(|call| &*call.id).collect();
                format!("a:{}", ids.join(","))
            }
            Message::Tool(result) if result.is_error => {
                assert_eq!((&*result.content.text(), &*result.name), (INTERRUPTED, "sum"));
                format!("{}!", result.call_id)
            }
            Message::Tool(result) => format!("{}={}", result.call_id, result.content),
            other => other.text().into_owned(),
        };
        messages.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn repairs_invalid_histories() {
        let table = [
            // A call without a result.
            ("u a:1", "u a:1 1!"),
            ("u a:1 v", "u a:1 1! v"),
            ("a:1,2,3 2=x v", "a:1,2,3 1! 2=x 3! v"),
            ("a:1 a:2 2=x", "a:1 1! a:2 2=x"),
            // A result without a call.
            ("1=x u", "u"),
            ("u 2=x a:1 1=y 3=z v", "u a:1 1=y v"),
            ("1=x a:1", "a:1 1!"),
            // A result that does not directly follow its call.
            ("a:1 u 1=x v", "a:1 1=x u v"),
            ("a:1,2 2=y u 1=x", "a:1,2 1=x 2=y u"),
            ("a:1 a:2 2=y 1=x", "a:1 1=x a:2 2=y"),
            // Two results of one call.
            ("a:1 1=x 1=y u", "a:1 1=x u"),
            ("a:1 1=x u 1=y", "a:1 1=x u"),
            // The same id in several messages: a result belongs to the last call before it.
            ("a:1 a:1 1=x", "a:1 1! a:1 1=x"),
            ("a:1 1=x u a:1 v", "a:1 1=x u a:1 1! v"),
            ("a:1 a:1 1=x 1=y", "a:1 1! a:1 1=x"),
            // The same id in one message.
            ("a:1,1 1=x 1=y", "a:1,1_1 1=x 1_1=y"),
            ("a:1,1,1 1=x", "a:1,1_1,1_2 1=x 1_1! 1_2!"),
            ("a:1,1 1=x 1=y a:1,1 1=x 1=y", "a:1,1_1 1=x 1_1=y a:1,1_2 1=x 1_2=y"),
            ("a:1,1,1_1 1=x 1=y 1_1=z", "a:1,1_2,1_1 1=x 1_2=y 1_1=z"),
            // Results in the right place retain their order, even if others are missing.
            ("a:1,2 2=y 1=x a:3", "a:1,2 2=y 1=x a:3 3!"),
        ];
        for (broken, expected) in table {
            let broken = history(broken);
            let repaired = repair_history(&broken);
            assert_eq!(notation(&repaired), expected);
            assert!(matches!(repair_history(&repaired), Cow::Borrowed(_)), "{expected}");
        }
    }

    #[test]
    fn restores_results_to_their_calls() {
        let table = [
            ("a:1 1=x b", "a:1 b", "a:1 1=x b"),
            // Ids are repeated.
            ("a:1 1=x u a:1 1=y", "a:1 u a:1", "a:1 1=x u a:1 1=y"),
            ("a:1 1=x u a:1 1=y", "a:1 u a:1 1=y", "a:1 1=x u a:1 1=y"),
            ("a:1 1=x u a:1 1=y", "a:1 1=x u a:1", "a:1 1=x u a:1 1=y"),
            // The first reply was removed.
            ("a:1 1=x u a:1 1=y", "u a:1", "u a:1 1=y"),
            // A call or one of several results was removed.
            ("a:1,2 1=x 2=y u", "a:1,2 2=y u", "a:1,2 1=x 2=y u"),
            ("a:1,2 1=x 2=y u", "a:2 u", "a:2 2=y u"),
            ("a:1,2 2=y 1=x u", "a:1,2 u", "a:1,2 1=x 2=y u"),
            // A reply was added.
            ("a:1 1=x u", "a:1 a:9 u", "a:1 1=x a:9 9! u"),
            // A call that had no result before was interrupted.
            ("u", "a:1", "a:1 1!"),
        ];
        for (before, changed, expected) in table {
            let (before, changed) = (history(before), history(changed));
            assert_eq!(notation(&restore_results(&changed, &before)), expected);
        }
    }

    #[test]
    fn does_not_copy_a_valid_history() {
        let table = ["", "u", "u a:1 1=x v", "a:1,2 2=y 1=x", "a:1 1=x a:1 1=y", "a:1 1=x a:2 2=x u v"];
        for valid in table {
            let valid = history(valid);
            assert!(
                matches!(repair_history(&valid), Cow::Borrowed(same) if same == valid),
                "{}",
                notation(&valid)
            );
        }
    }
}
