//! The forms of responses: JSON, plain text and server-sent events.

use std::convert::Infallible;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use futures_util::stream::{self, Stream, StreamExt};

use super::limits::hold_until_sent;
use super::rejection::Rejection;

/// The longest time that a stream of events is silent, because proxies close silent connections.
pub const MAX_SILENCE: Duration = Duration::from_secs(15);

/// Returns a response with this JSON, such as a JSON text or a `serde_json::Value`.
pub fn json_response(status: StatusCode, json: impl fmt::Display) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], json.to_string()).into_response()
}

/// Returns a response that streams server-sent events. A comment, which clients ignore, follows every [`MAX_SILENCE`] without an
/// event.
pub fn sse_response(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let body = Body::from_stream(with_keep_alive(events).map(Ok::<_, Infallible>));
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Some proxies collect responses unless this forbids it.
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (headers, body).into_response()
}

fn with_keep_alive(events: impl Stream<Item = Bytes> + Send + 'static) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(Box::pin(events), |mut events| async move {
        match tokio::time::timeout(MAX_SILENCE, events.next()).await {
            Ok(event) => event.map(|event| (event, events)),
            Err(_) => Some((Bytes::from_static(b": keep-alive\n\n"), events)),
        }
    })
}

/// Returns the response of a handler, or `internal` if it panics, and [holds](hold_until_sent) what admitted the request.
pub async fn respond_admitted(
    admission: impl Send + 'static,
    response: impl Future<Output = Response>,
    internal: impl FnOnce() -> Response,
) -> Response {
    let response = AssertUnwindSafe(response).catch_unwind().await;
    hold_until_sent(admission, response.unwrap_or_else(|_| internal()))
}

/// The message as plain text, with the headers that the status requires.
impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let mut response = (self.status(), self.to_string()).into_response();
        let header = match self {
            Self::Key { has_credentials: false } => Some((header::WWW_AUTHENTICATE, "Bearer")),
            Self::Key { .. } => Some((header::WWW_AUTHENTICATE, r#"Bearer error="invalid_token""#)),
            Self::Overloaded => Some((header::RETRY_AFTER, "1")),
            _ => None,
        };
        let header = header.map(|(name, value)| (name, HeaderValue::from_static(value)));
        response.headers_mut().extend(header);
        response
    }
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

    #[tokio::test]
    async fn a_panic_is_an_internal_error() {
        let internal = || StatusCode::INTERNAL_SERVER_ERROR.into_response();
        let response = respond_admitted((), async { panic!("by a handler") }, internal).await;
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
