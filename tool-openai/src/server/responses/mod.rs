//! Responses: `/v1/responses`.

mod wire;
mod input;
mod output;
mod recorder;
mod request;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tool_core::model::Delta;
use tool_http::server::{Caller, hold_until_sent, json_response, sse_response};

use self::output::ResponseWriter;
use self::recorder::ResponseRecorder;
use super::dispatch::{respond, stream};
use super::error::ApiError;
use super::request::parse_in_background;
use super::state::ServerState;
use super::stored_response::StoredResponse;

pub(super) async fn create(
    State(state): State<Arc<ServerState>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = state.limiter.read_body(request.into_body()).await?;
    let request_bytes = body.bytes.len();
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
    let ((request, reserved), permit) = parse_in_background(body, parse).await?;
    let held = (permit, reserved);
    let mut writer = ResponseWriter::new(request.echoed);
    let recorder =
        request.is_stored.then(|| ResponseRecorder::new(&state, caller, request.conversation, request_bytes));
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
    if state.responses.remove(id, caller) {
        let deleted = json!({ "id": id, "object": "response", "deleted": true });
        Ok(json_response(StatusCode::OK, &deleted))
    } else {
        Err(not_found(id))
    }
}

fn find_stored(state: &ServerState, caller: Caller, id: &str) -> Result<Arc<StoredResponse>, ApiError> {
    state.responses.get(id, caller).ok_or_else(|| not_found(id))
}

fn not_found(id: &str) -> ApiError {
    let message = format!("unknown response `{id}`; it may have expired or was not stored");
    ApiError::new(StatusCode::NOT_FOUND, message).with_param("id").with_code("response_not_found")
}
