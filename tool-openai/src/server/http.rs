//! HTTP concerns of all requests: authorization, limits, request bodies and server-sent events.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::stream::{self, Stream, StreamExt};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use subtle::{Choice, ConstantTimeEq};
use tokio::sync::OwnedSemaphorePermit;

use super::error::ApiError;
use super::ids;
use super::state::ServerState;

/// The longest time that a stream is silent.
pub(super) const MAX_SILENCE: Duration = Duration::from_secs(15);

/// Middleware that checks the key, limits the requests in flight, catches panics and adds the request id.
pub(super) async fn guard(State(state): State<Arc<ServerState>>, request: Request, next: Next) -> Response {
    let mut response = match admit(&state, request.headers()) {
        Ok(permit) => {
            let response = AssertUnwindSafe(next.run(request)).catch_unwind().await;
            let response = response.unwrap_or_else(|_| ApiError::internal().into_response());
            match permit {
                Some(permit) => hold_until_sent(permit, response),
                None => response,
            }
        }
        Err(error) => error.into_response(),
    };
    if let Ok(id) = HeaderValue::try_from(ids::random_id("req_")) {
        response.headers_mut().insert("x-request-id", id);
    }
    response
}

/// Admits a request. Returns its permit if the number of requests in flight is limited.
fn admit(state: &ServerState, headers: &HeaderMap) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
    if !is_authorized(&state.config.api_keys, headers) {
        return Err(ApiError::invalid_key());
    }
    let Some(permits) = &state.request_permits else { return Ok(None) };
    Arc::clone(permits).try_acquire_owned().map(Some).map_err(|_| ApiError::overloaded())
}

/// Returns `true` if the request has one of the keys, or there are none. Compares in constant time, so that the time does not
/// leak parts of a key.
fn is_authorized(keys: &[SecretString], headers: &HeaderMap) -> bool {
    if keys.is_empty() {
        return true;
    }
    let sent = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let (scheme, sent) = sent.split_at(sent.len().min("Bearer ".len()));
    let is_known = keys.iter().fold(Choice::from(0), |is_known, key| {
        is_known | key.expose_secret().as_bytes().ct_eq(sent.trim_ascii())
    });
    scheme.eq_ignore_ascii_case(b"Bearer ") && bool::from(is_known)
}

/// Holds a permit until a streamed response has been sent.
pub(super) fn hold_until_sent(permit: OwnedSemaphorePermit, response: Response) -> Response {
    if response.body().size_hint().exact().is_some() {
        return response;
    }
    response.map(|body| {
        Body::from_stream(body.into_data_stream().map(move |chunk| {
            let _permit = &permit;
            chunk
        }))
    })
}

/// The time limit for a whole body, as a multiple of the read timeout.
const BODY_TIMEOUT_FACTOR: u32 = 10;

/// The body of a request, and the permit for its bytes, which must be held as long as any data of the body.
type ReadBody = Result<(Bytes, OwnedSemaphorePermit), ApiError>;

/// Reads the body of a request within the limits of size and time.
pub(super) async fn read_body(state: &ServerState, request: Request) -> ReadBody {
    let timeout = state.config.read_timeout.saturating_mul(BODY_TIMEOUT_FACTOR);
    let body = tokio::time::timeout(timeout, read_chunks(state, request)).await;
    body.unwrap_or_else(|_| Err(ApiError::request_timeout()))
}

async fn read_chunks(state: &ServerState, request: Request) -> ReadBody {
    let limit = state.config.max_body_bytes;
    let too_large = || {
        let message = format!("the request body exceeds the limit of {limit} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let announced = request.body().size_hint().lower();
    if announced > limit as u64 {
        return Err(too_large());
    }
    let mut chunks = request.into_body().into_data_stream();
    let mut body = Vec::with_capacity(usize::try_from(announced).unwrap_or_default().min(1 << 16));
    let mut permit = state.reserve_body_bytes(0)?;
    loop {
        let chunk = tokio::time::timeout(state.config.read_timeout, chunks.next()).await;
        match chunk.map_err(|_| ApiError::request_timeout())? {
            Some(Ok(chunk)) if body.len() + chunk.len() > limit => return Err(too_large()),
            Some(Ok(chunk)) => {
                // Reserved as it arrives: bytes that are only announced block no other requests.
                permit.merge(state.reserve_body_bytes(chunk.len())?);
                body.extend_from_slice(&chunk);
            }
            Some(Err(_)) => {
                return Err(ApiError::new(StatusCode::BAD_REQUEST, "the request body is incomplete"));
            }
            None => return Ok((body.into(), permit)),
        }
    }
}

pub(super) fn json_response(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
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
    use std::collections::BTreeMap;

    use super::super::state::Config;
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

    #[tokio::test(start_paused = true)]
    async fn limits_the_total_time_of_a_slow_body() {
        let state = ServerState::new(Config::default(), BTreeMap::new());
        for (chunks, is_read) in [(9, true), (11, false)] {
            let body = stream::unfold(0, move |count| async move {
                tokio::time::sleep(Duration::from_secs(29)).await;
                (count < chunks).then_some((Ok::<_, Infallible>("{"), count + 1))
            });
            let started = tokio::time::Instant::now();
            let body = read_body(&state, Request::new(Body::from_stream(body))).await;
            assert_eq!(body.is_ok(), is_read, "{chunks}");
            assert!(started.elapsed() <= Duration::from_secs(300));
        }
    }

    #[test]
    fn accepts_only_known_keys() {
        let keys = [SecretString::from("sk-1"), SecretString::from("sk-22")];
        let table = [
            (Some("Bearer sk-1"), true),
            (Some("Bearer sk-22"), true),
            (Some("bearer  sk-1 "), true),
            (Some("Bearer sk-2"), false),
            (Some("Bearer sk-1x"), false),
            (Some("Bearer "), false),
            (Some("Bearer"), false),
            (Some("sk-1"), false),
            (Some("Basic sk-1"), false),
            (Some(""), false),
            (None, false),
        ];
        for (sent, is_valid) in table {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, HeaderValue::from_static(sent));
            }
            assert_eq!(is_authorized(&keys, &headers), is_valid, "{sent:?}");
            assert!(is_authorized(&[], &headers));
        }
    }
}
