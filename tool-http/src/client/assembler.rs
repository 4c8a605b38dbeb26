//! Turns the events of a streamed response into items, the last of which holds the whole response.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream};
use tokio::time::{Sleep, sleep};

use super::sse::{Event, EventReader, ReadError};

/// The time to wait for the end of the body after the last event. A connection whose response is not read to its end is
/// closed, and opening another takes about as long.
const MAX_END_DELAY: Duration = Duration::from_millis(50);

/// Assembles a response from the events of its stream.
pub trait Assembler {
    /// What a stream consists of.
    type Item;
    /// Why an event cannot be used.
    type EventError;
    /// Why a stream fails.
    type Error;

    /// Consumes one event and emits the items that it produces. It is not called again after [`Flow::End`] or an error.
    ///
    /// # Errors
    ///
    /// Returns an error if the event ends the stream as a failure.
    fn push(&mut self, event: &Event<'_>, emit: &mut dyn FnMut(Self::Item))
    -> Result<Flow, Self::EventError>;

    /// Returns the last item.
    ///
    /// # Errors
    ///
    /// Returns an error if the response is not complete.
    fn finish(self, end: StreamEnd<Self::EventError>) -> Result<Self::Item, Self::Error>;
}

/// The flow of events after one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// There may be more events.
    Continue,
    /// The event was the last one.
    End,
}

/// The end of a stream of events.
#[derive(Debug)]
pub enum StreamEnd<E> {
    /// With a last event.
    Complete,
    /// Without a last event, because the body ended or could not be read.
    Broken(Option<ReadError<reqwest::Error>>),
    /// With an event that could not be used, for the reason that [`Assembler::push`] has returned.
    Failed(E),
}

/// Returns the items of a streamed response as they arrive. Data after the last event is ignored, and the end of the body is awaited
/// only briefly. A body of more than `max_bytes` is an error.
pub fn assemble<'a, A: Assembler + Unpin + 'a>(
    body: BoxStream<'a, reqwest::Result<Bytes>>,
    assembler: A,
    max_bytes: usize,
) -> Assembled<'a, A>
where
    A::Item: Unpin,
    A::Error: Unpin,
{
    Assembled {
        events: Some(EventReader::new(body, max_bytes)),
        end_deadline: None,
        assembler: Some(assembler),
        ready: VecDeque::new(),
        last: None,
    }
}

/// The items of a streamed response, see [`assemble`].
pub struct Assembled<'a, A: Assembler> {
    /// Dropped with the connection once everything is read.
    events: Option<EventReader<BoxStream<'a, reqwest::Result<Bytes>>>>,
    /// Until when to wait for the end of the body after the last event.
    end_deadline: Option<Pin<Box<Sleep>>>,
    /// Consumed when the stream of events ends.
    assembler: Option<A>,
    /// Items that were emitted but not yet yielded.
    ready: VecDeque<A::Item>,
    /// What is yielded after them.
    last: Option<Result<A::Item, A::Error>>,
}

impl<A: Assembler + Unpin> Stream for Assembled<'_, A>
where
    A::Item: Unpin,
    A::Error: Unpin,
{
    type Item = Result<A::Item, A::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(item) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(item)));
            }
            let (Some(assembler), Some(events)) = (&mut this.assembler, &mut this.events) else {
                if this.last.as_ref().is_some_and(Result::is_ok) {
                    ready!(this.poll_end(context));
                }
                return Poll::Ready(this.last.take());
            };
            let end = match ready!(events.poll_next(context)) {
                // Only an id or a delay for resuming the stream.
                Ok(Some(event)) if event.data.is_empty() => continue,
                Ok(Some(event)) => match assembler.push(&event, &mut |item| this.ready.push_back(item)) {
                    Ok(Flow::Continue) => continue,
                    Ok(Flow::End) => StreamEnd::Complete,
                    Err(error) => StreamEnd::Failed(error),
                },
                Ok(None) => StreamEnd::Broken(None),
                Err(error) => StreamEnd::Broken(Some(error)),
            };
            this.end(end);
        }
    }
}

impl<A: Assembler> Assembled<'_, A> {
    fn end(&mut self, end: StreamEnd<A::EventError>) {
        let Some(assembler) = self.assembler.take() else { return };
        if matches!(end, StreamEnd::Complete) {
            self.end_deadline = Some(Box::pin(sleep(MAX_END_DELAY)));
        }
        self.last = Some(assembler.finish(end));
    }

    /// Releases the connection once the body has ended, or has not ended in time.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let (Some(events), Some(deadline)) = (&mut self.events, &mut self.end_deadline)
            && events.poll_end(context).is_pending()
        {
            ready!(deadline.as_mut().poll(context));
        }
        (self.events, self.end_deadline) = (None, None);
        Poll::Ready(())
    }
}

/// Shows no data.
impl<A: Assembler> fmt::Debug for Assembled<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assembled").finish_non_exhaustive()
    }
}
