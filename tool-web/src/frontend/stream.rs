//! The stream of a run in a protocol.

use axum::body::Bytes;
use futures_util::stream::{self, Stream};

use super::adapter::{Adapter, Executors, Part};
use crate::entry::Entry;
use crate::log::{Found, Reader, Status};
use crate::sse::frames;

/// A protocol of frontends.
pub(crate) trait Protocol: Send + 'static {
    /// The last event of a stream.
    const END: Option<&str> = None;

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

/// The events of a log from its reader's position on, until the run ends or waits.
///
/// The last event of an entry has its position as id, so that a client that has the id has all of the entry. What is at `after`
/// and before is encoded, because encoders have a state, but not sent.
pub(crate) fn events<P: Protocol>(
    reader: Reader,
    encoder: Encoder<P>,
    after: Option<u64>,
) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(Some((reader, encoder)), move |state| async move {
        let (mut reader, mut encoder) = state?;
        let mut has_end = false;
        loop {
            let (events, position, is_end) = match reader.next().await {
                Found::Entry(position, logged) => {
                    (encoder.encode(&logged.entry), Some(position), logged.entry.is_end())
                }
                Found::End if reader.log().status() == Status::Waiting => {
                    (encoder.stop(Stop::Waits), None, true)
                }
                Found::End if has_end && reader.log().status().is_end() => (Vec::new(), None, true),
                Found::Gap | Found::End => (encoder.stop(Stop::Cut), None, true),
            };
            has_end = is_end;
            if position.is_some() && position <= after {
                // A run that failed before can go on.
                continue;
            }
            if is_end {
                let end = frames(P::END.as_slice(), None);
                return Some((Bytes::from([frames(&events, position), end].concat()), None));
            }
            if !events.is_empty() {
                return Some((frames(&events, position), Some((reader, encoder))));
            }
        }
    })
}
