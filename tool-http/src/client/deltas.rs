//! Turns the events of a streamed response into deltas.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream};
use tokio::time::{Sleep, sleep};
use tool_core::model::Delta;

use super::assembler::{Assembler, EventError, Flow};
use super::error::Error;
use super::response_context::{MAX_RESPONSE_BYTES, ResponseContext};
use super::sse::{EventReader, ReadError};

/// The time to wait for the end of the body after the last event. A connection whose response is not read to its end is
/// closed, and opening another takes about as long.
const MAX_END_DELAY: Duration = Duration::from_millis(50);

/// The deltas of a streamed response, a `Stream` of `Result<Delta, Error>` that ends with [`Delta::Done`] or an error: see
/// [`ApiResponse::into_deltas`](super::ApiResponse::into_deltas).
pub struct Deltas<'a, A> {
    /// Dropped with the connection once everything is read.
    events: Option<EventReader<BoxStream<'static, reqwest::Result<Bytes>>>>,
    /// Until when to wait for the end of the body after the last event.
    end_deadline: Option<Pin<Box<Sleep>>>,
    /// Consumed when the stream of events ends.
    assembler: Option<A>,
    context: ResponseContext<'a>,
    /// Deltas that were emitted but not yet yielded.
    ready: VecDeque<Delta>,
    /// What is yielded after them.
    last: Option<Result<Delta, Error>>,
}

/// The end of a stream of events.
enum StreamEnd {
    /// With a last event.
    Complete,
    /// Without a last event, because the body ended, or could not be read for this reason.
    Broken(Option<Error>),
    /// With an event that could not be used.
    Failed(Error),
}

impl<'a, A: Assembler> Deltas<'a, A> {
    pub(super) fn new(
        body: BoxStream<'static, reqwest::Result<Bytes>>,
        assembler: A,
        context: ResponseContext<'a>,
    ) -> Self {
        Self {
            events: Some(EventReader::new(body, MAX_RESPONSE_BYTES)),
            end_deadline: None,
            assembler: Some(assembler),
            context,
            ready: VecDeque::new(),
            last: None,
        }
    }

    /// Sets what is yielded last.
    fn end(&mut self, end: StreamEnd) {
        let Some(assembler) = self.assembler.take() else { return };
        let error = match end {
            StreamEnd::Complete if assembler.has_started() => {
                self.end_deadline = Some(Box::pin(sleep(MAX_END_DELAY)));
                self.last = Some(Ok(Delta::Done(assembler.finish())));
                return;
            }
            StreamEnd::Complete => Error::invalid_response("the stream ended before the response started"),
            StreamEnd::Failed(error) => error.with_partial(assembler.finish()),
            // Only what follows the reply can be missing.
            StreamEnd::Broken(_) if assembler.is_complete() => {
                self.last = Some(Ok(Delta::Done(assembler.finish())));
                return;
            }
            StreamEnd::Broken(cause) => {
                let cause = cause.map(|cause| self.context.with_request(cause));
                Error::incomplete(cause).with_partial(assembler.finish())
            }
        };
        self.last = Some(Err(self.context.fail(error)));
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

impl<A: Assembler + Unpin> Stream for Deltas<'_, A> {
    type Item = Result<Delta, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(delta) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(delta)));
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
                Ok(Some(event)) => match assembler.push(&event, &mut |delta| this.ready.push_back(delta)) {
                    Ok(Flow::Continue) => continue,
                    Ok(Flow::End) => StreamEnd::Complete,
                    // The end of the stream truncated it.
                    Err(EventError::Malformed(_)) if !event.is_whole => StreamEnd::Broken(None),
                    Err(error) => StreamEnd::Failed(this.context.event_error(error, &event.data)),
                },
                Ok(None) => StreamEnd::Broken(None),
                Err(ReadError::Body(error)) => StreamEnd::Broken(Some(Error::transport(error))),
                Err(ReadError::TooLong) => StreamEnd::Broken(Some(Error::invalid_response(format!(
                    "the stream is longer than {MAX_RESPONSE_BYTES} bytes"
                )))),
            };
            this.end(end);
        }
    }
}

/// Shows no data.
impl<A> fmt::Debug for Deltas<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deltas").finish_non_exhaustive()
    }
}
