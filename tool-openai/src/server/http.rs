//! HTTP concerns of all requests: admission, limits, and server-sent events.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;
use tool_http::server::{Rejection, hold_until_sent, require_json};

use super::error::ApiError;
use super::state::ServerState;
use crate::ids;

/// The longest time that a stream is silent.
pub(super) const MAX_SILENCE: Duration = Duration::from_secs(15);

/// Middleware that admits requests, limits those in flight, catches panics and adds the request id. Handlers find the
/// [`Caller`](tool_http::server::Caller) in the extensions of the request.
pub(super) async fn guard(
    State(state): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut response = match admit(&state, &mut request) {
        Ok(permit) => {
            let response = AssertUnwindSafe(next.run(request)).catch_unwind().await;
            hold_until_sent(permit, response.unwrap_or_else(|_| ApiError::internal().into_response()))
        }
        Err(rejection) => ApiError::from(rejection).into_response(),
    };
    if let Ok(id) = HeaderValue::try_from(ids::random_id("req_")) {
        response.headers_mut().insert("x-request-id", id);
    }
    response
}

/// Admits a request. Returns its permit if the number of requests in flight is limited.
fn admit(state: &ServerState, request: &mut Request) -> Result<Option<OwnedSemaphorePermit>, Rejection> {
    let caller = state.config.access.admit(request.uri(), request.headers())?;
    require_json(request)?;
    request.extensions_mut().insert(caller);
    state.limiter.begin_request()
}

pub(super) fn json_response(status: StatusCode, body: &Value) -> Response {
    json_text_response(status, body.to_string())
}

/// Returns a response with this JSON text.
pub(super) fn json_text_response(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Returns a response that streams server-sent events.
pub(super) fn sse_response(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let body = Body::from_stream(with_keep_alive(events).map(Ok::<_, Infallible>));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, body).into_response()
}

/// Adds a comment, which clients ignore, after every [`MAX_SILENCE`] without an event: proxies close silent connections.
fn with_keep_alive(events: impl Stream<Item = Bytes> + Send + 'static) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(Box::pin(events), |mut events| async move {
        match tokio::time::timeout(MAX_SILENCE, events.next()).await {
            Ok(event) => event.map(|event| (event, events)),
            Err(_) => Some((Bytes::from_static(b": keep-alive\n\n"), events)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sends_keep_alive_comments_in_silent_streams() {
        let slow = stream::unfold(0, |count| async move {
            tokio::time::sleep(MAX_SILENCE * 3 / 2).await;
            (count < 2).then_some((Bytes::from_static(b"data: 1\n\n"), count + 1))
        });
        let sent: Vec<_> = with_keep_alive(slow).map(|bytes| bytes[0]).collect().await;
        assert_eq!(sent, b":d:d:");
    }
}
