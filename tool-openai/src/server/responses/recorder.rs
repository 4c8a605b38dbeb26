//! Stores complete responses.

use std::sync::Arc;

use serde_json::Value;
use tool_core::Message;
use tool_core::model::AssistantMessage;
use tool_http::server::Caller;

use crate::server::state::ServerState;
use crate::server::store::{MAX_BYTES, approximate_message_bytes};
use crate::server::stored_response::{Conversation, StoredResponse};

/// The approximate size of a message in memory without its texts. A caller can send many short messages.
const MESSAGE_BYTES: usize = size_of::<Message>() + 100;

/// Stores a response when it is complete.
pub(super) struct ResponseRecorder {
    state: Arc<ServerState>,
    caller: Caller,
    conversation: Conversation,
    request_bytes: usize,
}

impl ResponseRecorder {
    pub(super) fn new(
        state: &Arc<ServerState>,
        caller: Caller,
        conversation: Conversation,
        request_bytes: usize,
    ) -> Self {
        Self { state: Arc::clone(state), caller, conversation, request_bytes }
    }

    pub(super) fn store(&self, message: AssistantMessage, response: &Value) {
        let Some(id) = response["id"].as_str() else { return };
        let input = self.conversation.last_messages() * MESSAGE_BYTES;
        let bytes = self.request_bytes + input + approximate_message_bytes(&message) + 1000;
        let store = &self.state.responses;
        let conversation = self.conversation.with_reply(message, store.add_weight(bytes));
        // Inserting it would drop all other responses and fail nevertheless, or no request could continue it.
        if conversation.bytes() > MAX_BYTES.min(self.state.limiter.max_total_bytes()) {
            return;
        }
        let response = response.to_string();
        let bytes = response.len() + conversation.list_bytes() + 1000;
        store.insert(id.to_owned(), self.caller, StoredResponse { response, conversation }, bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::server::state::Config;

    /// Most of a short message is not its text.
    #[test]
    fn counts_the_messages_of_a_conversation() {
        let state = Arc::new(ServerState::new(Config::default(), BTreeMap::new()));
        let with_input = Conversation::default().with_input(vec![Message::user(""); 1000]);
        let recorder = ResponseRecorder::new(&state, Caller::ANYONE, with_input, 0);
        recorder.store(AssistantMessage::text("Hi."), &json!({ "id": "resp_1" }));
        let stored = state.responses.get("resp_1", Caller::ANYONE).unwrap();
        assert!(stored.conversation.bytes() >= 1000 * size_of::<Message>());
    }

    /// A long chain of responses keeps all of its messages alive, however few responses are stored, and a request that continues
    /// one needs room for them.
    #[test]
    fn stores_a_conversation_only_if_all_of_it_fits() {
        // Five of these messages fit into the store.
        let request_bytes = MAX_BYTES / 5 - 10_000;
        for (max_total_body_bytes, stored) in [(2 * MAX_BYTES, 5), (2 * MAX_BYTES / 5, 2)] {
            let mut config = Config::default();
            config.limits.max_total_body_bytes = max_total_body_bytes;
            let state = Arc::new(ServerState::new(config, BTreeMap::new()));
            let mut conversation = Conversation::default();
            for number in 1..=stored + 1 {
                let id = format!("resp_{number}");
                let with_input = conversation.with_input(vec![Message::user("Hi")]);
                let recorder = ResponseRecorder::new(&state, Caller::ANYONE, with_input, request_bytes);
                recorder.store(AssistantMessage::text("Hi."), &json!({ "id": id }));
                let found = state.responses.get(&id, Caller::ANYONE);
                assert_eq!(found.is_some(), number <= stored, "{number} of {stored}");
                conversation = found.map(|found| found.conversation.clone()).unwrap_or_default();
            }
        }
    }
}
