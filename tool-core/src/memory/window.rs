//! Selection of the part of a conversation that is sent to a model.

use std::fmt;
use std::sync::Arc;

use crate::model::{Message, estimate_tokens};

/// A limit on the history that is sent to a model: recent messages that fit.
///
/// A window ([`ChatMemory::window`](crate::ChatMemory::window)) applies to the history before a question. The
/// question and the messages that follow it are always sent. Stored conversations are not truncated.
///
/// - A message with tool calls and their results are sent together or not at all, so that a history never begins with a
///   result.
/// - Once a conversation exceeds the limit, the oldest messages are left out until half of it is used. Then it grows again: each question
///   sends the same start of the history, which a prompt cache has, and another one only now and then. The selection may be empty.
/// - System messages are always sent, and count towards the limit.
///
/// ```
/// use tool_core::memory::Window;
///
/// let twenty = Window::messages(20);
/// let short = Window::tokens(4_000);
/// let counted = Window::tokens(4_000).count_with(|message| message.text().split_whitespace().count());
/// # let _ = (twenty, short, counted);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Window {
    limit: usize,
    unit: &'static str,
    count: Arc<dyn Fn(&Message) -> usize + Send + Sync>,
}

impl Window {
    /// Limits the history to a number of messages.
    pub fn messages(limit: usize) -> Self {
        Self { limit, unit: "messages", count: Arc::new(|_| 1) }
    }

    /// Limits the history to an estimated number of tokens.
    ///
    /// Four bytes of text count as one token, including the names and arguments of calls. An image counts as 1,000 tokens,
    /// and each message adds 4. Reasoning does not count. [`count_with`](Self::count_with) allows exact counting with the
    /// model's tokenizer.
    pub fn tokens(limit: usize) -> Self {
        Self { limit, unit: "estimated tokens", count: Arc::new(estimate_tokens) }
    }

    /// Measures each message with a function; the limit is in the unit that it returns. It is called for each message each
    /// time a conversation is opened, so it should be fast.
    pub fn count_with(self, count: impl Fn(&Message) -> usize + Send + Sync + 'static) -> Self {
        Self { unit: "custom unit", count: Arc::new(count), ..self }
    }

    /// Removes the messages that do not fit. The results of each call must directly follow it.
    #[must_use]
    pub fn apply(&self, mut messages: Vec<Message>) -> Vec<Message> {
        let size = |message: &Message| (self.count)(message);
        let system = messages.iter().filter(|message| is_system(message));
        let system = system.fold(0_usize, |sum, message| sum.saturating_add(size(message)));
        let limit = self.limit.checked_sub(system);
        let mut groups: Vec<(usize, usize)> = Vec::new();
        for (position, message) in messages.iter().enumerate() {
            let size = if is_system(message) { 0 } else { size(message) };
            match groups.last_mut().filter(|_| matches!(message, Message::Tool(_))) {
                Some((_, group)) => *group = group.saturating_add(size),
                None => groups.push((position, size)),
            }
        }
        let first = limit.map_or(groups.len(), |limit| first_group(&groups, limit));
        let first = groups.get(first).map_or(messages.len(), |(position, _)| *position);
        let mut position = 0..;
        messages.retain(|message| position.next() >= Some(first) || is_system(message));
        messages
    }
}

/// Returns the first of these groups that is sent. It follows from the groups alone, and further ones seldom change it.
fn first_group(groups: &[(usize, usize)], limit: usize) -> usize {
    // Sums of these do not overflow.
    let (limit, size) = (limit as u128, |group: usize| groups[group].1 as u128);
    let (mut first, mut total) = (0, 0);
    for last in 0..groups.len() {
        total += size(last);
        if total > limit {
            while first < last && total > limit / 2 || first == last && total > limit {
                total -= size(first);
                first += 1;
            }
        }
    }
    first
}

fn is_system(message: &Message) -> bool {
    matches!(message, Message::System(_))
}

/// Returns the start of the last group of messages: a message with calls and the results that follow it.
pub(crate) fn group_start(messages: &[Message]) -> usize {
    messages.iter().rposition(|message| !matches!(message, Message::Tool(_))).unwrap_or(0)
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Window({}, {})", self.limit, self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{AssistantMessage, ToolCall, ToolMessage};

    /// Parses a history: `s…` is a system message, `c…` has two calls, `r…` is a result, `a…` is an assistant message, and
    /// anything else is a user message.
    fn history(notation: &str) -> Vec<Message> {
        let message = |word: &str| match word.as_bytes()[0] {
            b's' => Message::system(word),
            b'c' => {
                let calls = ["1", "2"].map(|id| ToolCall::new(id, "sum", "{}"));
                Message::Assistant(AssistantMessage::text(word).with_tool_calls(calls))
            }
            b'r' => Message::Tool(ToolMessage::new("1", "sum", word)),
            b'a' => Message::assistant(word),
            _ => Message::user(word),
        };
        notation.split_whitespace().map(message).collect()
    }

    fn sent(window: &Window, notation: &str) -> String {
        let messages = window.apply(history(notation));
        messages.iter().map(Message::text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn limits_the_number_of_messages() {
        let table = [
            (2, "", ""),
            (2, "u a", "u a"),
            (2, "u1 a1 u2 a2", "u2 a2"),
            (9, "u1 a1 u2 a2", "u1 a1 u2 a2"),
            (0, "u1 a1", ""),
            // Calls and their results form one group.
            (2, "u c r", "c r"),
            (2, "u c r a", "a"),
            (3, "u c r1 r2 a", "a"),
            (4, "u c r1 r2 a", "a"),
            (5, "u c r1 r2 a", "u c r1 r2 a"),
            (3, "u c1 r1 c2 r2", "c2 r2"),
            (4, "u c1 r1 c2 r2", "c2 r2"),
            // The newest group does not fit, so earlier messages are not sent either.
            (1, "u c r", ""),
            (2, "u1 a1 c r1 r2", ""),
            // System messages are always sent, and count towards the limit.
            (2, "s u1 a1 u2 a2", "s a2"),
            (3, "s u1 a1 u2 a2", "s u2 a2"),
            (1, "s u1 a1", "s"),
            (0, "s u1 a1", "s"),
            (1, "s1 u1 s2 a1", "s1 s2"),
            (3, "s1 u1 s2 a1", "s1 s2 a1"),
            (2, "s u c r", "s"),
        ];
        for (limit, notation, expected) in table {
            assert_eq!(sent(&Window::messages(limit), notation), expected, "{limit} of {notation}");
        }
    }

    #[test]
    fn moves_in_steps() {
        let window = Window::messages(10);
        let (mut history, mut starts) = (Vec::new(), Vec::new());
        for number in 0..100 {
            history.push(Message::user(number.to_string()));
            let sent = window.apply(history.clone());
            assert!(sent.len() <= 10 && (sent.len() >= 5 || number < 5), "{number}: {}", sent.len());
            starts.push(sent[0].text().into_owned());
        }
        starts.dedup();
        assert_eq!(starts.len(), 16);
    }

    #[test]
    fn limits_the_size_of_messages() {
        let letters = |limit| Window::tokens(limit).count_with(|message| message.text().len());
        let table = [
            (letters(5), "u1 a1 u2 a2", "u2 a2"),
            (letters(4), "u1 a1 u2 a2", "u2 a2"),
            (letters(3), "u1 a1 u2 a2", "a2"),
            (letters(6), "u1 along u2 a2", "u2 a2"),
            (letters(3), "s u1 a1", "s a1"),
            (letters(0), "s u1 a1", "s"),
            (Window::tokens(10), "u1 a1 u2 a2", "u2 a2"),
            (Window::tokens(9), "u1 a1 u2 a2", "a2"),
            (Window::tokens(4), "u1 a1 u2 a2", ""),
            (Window::messages(9).count_with(|_| usize::MAX / 2 + 1), "u c r", ""),
        ];
        for (window, notation, expected) in table {
            assert_eq!(sent(&window, notation), expected, "{window:?} of {notation}");
        }
    }
}
