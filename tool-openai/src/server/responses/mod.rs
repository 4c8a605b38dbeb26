//! Responses: `/v1/responses`.

mod wire;
mod input;
mod output;
mod request;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tool_core::Message;
use tool_core::model::{AssistantMessage, Delta, RunUser};
use tool_http::server::{Caller, hold_until_sent, json_response, sse_response};

use self::output::ResponseWriter;
use super::dispatch::{respond, stream};
use super::error::ApiError;
use super::request::parse_in_background;
use super::state::ServerState;
use super::store::MAX_BYTES;
use super::stored_response::{Conversation, StoredResponse};

pub(super) async fn create(
    State(state): State<Arc<ServerState>>,
    Extension(caller): Extension<Caller>,
    Extension(user): Extension<Option<RunUser>>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = state.limiter.read_body(request.into_body()).await?;
    let parser_state = Arc::clone(&state);
    let parse = move |body: &[u8]| {
        let (state, mut reserved) = (parser_state, None);
        let request = request::parse(body, caller, &state, |id| {
            let stored = find_stored(&state, caller, id);
            let stored = stored.map_err(|error| error.with_param("previous_response_id"))?;
            // A small request can continue a large conversation.
            reserved = Some(state.limiter.reserve(stored.conversation.bytes())?);
            Ok(stored)
        })?;
        Ok((request, reserved))
    };
    let ((mut request, reserved), permit) = parse_in_background(body, parse).await?;
    request.backend_request.user = user;
    let held = (permit, reserved);
    let mut writer = ResponseWriter::new(request.echoed);
    let (recording, conversation) = (Arc::clone(&state), request.conversation);
    let recorder = request.is_stored.then_some(ResponseRecorder { state: recording, caller, conversation });
    if !request.is_streamed {
        let deltas = respond(&state, request.backend_request).await?;
        let mut response = Value::Null;
        for delta in deltas {
            response = write_delta(&mut writer, recorder.as_ref(), delta).unwrap_or(response);
        }
        return Ok(hold_until_sent(held, json_response(StatusCode::OK, &response)));
    }
    let deltas = stream(&state, request.backend_request).await?;
    let first = stream::iter(writer.start_events());
    let rest = deltas.flat_map(move |delta| {
        match delta {
            Ok(delta) => {
                write_delta(&mut writer, recorder.as_ref(), delta);
            }
            Err(error) => writer.fail(&error),
        }
        stream::iter(writer.take_events())
    });
    Ok(hold_until_sent(held, sse_response(first.chain(rest))))
}

/// Stores a response when it is complete.
struct ResponseRecorder {
    state: Arc<ServerState>,
    caller: Caller,
    conversation: Conversation,
}

impl ResponseRecorder {
    fn store(&self, message: AssistantMessage, response: &Value) {
        let Some(id) = response["id"].as_str() else { return };
        let conversation = self.conversation.with([Message::Assistant(message)]);
        // No request could continue a larger one.
        if conversation.bytes() > MAX_BYTES.min(self.state.limiter.max_total_bytes()) {
            return;
        }
        let response = response.to_string();
        let bytes = response.len() + conversation.bytes() + 1000;
        let stored = Arc::new(StoredResponse { response, conversation });
        self.state.responses.insert(self.caller.derive_id(id), stored, bytes);
    }
}

/// Writes a delta. After the last one, stores and returns the complete response; stored first, so that the caller can
/// continue from it.
fn write_delta(
    writer: &mut ResponseWriter,
    recorder: Option<&ResponseRecorder>,
    delta: Delta,
) -> Option<Value> {
    let Delta::Done(done) = delta else {
        writer.write(delta);
        return None;
    };
    let message = done.message.clone();
    let response = writer.finish(&done);
    if let Some(recorder) = recorder {
        recorder.store(message, &response);
    }
    Some(response)
}

pub(super) fn retrieve(state: &ServerState, caller: Caller, id: &str) -> Result<Response, ApiError> {
    let stored = find_stored(state, caller, id)?;
    let reserved = state.limiter.reserve(stored.response.len())?;
    Ok(hold_until_sent(reserved, json_response(StatusCode::OK, &stored.response)))
}

pub(super) fn delete(state: &ServerState, caller: Caller, id: &str) -> Result<Response, ApiError> {
    if state.responses.remove(&caller.derive_id(id)) {
        let deleted = json!({ "id": id, "object": "response", "deleted": true });
        Ok(json_response(StatusCode::OK, &deleted))
    } else {
        Err(not_found(id))
    }
}

fn find_stored(state: &ServerState, caller: Caller, id: &str) -> Result<Arc<StoredResponse>, ApiError> {
    state.responses.get(&caller.derive_id(id)).ok_or_else(|| not_found(id))
}

fn not_found(id: &str) -> ApiError {
    let message = format!("unknown response `{id}`; it may have expired or was not stored");
    ApiError::new(StatusCode::NOT_FOUND, message).with_param("id").with_code("response_not_found")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::server::state::Config;

    /// A request that continues a response needs room for all of its conversation, most of which is not text if the messages are short.
    #[test]
    fn stores_a_conversation_only_if_all_of_it_fits() {
        let mut config = Config::default();
        config.limits.max_body_bytes = 1;
        config.limits.max_total_body_bytes = 1000 * size_of::<Message>();
        let state = Arc::new(ServerState::new(config, BTreeMap::new()));
        for (messages, is_stored) in [(500, true), (1000, false)] {
            let conversation = Conversation::default().with(vec![Message::user(""); messages]);
            let recorder =
                ResponseRecorder { state: Arc::clone(&state), caller: Caller::ANYONE, conversation };
            let id = format!("resp_{messages}");
            recorder.store(AssistantMessage::text("Hi."), &json!({ "id": id }));
            assert_eq!(find_stored(&state, Caller::ANYONE, &id).is_ok(), is_stored);
        }
    }
}
