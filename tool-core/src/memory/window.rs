//! How much of a conversation a model is sent.

use std::fmt;
use std::sync::Arc;

use crate::content::Content;
use crate::model::Message;

/// How many bytes of text are taken for a token.
const BYTES_OF_TOKEN: usize = 4;

/// How many tokens a picture is taken for.
const TOKENS_OF_IMAGE: usize = 1_000;

/// How many tokens a message is taken for beside what it holds: who speaks, and where it ends.
const TOKENS_OF_MESSAGE: usize = 4;

/// How much of a conversation a model is sent: its end, as far as there is room.
///
/// What goes with [`ChatMemory::with_window`](crate::ChatMemory::with_window) is the history that was there before a
/// question. The question and what follows it stand behind the window and are always sent. What is kept is not cut.
///
/// - A message of the model that calls tools and the results of its calls are sent together or not at all, so a
///   result never comes first.
/// - The messages are taken from the newest on, up to the first that does not fit; so none may be sent.
/// - System messages are always sent. They take room as any other.
///
/// ```
/// use tool_core::Window;
///
/// let twenty = Window::messages(20);
/// let short = Window::tokens(4_000);
/// let counted = Window::tokens(4_000).counted_by(|message| message.text().split_whitespace().count());
/// # let _ = (twenty, short, counted);
/// ```
#[derive(Clone)]
pub struct Window {
    room: usize,
    count: Count,
}

#[derive(Clone)]
enum Count {
    Messages,
    Tokens,
    By(Arc<dyn Fn(&Message) -> usize + Send + Sync>),
}

impl Window {
    /// Room for so many messages.
    #[must_use]
    pub fn messages(room: usize) -> Self {
        Self { room, count: Count::Messages }
    }

    /// Room for so many tokens.
    ///
    /// They are estimated: 4 bytes of text are a token, of calls their names and arguments count. A picture is taken for
    /// 1,000 tokens, and each message for 4 more. What a model thought aloud does not count.
    /// [`counted_by`](Self::counted_by) counts with the model's own tokens.
    #[must_use]
    pub fn tokens(room: usize) -> Self {
        Self { room, count: Count::Tokens }
    }

    /// The same room, in what this function counts for a message. It is called for each message each time a
    /// conversation is opened, so it should be quick.
    #[must_use]
    pub fn counted_by(self, count: impl Fn(&Message) -> usize + Send + Sync + 'static) -> Self {
        Self { count: Count::By(Arc::new(count)), ..self }
    }

    /// The messages there is room for. Each call has its results right behind it.
    pub(super) fn cut(&self, mut messages: Vec<Message>) -> Vec<Message> {
        let mut room = Some(self.room);
        let system = messages.iter().filter(|message| is_system(message));
        for message in system {
            room = room.and_then(|room| room.checked_sub(self.count(message)));
        }
        let (mut end, mut first) = (messages.len(), messages.len());
        while let Some(left) = room.filter(|_| end > 0) {
            let start = group_start(&messages[..end]);
            let taken = messages[start..end].iter().filter(|message| !is_system(message));
            let taken = taken.fold(0_usize, |sum, message| sum.saturating_add(self.count(message)));
            room = left.checked_sub(taken);
            end = start;
            if room.is_some() {
                first = start;
            }
        }
        let mut position = 0..;
        messages.retain(|message| position.next() >= Some(first) || is_system(message));
        messages
    }

    fn count(&self, message: &Message) -> usize {
        match &self.count {
            Count::Messages => 1,
            Count::Tokens => estimate(message),
            Count::By(count) => count(message),
        }
    }
}

fn is_system(message: &Message) -> bool {
    matches!(message, Message::System(_))
}

/// Where the last group of messages begins: results stand behind the message that asks for them.
fn group_start(messages: &[Message]) -> usize {
    messages.iter().rposition(|message| !matches!(message, Message::Tool(_))).unwrap_or(0)
}

fn estimate(message: &Message) -> usize {
    let images = |content: &Content| content.images().count();
    let (bytes, images) = match message {
        Message::System(content) | Message::User(content) => (content.len(), images(content)),
        Message::Assistant(message) => {
            let refusal = message.refusal.as_ref().map_or(0, String::len);
            let calls = message.tool_calls.iter().map(|call| call.name.len() + call.arguments.len());
            (message.text.len() + refusal + calls.sum::<usize>(), 0)
        }
        Message::Tool(result) => (result.content.len(), images(&result.content)),
    };
    bytes.div_ceil(BYTES_OF_TOKEN) + images * TOKENS_OF_IMAGE + TOKENS_OF_MESSAGE
}

impl fmt::Debug for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.count {
            Count::Messages => "messages",
            Count::Tokens => "tokens, estimated",
            Count::By(_) => "as counted by a function",
        };
        write!(f, "Window({}, {unit})", self.room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Image, Part};
    use crate::model::{AssistantMessage, ToolCall, ToolMessage};

    /// `s…` is a system message, `c…` two calls, `r…` a result, `a…` a reply, anything else is of the user.
    fn history(told: &str) -> Vec<Message> {
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
        told.split_whitespace().map(message).collect()
    }

    fn sent(window: &Window, told: &str) -> String {
        let messages = window.cut(history(told));
        messages.iter().map(Message::text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_window_of_messages() {
        let table = [
            (2, "", ""),
            (2, "u a", "u a"),
            (2, "u1 a1 u2 a2", "u2 a2"),
            (9, "u1 a1 u2 a2", "u1 a1 u2 a2"),
            (0, "u1 a1", ""),
            // Calls and their results are one.
            (2, "u c r", "c r"),
            (2, "u c r a", "a"),
            (3, "u c r1 r2 a", "a"),
            (4, "u c r1 r2 a", "c r1 r2 a"),
            (3, "u c1 r1 c2 r2", "c2 r2"),
            (4, "u c1 r1 c2 r2", "c1 r1 c2 r2"),
            // The newest does not fit, so what stands before it is not sent either.
            (1, "u c r", ""),
            (2, "u1 a1 c r1 r2", ""),
            // System messages stay where they are, and take room.
            (2, "s u1 a1 u2 a2", "s a2"),
            (3, "s u1 a1 u2 a2", "s u2 a2"),
            (1, "s u1 a1", "s"),
            (0, "s u1 a1", "s"),
            (1, "s1 u1 s2 a1", "s1 s2"),
            (3, "s1 u1 s2 a1", "s1 s2 a1"),
            (2, "s u c r", "s"),
        ];
        for (room, told, expected) in table {
            assert_eq!(sent(&Window::messages(room), told), expected, "{room} of {told}");
        }
    }

    #[test]
    fn a_window_by_size() {
        let letters = |room| Window::tokens(room).counted_by(|message| message.text().len());
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
            (Window::messages(9).counted_by(|_| usize::MAX / 2 + 1), "u c r", ""),
        ];
        for (window, told, expected) in table {
            assert_eq!(sent(&window, told), expected, "{window:?} of {told}");
        }
    }

    #[test]
    fn what_a_message_is_estimated_at() {
        let parts = || Content::from_iter([Part::from("12345"), Image::from_bytes("image/png", b"1").into()]);
        let call = AssistantMessage::text("1234").with_tool_calls([ToolCall::new("1", "sum", "{\"a\": 1}")]);
        let refusal = AssistantMessage {
            refusal: Some("never!!!".to_owned()),
            reasoning: Some("why should I".to_owned()),
            ..AssistantMessage::default()
        };
        let table = [
            (Message::user(""), 4),
            (Message::user("1"), 5),
            (Message::system("12345678"), 6),
            (Message::user(parts()), 1_006),
            (Message::Tool(ToolMessage::new("1", "sum", parts())), 1_006),
            (Message::Assistant(call), 8),
            (Message::Assistant(refusal), 6),
        ];
        for (index, (message, tokens)) in table.into_iter().enumerate() {
            assert_eq!(estimate(&message), tokens, "row {index}");
        }
    }
}
