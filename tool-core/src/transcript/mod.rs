//! A conversation as something to read: a text, or a diagram.

mod entry;
mod mermaid;
#[cfg(test)]
mod testing;
mod text;

use std::fmt;

use self::mermaid::Mermaid;
use crate::model::Message;
use crate::tool::ToolExecution;

/// How many characters of one text a transcript shows unless it is told otherwise.
const LONGEST_TEXT: usize = 2000;

/// How many characters of one text a diagram shows unless it is told otherwise.
const LONGEST_LABEL: usize = 120;

/// A conversation as something to read: who said what, which tools were called with what, and what came of it.
/// `Display` is plain text; [`mermaid`](Self::mermaid) draws it.
///
/// Unlike `Debug`, it shows everything: what was said, arguments, outputs, errors. It is for the eyes of those who may
/// see the conversation, and no log.
///
/// What somebody said never looks like a line of somebody else: its further lines are indented, and control characters
/// are replaced.
///
/// ```
/// use tool_core::{AssistantMessage, Message, ToolCall, ToolExecution, ToolOutput, Transcript};
///
/// let call = ToolCall::new("call_1", "sum", r#"{"a": 2, "b": 40}"#);
/// let execution = ToolExecution::new(call.clone(), Ok(ToolOutput::text("42")));
/// let messages = [
///     Message::user("What is 2 + 40?"),
///     Message::Assistant(AssistantMessage::default().with_tool_calls([call.clone()])),
///     Message::tool(&call, &Ok(ToolOutput::text("42"))),
///     Message::assistant("It is 42."),
/// ];
/// let transcript = Transcript::new(&messages, &[execution]).to_string();
/// let expected = r#"
/// user: What is 2 + 40?
/// model calls sum: {"a": 2, "b": 40}
/// sum returns: 42
/// model: It is 42.
/// "#;
/// assert_eq!(transcript, expected.trim_start());
/// ```
#[derive(Clone, Copy)]
#[must_use]
pub struct Transcript<'a> {
    messages: &'a [Message],
    executions: &'a [ToolExecution],
    longest_text: Option<usize>,
}

impl<'a> Transcript<'a> {
    /// A transcript of messages. Of the calls among them that have a record, it tells how long they took and what was
    /// mended in their arguments.
    pub fn new(messages: &'a [Message], executions: &'a [ToolExecution]) -> Self {
        Self { messages, executions, longest_text: None }
    }

    /// The same transcript with so many characters of one text at most, in the text and in the diagram: 2000 in a text
    /// and 120 in a diagram unless it is set. Behind them it tells how many are left out.
    pub fn with_longest_text(mut self, characters: usize) -> Self {
        self.longest_text = Some(characters);
        self
    }

    /// The conversation as a [Mermaid](https://mermaid.js.org/syntax/sequenceDiagram.html) sequence diagram, as
    /// documentation, issues and chats draw it. Whatever was said, the diagram is a valid one; but Mermaid refuses to draw
    /// one of more than 50 000 characters unless it is told to.
    ///
    /// ```
    /// use tool_core::{Message, Transcript};
    ///
    /// let messages = [Message::user("Hello"), Message::assistant("Good morning!")];
    /// let expected = "
    /// sequenceDiagram
    ///     participant User
    ///     participant Model
    ///     User->>Model: Hello
    ///     Model->>User: Good morning!
    /// ";
    /// assert_eq!(Transcript::new(&messages, &[]).mermaid().to_string(), expected.trim_start());
    /// ```
    pub fn mermaid(self) -> impl fmt::Display + 'a {
        Mermaid(self)
    }
}

/// The conversation as a text, a line for each thing that was said or done.
impl fmt::Display for Transcript<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::write(self, f)
    }
}

/// Tells how much there is, not what: conversations are private.
impl fmt::Debug for Transcript<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transcript")
            .field("messages", &self.messages.len())
            .field("executions", &self.executions.len())
            .finish_non_exhaustive()
    }
}
