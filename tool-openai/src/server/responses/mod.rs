//! Responses: `/v1/responses`.

mod input;
mod output;
mod request;
mod stored;
mod wire;

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tool_core::Delta;

use self::output::Writer;
pub(super) use self::stored::StoredResponse;
use self::stored::Storing;
use super::backend::{Words, respond, stream};
use super::endpoint::Endpoint;
use super::error::ApiError;
use super::http;

const WORDS: Words = Words { messages: "input", response_format: "text.format" };

pub(super) async fn create(endpoint: &Arc<Endpoint>, body: &Bytes) -> Result<Response, ApiError> {
    let request = request::read(body, |id| {
        stored(endpoint, id).map_err(|error| error.with_param("previous_response_id"))
    })?;
    let mut writer = Writer::new(request.echoed);
    let storing = request.is_stored.then(|| Storing::new(endpoint, request.conversation, body.len()));
    if !request.is_streamed {
        let deltas = respond(endpoint, request.asked).await?;
        let mut response = Value::Null;
        for delta in deltas {
            response = whole_of(&mut writer, storing.as_ref(), delta).unwrap_or(response);
        }
        return Ok(http::json(StatusCode::OK, &response));
    }
    let deltas = stream(endpoint, request.asked).await?;
    let first = stream::iter(writer.first_events());
    let rest = deltas.flat_map(move |delta| {
        match delta {
            Ok(delta) => {
                whole_of(&mut writer, storing.as_ref(), delta);
            }
            Err(error) => writer.fail(&error),
        }
        stream::iter(writer.take_events())
    });
    Ok(http::events(first.chain(rest)))
}

/// Writes a piece; gives the whole response if it was the last, which is kept first, so that the caller can go on from it.
fn whole_of(writer: &mut Writer, storing: Option<&Storing>, delta: Delta) -> Option<Value> {
    let Delta::Done(done) = delta else {
        writer.write(delta);
        return None;
    };
    let message = done.message.clone();
    let response = writer.finish(&done);
    if let Some(storing) = storing {
        storing.keep(message, &response);
    }
    Some(response)
}

pub(super) fn retrieve(endpoint: &Endpoint, id: &str) -> Result<Value, ApiError> {
    serde_json::from_str(&stored(endpoint, id)?.response).map_err(|_| ApiError::internal())
}

pub(super) fn delete(endpoint: &Endpoint, id: &str) -> Result<Value, ApiError> {
    if endpoint.responses.remove(id) {
        Ok(json!({ "id": id, "object": "response", "deleted": true }))
    } else {
        Err(unknown(id))
    }
}

fn stored(endpoint: &Endpoint, id: &str) -> Result<Arc<StoredResponse>, ApiError> {
    endpoint.responses.get(id).ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> ApiError {
    let message = format!("there is no response `{id}` here; it may be too old, or was not stored");
    ApiError::new(StatusCode::NOT_FOUND, message).with_param("id").with_code("response_not_found")
}
