//! Chat Completions: `POST /v1/chat/completions`.

mod messages;
mod request;
mod response;

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use tool_core::model::{Delta, RunUser};
use tool_http::server::{Caller, hold_until_sent, json_response, sse_response};

use self::response::CompletionWriter;
use super::dispatch::{respond, stream};
use super::error::ApiError;
use super::request::parse_in_background;
use super::state::{ServerState, unix_time};

pub(super) async fn create(
    State(state): State<Arc<ServerState>>,
    Extension(caller): Extension<Caller>,
    Extension(user): Extension<Option<RunUser>>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = state.limiter.read_body(request.into_body()).await?;
    let parser_state = Arc::clone(&state);
    let parse = move |body: &[u8]| request::parse(body, caller, &parser_state);
    let (mut request, permit) = parse_in_background(body, parse).await?;
    request.backend_request.user = user;
    let writer = CompletionWriter::new(request.backend_request.model.clone(), unix_time());
    if request.is_streamed {
        let deltas = stream(&state, request.backend_request).await?;
        let response = sse_response(writer.events(deltas, request.includes_usage));
        return Ok(hold_until_sent(permit, response));
    }
    let deltas = respond(&state, request.backend_request).await?;
    match deltas.last() {
        Some(Delta::Done(response)) => {
            let response = json_response(StatusCode::OK, writer.completion(response));
            Ok(hold_until_sent(permit, response))
        }
        _ => Err(ApiError::internal()),
    }
}
