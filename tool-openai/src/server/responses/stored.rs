//! Responses that are kept, and the conversations that they belong to.

use std::sync::Arc;

use serde_json::Value;
use tool_core::{AssistantMessage, Message};

use crate::server::endpoint::Endpoint;
use crate::server::kept::{MOST_BYTES, Weight};

/// A conversation so far, without instructions. What was said before is shared with the responses before.
#[derive(Clone, Default)]
pub(super) struct Conversation(Vec<Arc<Piece>>);

struct Piece {
    messages: Vec<Message>,
    /// Of a reply that is kept: what it weighs with what it replies to, for as long as it is part of any conversation.
    weight: Option<Weight>,
}

impl Conversation {
    /// The same with what is asked now.
    pub(super) fn with(&self, messages: Vec<Message>) -> Self {
        self.with_piece(Piece { messages, weight: None })
    }

    fn with_piece(&self, piece: Piece) -> Self {
        let mut pieces = self.0.clone();
        pieces.push(Arc::new(piece));
        Self(pieces)
    }

    fn bytes(&self) -> usize {
        self.0.iter().filter_map(|piece| Some(piece.weight.as_ref()?.bytes())).sum()
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = &Message> {
        self.0.iter().flat_map(|piece| piece.messages.iter())
    }
}

/// A response that is kept: what the caller was sent, and the conversation up to it.
pub(in crate::server) struct StoredResponse {
    /// As JSON, which takes less room than what can be looked into.
    pub(super) response: String,
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
        let said = self.request_bytes + texts.chain(calls).sum::<usize>() + 1000;
        let kept = &self.endpoint.responses;
        let reply = Piece { messages: vec![Message::Assistant(message)], weight: Some(kept.weight(said)) };
        let conversation = self.conversation.with_piece(reply);
        // All others would have to go for it, and it would not be kept either.
        if conversation.bytes() > MOST_BYTES {
            return;
        }
        let response = response.to_string();
        let bytes = response.len() + 1000;
        kept.insert(id.to_owned(), StoredResponse { response, conversation }, bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::server::endpoint::Settings;

    /// What is gone on from again and again keeps all that was said before, however few responses are kept.
    #[test]
    fn a_conversation_is_kept_only_as_long_as_there_is_room_for_all_of_it() {
        let endpoint = Arc::new(Endpoint::new(Settings::default(), BTreeMap::new()));
        let mut before = Conversation::default();
        for number in 1..=10 {
            let id = format!("resp_{number}");
            // Long ones: five of them have room.
            let asked = before.with(vec![Message::user("Hi")]);
            let storing = Storing::new(&endpoint, asked, MOST_BYTES / 5 - 10_000);
            storing.keep(AssistantMessage::text("Hi."), &json!({ "id": id }));
            let Some(kept) = endpoint.responses.get(&id) else {
                assert_eq!(number, 6);
                return;
            };
            before = kept.conversation.clone();
        }
        panic!("more is kept than there is room for");
    }
}
