//! Stored responses and their conversations.

use std::sync::Arc;

use tool_core::Message;
use tool_core::model::AssistantMessage;

use super::store::Weight;

/// The conversation up to a response, without instructions. Its earlier sections are shared with earlier responses.
#[derive(Clone, Default)]
pub(super) struct Conversation(Vec<Arc<Section>>);

struct Section {
    messages: Vec<Message>,
    /// The weight of a stored reply and its input, which counts as long as a stored conversation contains the section.
    weight: Option<Weight>,
}

impl Conversation {
    /// Returns this conversation with the input of a request.
    pub(super) fn with_input(&self, messages: Vec<Message>) -> Self {
        self.with_section(Section { messages, weight: None })
    }

    /// Returns this conversation with a reply whose weight counts as long as it is stored.
    pub(super) fn with_reply(&self, reply: AssistantMessage, weight: Weight) -> Self {
        self.with_section(Section { messages: vec![Message::Assistant(reply)], weight: Some(weight) })
    }

    fn with_section(&self, section: Section) -> Self {
        let mut sections = self.0.clone();
        sections.push(Arc::new(section));
        Self(sections)
    }

    /// Returns the approximate size of the messages of stored responses.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().filter_map(|section| Some(section.weight.as_ref()?.bytes())).sum()
    }

    /// Returns the number of messages that were added last.
    pub(super) fn last_messages(&self) -> usize {
        self.0.last().map_or(0, |section| section.messages.len())
    }

    /// Returns the approximate size of the list of sections.
    pub(super) fn list_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &Message> {
        self.0.iter().flat_map(|section| section.messages.iter())
    }
}

/// A stored response, and the conversation up to it.
pub(super) struct StoredResponse {
    /// Serialized, because that takes less memory than a `Value`.
    pub(super) response: String,
    pub(super) conversation: Conversation,
}
