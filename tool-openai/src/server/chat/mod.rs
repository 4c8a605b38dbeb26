//! Chat Completions: `POST /v1/chat/completions`.

mod messages;
mod request;
mod response;

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;

use tool_core::model::Delta;
use tool_http::server::Caller;

use self::response::CompletionWriter;
use super::backend::{FieldNames, respond, stream};
use super::error::ApiError;
use super::http;
use super::state::{ServerState, unix_time};

const FIELD_NAMES: FieldNames = FieldNames { messages: "messages", response_format: "response_format" };

pub(super) async fn create(
    state: &Arc<ServerState>,
    caller: Caller,
    body: &Bytes,
) -> Result<Response, ApiError> {
    let request = request::parse(body, caller)?;
    let writer = CompletionWriter::new(request.backend_request.model.clone(), unix_time());
    if request.is_streamed {
        let deltas = stream(state, request.backend_request).await?;
        return Ok(http::sse_response(writer.events(deltas, request.includes_usage)));
    }
    let deltas = respond(state, request.backend_request).await?;
    match deltas.last() {
        Some(Delta::Done(response)) => Ok(http::json_response(StatusCode::OK, &writer.completion(response))),
        _ => Err(ApiError::internal()),
    }
}
