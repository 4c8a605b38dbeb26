//! Responses that are kept, and the conversations that they belong to.

use std::sync::Arc;

use serde_json::Value;
use tool_core::{AssistantMessage, Message};

use crate::server::endpoint::Endpoint;

/// A conversation so far, without instructions. What was said before is shared with the responses before.
#[derive(Clone, Default)]
pub(super) struct Conversation(Vec<Arc<[Message]>>);

impl Conversation {
    pub(super) fn with(&self, messages: Vec<Message>) -> Self {
        let mut pieces = self.0.clone();
        pieces.push(messages.into());
        Self(pieces)
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &Message> {
        self.0.iter().flat_map(|piece| piece.iter())
    }
}

/// A response that is kept: what the caller was sent, and the conversation up to it.
pub(in crate::server) struct StoredResponse {
    pub(super) response: Value,
    pub(super) conversation: Conversation,
}

/// What it takes to keep a response when it is whole.
pub(super) struct Storing {
    endpoint: Arc<Endpoint>,
    conversation: Conversation,
    request_bytes: usize,
}

impl Storing {
    pub(super) fn new(endpoint: &Arc<Endpoint>, conversation: Conversation, request_bytes: usize) -> Self {
        Self { endpoint: Arc::clone(endpoint), conversation, request_bytes }
    }

    pub(super) fn keep(&self, message: AssistantMessage, response: &Value) {
        let Some(id) = response["id"].as_str() else { return };
        let texts = [Some(&message.text), message.reasoning.as_ref(), message.refusal.as_ref()];
        let texts = texts.into_iter().flatten().map(String::len);
        let calls = message.tool_calls.iter().map(|call| call.arguments.len() + 100);
        // The answer is kept twice, as it was sent and as a message.
        let bytes = self.request_bytes + 2 * texts.chain(calls).sum::<usize>() + 2000;
        let conversation = self.conversation.with(vec![Message::Assistant(message)]);
        self.endpoint.responses.insert(
            id.to_owned(),
            StoredResponse { response: response.clone(), conversation },
            bytes,
        );
    }
}
