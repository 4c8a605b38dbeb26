//! The stream of the events of a run.

use std::fmt;
use std::future::{Future, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_channel::mpsc;
use futures_util::stream::{self, Stream, StreamExt};
use futures_util::{FutureExt, SinkExt};

use crate::agent::{Event, EventRecord};
use crate::run::{Answer, RunError};

/// The number of events that are buffered before the run waits for the reader of the stream.
const BUFFERED_EVENTS: usize = 16;

/// A [`Stream`] of the [`Event`]s of a run, which ends with [`Event::Done`] or an error.
///
/// The run makes progress only while the stream is polled. When the stream is dropped, the run is cancelled, unless it is
/// [stored](crate::agent::OnDrop).
pub struct EventStream(Pin<Box<dyn Stream<Item = Result<Event, RunError>> + Send>>);

/// The sender that a driver emits events to.
pub(super) type EventSender = mpsc::Sender<Result<Event, RunError>>;

impl EventStream {
    /// Creates the stream of the events that a driver sends, followed by the driver's outcome.
    pub(super) fn new<D>(driver: impl FnOnce(EventSender) -> D) -> Self
    where
        D: Future<Output = Result<Answer, RunError>> + Send + 'static,
    {
        let (mut sender, events) = mpsc::channel(BUFFERED_EVENTS);
        // An `async` block around the driver would store the driver's future twice.
        let driver = driver(sender.clone()).then(|outcome| async move {
            // Cannot fail: the receiver is dropped only together with this future.
            let _ = sender.send(outcome.map(Event::Done)).await;
        });
        // One task polls both, so no work continues once the stream is dropped.
        let silent = stream::once(driver).filter_map(|()| ready(None));
        Self(Box::pin(stream::select(events, silent)))
    }

    /// Returns the next event, or `None` after the last one. Like `StreamExt::next`, without the import.
    ///
    /// # Errors
    ///
    /// Fails if the run ended without an answer.
    pub async fn next(&mut self) -> Option<Result<Event, RunError>> {
        self.0.next().await
    }

    /// Returns the events with their positions, which begin behind `last`: 0, or the last position of an earlier stream of the run.
    pub fn records(self, last: u64) -> impl Stream<Item = Result<EventRecord, RunError>> + Send + use<> {
        self.scan(last, |position, event| {
            *position = position.saturating_add(1);
            ready(Some(event.map(|event| event.at(*position))))
        })
    }
}

impl Stream for EventStream {
    type Item = Result<Event, RunError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventStream")
    }
}
