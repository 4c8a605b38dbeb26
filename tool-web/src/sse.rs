//! Server-sent events.

use std::fmt::Write;

use axum::body::Bytes;
use axum::http::HeaderMap;

/// Writes events, the last with an id.
pub(crate) fn frames(events: &[impl AsRef<str>], position: Option<u64>) -> Bytes {
    let mut text = String::new();
    for (index, event) in events.iter().enumerate() {
        if let Some(position) = position.filter(|_| index + 1 == events.len()) {
            let _ = writeln!(text, "id: {position}");
        }
        // JSON texts have no line breaks.
        let _ = write!(text, "data: {}\n\n", event.as_ref());
    }
    text.into()
}

/// Returns the position after which a client that was disconnected continues.
pub(crate) fn last_event(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.parse().ok()
}
