//! The stream of a run in a protocol.

use std::sync::Arc;

use axum::body::Bytes;
use futures_util::stream::{self, Stream};

use super::adapter::{Adapter, Executors, Part};
use crate::entry::Entry;
use crate::log::{End, Found, RunLog};
use crate::sse::frames;

/// A protocol of frontends.
pub(crate) trait Protocol: Send + 'static {
    /// The last event of a stream.
    const END: Option<&str> = None;

    /// What calls return is part of the message that has made them.
    const HAS_MESSAGES: bool = false;

    /// Appends the JSON texts of the events for a part.
    fn write(&self, part: Part, out: &mut Vec<String>);
}

/// Why a stream ends although the run has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The run waits for people or callers.
    Waits,
    /// The reader was too slow, or the driver has left the run.
    Cut,
}

/// Encodes the entries of a run in a protocol.
#[derive(Debug)]
pub(crate) struct Encoder<P> {
    adapter: Adapter,
    protocol: P,
}

impl<P: Protocol> Encoder<P> {
    pub(crate) fn new(run: &str, executors: Executors, protocol: P) -> Self {
        Self { adapter: Adapter::new(run, executors), protocol }
    }

    /// Returns the JSON texts of the events of one entry.
    pub(crate) fn encode(&mut self, entry: &Entry) -> Vec<String> {
        self.adapter.convert(entry);
        self.write()
    }

    /// Begins another message of the assistant.
    pub(crate) fn begin_message(&mut self) {
        self.adapter.begin_message();
    }

    /// Returns the events that end a stream although the run has not ended.
    pub(crate) fn stop(&mut self, stop: Stop) -> Vec<String> {
        self.adapter.end_step();
        self.adapter.parts.push(match stop {
            Stop::Waits => Part::Waits { waits: self.adapter.open_waits() },
            Stop::Cut => Part::Error { error_text: "the stream was interrupted; read it again" },
        });
        self.write()
    }

    fn write(&mut self) -> Vec<String> {
        let mut out = Vec::new();
        self.adapter.parts.drain(..).for_each(|part| self.protocol.write(part, &mut out));
        out
    }
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Start {
    /// The client has what is at this position and before.
    pub(crate) after: Option<u64>,
    /// The stream answers a message: what calls before it return belongs to another one.
    pub(crate) is_new_message: bool,
}

/// The events of a log, until the run ends or waits.
///
/// The last event of an entry has its position as id, so that a client that has the id has all of the entry. What the client has is
/// encoded, because encoders have a state, but not sent.
pub(crate) fn events<P: Protocol>(
    log: &Arc<RunLog>,
    encoder: Encoder<P>,
    start: Start,
) -> impl Stream<Item = Bytes> + Send + use<P> {
    let Start { after, is_new_message } = start;
    let mut is_lost = log.has_dropped_after(after);
    let state = Some((log.reader(None), encoder, is_new_message && P::HAS_MESSAGES));
    stream::unfold(state, move |state| async move {
        let (mut reader, mut encoder, mut begins) = state?;
        let (mut has_end, mut events) = (false, Vec::new());
        loop {
            let found = match std::mem::take(&mut is_lost) {
                true => Found::Gap,
                false => reader.next().await,
            };
            let is_known = matches!(&found, Found::Entry(logged) if Some(logged.position) <= after);
            if !is_known && std::mem::take(&mut begins) {
                encoder.begin_message();
            }
            let (mut position, mut is_whole) = (None, true);
            let (encoded, is_end) = match found {
                Found::Entry(logged) => {
                    (position, is_whole) = (Some(logged.position), logged.is_last);
                    (encoder.encode(&logged.entry), logged.entry.is_end())
                }
                Found::Delta(logged) => (encoder.encode(&logged.entry), false),
                Found::End(End::Waits) => (encoder.stop(Stop::Waits), true),
                Found::End(End::Ended) if has_end => (Vec::new(), true),
                Found::Gap | Found::End(_) => (encoder.stop(Stop::Cut), true),
            };
            has_end = is_end;
            if is_known {
                // A run that failed before can go on.
                continue;
            }
            events.extend(encoded);
            if !is_whole {
                // All of a position is sent at once.
                continue;
            }
            if is_end {
                let end = frames(P::END.as_slice(), None);
                return Some((Bytes::from([frames(&events, position), end].concat()), None));
            }
            if !events.is_empty() {
                return Some((frames(&events, position), Some((reader, encoder, begins))));
            }
        }
    })
}
