//! Stored responses and their conversations.

use std::sync::Arc;

use tool_core::Message;

/// The memory that a message takes in a list beside itself.
const SHARED_BYTES: usize = 32;

/// The conversation up to a response, without instructions. Its messages are shared with earlier responses, but count for each.
#[derive(Clone, Default)]
pub(super) struct Conversation {
    messages: Vec<Arc<Message>>,
    bytes: usize,
}

impl Conversation {
    /// Returns this conversation with more messages.
    pub(super) fn with(&self, added: impl IntoIterator<Item = Message>) -> Self {
        let mut conversation = self.clone();
        for message in added {
            conversation.bytes += message.approximate_bytes() + SHARED_BYTES;
            conversation.messages.push(Arc::new(message));
        }
        conversation
    }

    /// Returns the approximate size of the messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &Message> {
        self.messages.iter().map(|message| &**message)
    }
}

/// A stored response, and the conversation up to it.
pub(super) struct StoredResponse {
    /// Serialized, because that takes less memory than a `Value`.
    pub(super) response: String,
    pub(super) conversation: Conversation,
}
