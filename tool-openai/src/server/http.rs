//! The form of responses: JSON and server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::Value;

/// The longest time that a stream is silent.
pub(super) const MAX_SILENCE: Duration = Duration::from_secs(15);

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
