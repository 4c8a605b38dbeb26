//! What a run ends with.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{FinishReason, Message, Usage};
use crate::tool::ToolExecution;
use crate::transcript::Transcript;

/// What the model answered, and how it came to it. `Display` is the text.
#[derive(Clone, Serialize, Deserialize)]
pub struct Answer {
    pub(crate) text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refusal: Option<String>,
    pub(crate) finish_reason: FinishReason,
    pub(crate) tool_executions: Vec<ToolExecution>,
    pub(crate) usage: Usage,
    pub(crate) turns: u32,
    pub(crate) messages: Vec<Message>,
}

impl Answer {
    /// The text of the model's last message.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Why the model would not answer, if it refused; the text is empty then.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Why the model stopped: [`FinishReason::Length`] says that the text is not whole.
    #[must_use]
    pub fn finish_reason(&self) -> &FinishReason {
        &self.finish_reason
    }

    /// The calls that were made, in the order in which the model asked for them.
    #[must_use]
    pub fn tool_executions(&self) -> &[ToolExecution] {
        &self.tool_executions
    }

    /// The tokens of all turns together.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// How often the model was asked.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// The messages that the run added to the conversation, from the user's on: the next ask may go on
    /// from them, through [`Ask::history`](crate::Ask::history).
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The conversation as something to read: `Display` is plain text, [`Transcript::mermaid`] a diagram. Unlike
    /// `Debug`, it shows everything.
    pub fn transcript(&self) -> Transcript<'_> {
        Transcript::new(&self.messages, &self.tool_executions)
    }

    /// The same messages, taken out.
    #[must_use]
    pub fn into_messages(self) -> Vec<Message> {
        self.messages
    }
}

/// Tells how much there is, not what: conversations are private.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("text", &format_args!("{} bytes", self.text.len()))
            .field("tool_executions", &self.tool_executions)
            .field("usage", &self.usage)
            .field("turns", &self.turns)
            .finish_non_exhaustive()
    }
}

/// The text, or the refusal if that is all there is.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.refusal {
            Some(refusal) if self.text.is_empty() => refusal,
            _ => &self.text,
        })
    }
}
