//! Server-sent events of a run's log, in any form.

use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use tokio::time::timeout;

use crate::entry::Entry;
use crate::log::{Found, Reader, Status};

/// The longest time that a stream is silent, because proxies close silent connections.
const MAX_SILENCE: Duration = Duration::from_secs(15);

/// Converts the entries of a log into the events of a protocol.
pub(crate) trait Encoder: Send + 'static {
    /// The text after the last event.
    const END: &str = "";

    /// Appends the JSON texts of the events of one entry.
    fn encode(&mut self, entry: &Entry, out: &mut Vec<String>);

    /// Appends the events that end a stream although the run has not ended.
    fn stop(&mut self, stop: Stop, out: &mut Vec<String>);
}

/// Why a stream ends although the run has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The run waits for people or callers.
    Waits,
    /// The reader was too slow, or the driver has left the run.
    Cut,
}

/// The events of a log from its reader's position on, until the run ends or waits.
///
/// The last event of an entry has its position as id, so that a client that has the id has all of the entry. What is at `after`
/// and before is encoded, because encoders have a state, but not sent.
pub(crate) fn events<E: Encoder>(
    reader: Reader,
    encoder: E,
    after: Option<u64>,
    first: Vec<String>,
) -> impl Stream<Item = Bytes> + Send {
    let opening = (!first.is_empty()).then(|| Bytes::from(frames(&first, None)));
    let rest = stream::unfold(Some((reader, encoder)), move |state| async move {
        let (mut reader, mut encoder) = state?;
        let mut out = Vec::new();
        loop {
            let (position, stop) = match reader.try_next() {
                Found::Entry(position, logged) => {
                    encoder.encode(&logged.entry, &mut out);
                    if after.is_some_and(|after| position <= after) {
                        out.clear();
                    }
                    (Some(position), logged.entry.is_end())
                }
                Found::End { is_driven: true } => {
                    reader.changed().await;
                    continue;
                }
                Found::End { is_driven: false } if reader.log().status() == Status::Waiting => {
                    encoder.stop(Stop::Waits, &mut out);
                    (None, true)
                }
                Found::Gap | Found::End { is_driven: false } => {
                    encoder.stop(Stop::Cut, &mut out);
                    (None, true)
                }
            };
            if stop {
                return Some((Bytes::from(frames(&out, position) + E::END), None));
            }
            if !out.is_empty() {
                return Some((Bytes::from(frames(&out, position)), Some((reader, encoder))));
            }
        }
    });
    stream::iter(opening).chain(rest)
}

/// Writes events, the last with an id.
pub(crate) fn frames(events: &[impl AsRef<str>], position: Option<u64>) -> String {
    let mut text = String::new();
    for (index, event) in events.iter().enumerate() {
        if let Some(position) = position.filter(|_| index + 1 == events.len()) {
            let _ = writeln!(text, "id: {position}");
        }
        // JSON texts have no line breaks.
        let _ = write!(text, "data: {}\n\n", event.as_ref());
    }
    text
}

/// Returns a response that streams server-sent events.
pub(crate) fn response(events: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let kept_alive = stream::unfold(Box::pin(events), |mut events| async move {
        match timeout(MAX_SILENCE, events.next()).await {
            Ok(event) => event.map(|event| (event, events)),
            Err(_) => Some((Bytes::from_static(b": keep-alive\n\n"), events)),
        }
    });
    let mut response = Body::from_stream(kept_alive.map(Ok::<_, Infallible>)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
