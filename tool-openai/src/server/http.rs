//! What all requests have in common: who may ask, how much, and what every answer has.

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

use super::endpoint::Endpoint;
use super::error::ApiError;
use super::ids;

/// How long a stream is silent at most.
pub(super) const LONGEST_SILENCE: Duration = Duration::from_secs(15);

/// Stands around every request: the key, the limit of requests under way, panics, and the name of the request.
pub(super) async fn serve(State(endpoint): State<Arc<Endpoint>>, request: Request, next: Next) -> Response {
    let mut response = match admit(&endpoint, request.headers()) {
        Ok(permit) => {
            let served = AssertUnwindSafe(next.run(request)).catch_unwind().await;
            holding(permit, served.unwrap_or_else(|_| ApiError::internal().into_response()))
        }
        Err(error) => error.into_response(),
    };
    if let Ok(id) = HeaderValue::try_from(ids::unique("req_")) {
        response.headers_mut().insert("x-request-id", id);
    }
    response
}

/// Lets a request in, with its place among those under way if they are counted.
fn admit(endpoint: &Endpoint, headers: &HeaderMap) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
    if !has_key(&endpoint.settings.keys, headers) {
        return Err(ApiError::wrong_key());
    }
    let Some(places) = &endpoint.places else { return Ok(None) };
    Arc::clone(places).try_acquire_owned().map(Some).map_err(|_| {
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "too many requests are under way; try again later")
            .with_code("server_overloaded")
            .with_retry_after(Duration::from_secs(1))
    })
}

/// Compared in a time that tells nothing of what is right in a wrong key.
fn has_key(keys: &[SecretString], headers: &HeaderMap) -> bool {
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

/// A streamed answer is under way until its end.
fn holding(permit: Option<OwnedSemaphorePermit>, response: Response) -> Response {
    match permit {
        Some(permit) if response.body().size_hint().exact().is_none() => response.map(|body| {
            Body::from_stream(body.into_data_stream().map(move |piece| {
                let _held = &permit;
                piece
            }))
        }),
        _ => response,
    }
}

/// How many times as long as a caller may be silent its whole body may take.
const BODY_TAKES: u32 = 10;

/// Reads the body of a request, as long as it may be and as long as it keeps coming.
pub(super) async fn read_body(endpoint: &Endpoint, request: Request) -> Result<Bytes, ApiError> {
    let read_timeout = endpoint.settings.read_timeout;
    let reading =
        tokio::time::timeout(read_timeout.saturating_mul(BODY_TAKES), read_pieces(endpoint, request));
    reading.await.unwrap_or_else(|_| Err(ApiError::too_slow()))
}

async fn read_pieces(endpoint: &Endpoint, request: Request) -> Result<Bytes, ApiError> {
    let limit = endpoint.settings.longest_body;
    let too_long = || {
        let message = format!("the request is longer than the {limit} bytes that are read here");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    let told = request.body().size_hint().lower();
    if told > limit as u64 {
        return Err(too_long());
    }
    let mut pieces = request.into_body().into_data_stream();
    let mut body = Vec::with_capacity(usize::try_from(told).unwrap_or_default().min(1 << 16));
    loop {
        let piece = tokio::time::timeout(endpoint.settings.read_timeout, pieces.next()).await;
        match piece.map_err(|_| ApiError::too_slow())? {
            Some(Ok(piece)) if body.len() + piece.len() > limit => return Err(too_long()),
            Some(Ok(piece)) => body.extend_from_slice(&piece),
            Some(Err(_)) => return Err(ApiError::new(StatusCode::BAD_REQUEST, "the request broke off")),
            None => return Ok(body.into()),
        }
    }
}

pub(super) fn json(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// Server-sent events, as they come.
pub(super) fn events(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let body = Body::from_stream(never_silent(events).map(Ok::<_, Infallible>));
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (headers, body).into_response()
}

/// Says now and then that there will be more, in a comment that clients pass over: what stands between takes a connection
/// that is silent for dead.
fn never_silent(events: impl Stream<Item = Bytes> + Send + 'static) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(Box::pin(events), |mut events| async move {
        match tokio::time::timeout(LONGEST_SILENCE, events.next()).await {
            Ok(event) => event.map(|event| (event, events)),
            Err(_) => Some((Bytes::from_static(b": more is to come\n\n"), events)),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::endpoint::Settings;
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_never_silent_for_long() {
        let slow = stream::unfold(0, |count| async move {
            tokio::time::sleep(LONGEST_SILENCE * 3 / 2).await;
            (count < 2).then_some((Bytes::from_static(b"data: 1\n\n"), count + 1))
        });
        let sent: Vec<_> = never_silent(slow).map(|bytes| bytes[0]).collect().await;
        assert_eq!(sent, b":d:d:");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_in_drops_is_not_waited_for() {
        let endpoint = Endpoint::new(Settings::default(), BTreeMap::new());
        for (pieces, is_read) in [(9, true), (11, false)] {
            let drops = stream::unfold(0, move |count| async move {
                tokio::time::sleep(Duration::from_secs(29)).await;
                (count < pieces).then_some((Ok::<_, Infallible>("{"), count + 1))
            });
            let began = tokio::time::Instant::now();
            let body = read_body(&endpoint, Request::new(Body::from_stream(drops))).await;
            assert_eq!(body.is_ok(), is_read, "{pieces}");
            assert!(began.elapsed() <= Duration::from_secs(300));
        }
    }

    #[test]
    fn keys() {
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
        for (sent, is_right) in table {
            let mut headers = HeaderMap::new();
            if let Some(sent) = sent {
                headers.insert(header::AUTHORIZATION, HeaderValue::from_static(sent));
            }
            assert_eq!(has_key(&keys, &headers), is_right, "{sent:?}");
            assert!(has_key(&[], &headers));
        }
    }
}
