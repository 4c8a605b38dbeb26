//! Histories that a provider refuses, made into ones that it takes.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::model::{AssistantMessage, Message, ToolCall, ToolMessage};

/// What stands for the result of a call that has none.
const INTERRUPTED: &str = "the call was interrupted before a result was produced";

/// A history that providers accept: every call has one result, right behind the message that asks for it.
///
/// - A call without a result gets one that is an error and says that the call was interrupted.
/// - A result belongs to the last call of its id before it. Apart from its call, it is brought there; without
///   a call, or as the second one of a call, it is left out.
/// - Of two calls of one id in one message, the second gets an id of its own. The same id in a later message is
///   another call, and stays.
///
/// All other messages stay as they are and where they are. A history that providers accept is given back untouched, and
/// not copied; so a repaired one is not changed again.
///
/// ```
/// use std::borrow::Cow;
///
/// use tool_core::{AssistantMessage, Message, ToolCall, repair_history};
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
    let results = Results::of(messages);
    if results.are_in_place(messages) {
        return Cow::Borrowed(messages);
    }
    let mut ids = Ids::of(messages);
    let mut repaired = Vec::with_capacity(messages.len());
    for (position, message) in messages.iter().enumerate() {
        match message {
            Message::Tool(_) => {}
            Message::Assistant(asking) if !asking.tool_calls.is_empty() => {
                let asking = ids.made_unique(asking);
                let results = results.behind(position, &asking.tool_calls);
                repaired.push(Message::Assistant(asking.into_owned()));
                repaired.extend(results.into_iter().map(Message::Tool));
            }
            other => repaired.push(other.clone()),
        }
    }
    Cow::Owned(repaired)
}

/// The results of all calls, by the position of the message that asks for them.
struct Results<'a>(HashMap<usize, Vec<Found<'a>>>);

/// A call and, if it has one, the position of its result with it.
struct Found<'a> {
    call: &'a ToolCall,
    result: Option<(usize, &'a ToolMessage)>,
}

impl<'a> Results<'a> {
    fn of(messages: &'a [Message]) -> Self {
        let mut found: HashMap<usize, Vec<Found<'a>>> = HashMap::new();
        // The last message that has a call of an id.
        let mut asking: HashMap<&str, usize> = HashMap::new();
        for (position, message) in messages.iter().enumerate() {
            match message {
                Message::Assistant(message) if !message.tool_calls.is_empty() => {
                    let calls = message.tool_calls.iter();
                    asking.extend(calls.clone().map(|call| (&*call.id, position)));
                    found.insert(position, calls.map(|call| Found { call, result: None }).collect());
                }
                Message::Tool(result) => {
                    let calls = asking.get(&*result.call_id).and_then(|asking| found.get_mut(asking));
                    let is_open =
                        |found: &&mut Found<'_>| found.call.id == result.call_id && found.result.is_none();
                    if let Some(open) = calls.and_then(|calls| calls.iter_mut().find(is_open)) {
                        open.result = Some((position, result));
                    }
                }
                _ => {}
            }
        }
        Self(found)
    }

    /// Nothing is missing, apart, left over or of an ambiguous id.
    fn are_in_place(&self, messages: &[Message]) -> bool {
        let results = messages.iter().filter(|message| matches!(message, Message::Tool(_))).count();
        let calls: usize = self.0.values().map(Vec::len).sum();
        results == calls
            && self.0.iter().all(|(&position, found)| {
                let ids: HashSet<_> = found.iter().map(|found| &found.call.id).collect();
                ids.len() == found.len() && follow(position, found)
            })
    }

    /// The results of the calls of a message, in the order of the calls; in their own where they are in place. The calls are
    /// given with the ids that they have now.
    fn behind(&self, position: usize, calls: &[ToolCall]) -> Vec<ToolMessage> {
        let found = self.0.get(&position).map(Vec::as_slice).unwrap_or_default();
        let mut results: Vec<_> = found
            .iter()
            .zip(calls)
            .map(|(found, call)| match found.result {
                Some((position, result)) => {
                    (position, ToolMessage { call_id: call.id.clone(), ..result.clone() })
                }
                None => (0, interrupted(call)),
            })
            .collect();
        if follow(position, found) {
            results.sort_by_key(|(position, _)| *position);
        }
        results.into_iter().map(|(_, result)| result).collect()
    }
}

/// All calls of the message at this position have their results right behind it.
fn follow(position: usize, found: &[Found<'_>]) -> bool {
    let behind = position + 1..=position + found.len();
    found.iter().all(|found| found.result.is_some_and(|(position, _)| behind.contains(&position)))
}

fn interrupted(call: &ToolCall) -> ToolMessage {
    let mut result = ToolMessage::new(&*call.id, &*call.name, INTERRUPTED);
    result.is_error = true;
    result
}

/// All ids of calls of a history.
struct Ids(HashSet<String>);

impl Ids {
    fn of(messages: &[Message]) -> Self {
        let calls = messages.iter().filter_map(Message::as_assistant).flat_map(|message| &message.tool_calls);
        Self(calls.map(|call| call.id.clone()).collect())
    }

    /// The message, with an id of its own for every call whose id an earlier call of it has.
    fn made_unique<'a>(&mut self, message: &'a AssistantMessage) -> Cow<'a, AssistantMessage> {
        let mut message = Cow::Borrowed(message);
        for position in 1..message.tool_calls.len() {
            let (earlier, rest) = message.tool_calls.split_at(position);
            if earlier.iter().any(|call| call.id == rest[0].id) {
                let mut id = format!("{}_{position}", rest[0].id);
                while !self.0.insert(id.clone()) {
                    id.push('_');
                }
                message.to_mut().tool_calls[position].id = id;
            }
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a:1,2` is a message of the model with two calls, `1=x` the result `x` of one, anything else is of the user.
    fn history(told: &str) -> Vec<Message> {
        let message = |word: &str| match (word.strip_prefix("a:"), word.split_once('=')) {
            (Some(ids), _) => {
                let calls = ids.split(',').map(|id| ToolCall::new(id, "sum", "{}"));
                Message::Assistant(AssistantMessage::default().with_tool_calls(calls))
            }
            (_, Some((id, text))) => Message::Tool(ToolMessage::new(id, "sum", text)),
            _ => Message::user(word),
        };
        told.split_whitespace().map(message).collect()
    }

    fn told(messages: &[Message]) -> String {
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
    fn what_is_broken_is_repaired() {
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
            // Apart from its call.
            ("a:1 u 1=x v", "a:1 1=x u v"),
            ("a:1,2 2=y u 1=x", "a:1,2 1=x 2=y u"),
            ("a:1 a:2 2=y 1=x", "a:1 1=x a:2 2=y"),
            // Two results of one call.
            ("a:1 1=x 1=y u", "a:1 1=x u"),
            ("a:1 1=x u 1=y", "a:1 1=x u"),
            // One id in several messages: a result is of the last one before it.
            ("a:1 a:1 1=x", "a:1 1! a:1 1=x"),
            ("a:1 1=x u a:1 v", "a:1 1=x u a:1 1! v"),
            ("a:1 a:1 1=x 1=y", "a:1 1! a:1 1=x"),
            // One id in one message.
            ("a:1,1 1=x 1=y", "a:1,1_1 1=x 1_1=y"),
            ("a:1,1,1 1=x", "a:1,1_1,1_2 1=x 1_1! 1_2!"),
            ("a:1,1,1_1 1=x 1=y 1_1=z", "a:1,1_1_,1_1 1=x 1_1_=y 1_1=z"),
            // What is in place stays in its order, also beside what is not.
            ("a:1,2 2=y 1=x a:3", "a:1,2 2=y 1=x a:3 3!"),
        ];
        for (broken, expected) in table {
            let broken = history(broken);
            let repaired = repair_history(&broken);
            assert_eq!(told(&repaired), expected);
            assert!(matches!(repair_history(&repaired), Cow::Borrowed(_)), "{expected}");
        }
    }

    #[test]
    fn what_is_valid_is_not_copied() {
        let table = ["", "u", "u a:1 1=x v", "a:1,2 2=y 1=x", "a:1 1=x a:1 1=y", "a:1 1=x a:2 2=x u v"];
        for valid in table {
            let valid = history(valid);
            assert!(
                matches!(repair_history(&valid), Cow::Borrowed(same) if same == valid),
                "{}",
                told(&valid)
            );
        }
    }
}
