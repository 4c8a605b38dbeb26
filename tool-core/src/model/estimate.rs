//! Estimates of tokens, without a provider.

use crate::content::Content;
use crate::model::{ChatRequest, Message};

/// The estimated number of bytes of text per token.
const BYTES_PER_TOKEN: usize = 4;

/// The estimated number of tokens of an image.
const TOKENS_PER_IMAGE: usize = 1_000;

/// The estimated overhead of a message in tokens, for its role and delimiters.
const TOKENS_PER_MESSAGE: usize = 4;

impl ChatRequest<'_> {
    /// Estimates the number of input tokens of the request, for models that do not [count](crate::ChatModel::count_tokens) them. Four bytes of
    /// text, of definitions of tools and of the schema of an answer count as one token, an image as 1,000, and each message adds 4. Reasoning
    /// and files do not count, and real numbers are often a quarter lower or higher.
    ///
    /// ```
    /// use tool_core::Message;
    /// use tool_core::model::ChatRequest;
    ///
    /// let request = ChatRequest::new([Message::user("How deep is the lake?")]);
    /// assert_eq!(request.estimate_tokens(), 10);
    /// ```
    #[must_use]
    pub fn estimate_tokens(&self) -> u64 {
        let messages: usize = self.messages().iter().map(estimate_tokens).sum();
        let tools = self.tools().iter().map(|tool| tool.to_json().to_string().len());
        let format = self.response_format().map_or(0, |format| format.schema().to_string().len());
        (messages + (tools.sum::<usize>() + format).div_ceil(BYTES_PER_TOKEN)) as u64
    }
}

/// Estimates the number of tokens of a message.
pub(crate) fn estimate_tokens(message: &Message) -> usize {
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
    bytes.div_ceil(BYTES_PER_TOKEN) + images * TOKENS_PER_IMAGE + TOKENS_PER_MESSAGE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Image, Part};
    use crate::model::{AssistantMessage, ToolCall, ToolDefinition, ToolMessage};

    #[test]
    fn estimates_the_tokens_of_a_message() {
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
            assert_eq!(estimate_tokens(&message), tokens, "row {index}");
        }
    }

    #[test]
    fn estimates_the_tokens_of_a_request() {
        let request = ChatRequest::new([Message::user("1234")]);
        assert_eq!(request.estimate_tokens(), 5);
        let tool = ToolDefinition::new("now").with_description("Returns the time");
        let length = tool.to_json().to_string().len().div_ceil(4) as u64;
        assert_eq!(request.with_tools([tool]).estimate_tokens(), 5 + length);
    }
}
