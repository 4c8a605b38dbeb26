//! The message that reports the outcome of a call to the model.

use crate::content::Content;
use crate::model::{Message, ToolCall, ToolMessage};
use crate::tool::{ToolError, ToolExecution, ToolOutput};

/// Creates the message that reports the outcome of an executed call to the model, like [`Message::tool`].
impl From<&ToolExecution> for Message {
    fn from(execution: &ToolExecution) -> Self {
        Self::tool(execution.call(), &execution.outcome)
    }
}

impl Message {
    /// Creates the message that reports a call's output, or the text of its error, to the model.
    #[must_use]
    pub fn tool(call: &ToolCall, outcome: &Result<ToolOutput, ToolError>) -> Self {
        let (content, is_error) = match outcome {
            Ok(output) => (output.content().clone(), false),
            Err(error) => (Content::from(error.to_string()), true),
        };
        let mut message = ToolMessage::new(&*call.id, &*call.name, content);
        message.is_error = is_error;
        Self::Tool(message)
    }
}
