//! Chat Completions: `POST /v1/chat/completions`.

mod messages;
mod request;
mod response;

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;

use tool_core::Delta;

use self::response::About;
use super::backend::{Words, respond, stream};
use super::endpoint::{Endpoint, unix_time};
use super::error::ApiError;
use super::http;

const WORDS: Words = Words { messages: "messages", response_format: "response_format" };

pub(super) async fn complete(endpoint: &Arc<Endpoint>, body: &Bytes) -> Result<Response, ApiError> {
    let request = request::read(body)?;
    let about = About::new(request.asked.model.clone(), unix_time());
    if request.is_streamed {
        let deltas = stream(endpoint, request.asked).await?;
        return Ok(http::events(about.events(deltas, request.includes_usage)));
    }
    let deltas = respond(endpoint, request.asked).await?;
    match deltas.last() {
        Some(Delta::Done(response)) => Ok(http::json(StatusCode::OK, &about.whole(response))),
        _ => Err(ApiError::internal()),
    }
}
