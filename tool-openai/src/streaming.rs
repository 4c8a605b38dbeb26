//! Turns the events of a streamed response into deltas, for every API.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{BoxStream, Stream, StreamExt};
use reqwest::Url;
use tokio::time::{Sleep, sleep};
use tool_core::model::{ChatResponse, Delta};
use tool_http::client::sse::{EventReader, ReadError};

use crate::assembler::{Assembler, EventError, Flow};
use crate::client::{ApiResponse, Client, MAX_BODY_BYTES};
use crate::error::Error;

/// The time to wait for the end of the body after the last event. A connection whose response is not read to its end is
/// closed, and opening another takes about as long.
const MAX_END_DELAY: Duration = Duration::from_millis(50);

/// Returns the deltas of a streamed response as they arrive.
///
/// - A stream that ends or breaks once the response [is complete](Assembler::is_complete) yields the response.
/// - A stream that ends or breaks earlier, without a last event, yields an error with the partial response.
/// - Data after the last event is ignored, and the end of the body is awaited only briefly.
pub(crate) fn deltas<'a, A: Assembler + Send + Unpin + 'a>(
    client: &'a Client,
    response: ApiResponse,
    assembler: A,
) -> impl Stream<Item = Result<Delta, Error>> + Send + 'a {
    Deltas {
        client,
        url: response.url.clone(),
        request_id: response.request_id.clone(),
        events: Some(EventReader::new(response.into_bytes().boxed(), MAX_BODY_BYTES)),
        end_deadline: None,
        assembler: Some(assembler),
        ready: VecDeque::new(),
        failure: None,
    }
}

struct Deltas<'a, A> {
    client: &'a Client,
    url: Url,
    request_id: Option<String>,
    /// Dropped with the connection once everything is read.
    events: Option<EventReader<BoxStream<'a, reqwest::Result<Bytes>>>>,
    /// Until when to wait for the end of the body after the last event.
    end_deadline: Option<Pin<Box<Sleep>>>,
    /// Consumed when the stream of events ends.
    assembler: Option<A>,
    /// Deltas that were emitted but not yet yielded.
    ready: VecDeque<Delta>,
    /// The error to yield after them.
    failure: Option<Error>,
}

impl<A: Assembler + Unpin> Stream for Deltas<'_, A> {
    type Item = Result<Delta, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if this.ready.front().is_some_and(|delta| matches!(delta, Delta::Done(_))) {
                ready!(this.poll_end(context));
            }
            if let Some(delta) = this.ready.pop_front() {
                return Poll::Ready(Some(Ok(delta)));
            }
            let (Some(assembler), Some(events)) = (&mut this.assembler, &mut this.events) else {
                return Poll::Ready(this.failure.take().map(Err));
            };
            let end = match ready!(events.poll_next(context)) {
                // Only an id or a delay for resuming the stream.
                Ok(Some(event)) if event.data.is_empty() => continue,
                Ok(Some(event)) => {
                    let flow = assembler.push(&event, &mut |delta| this.ready.push_back(delta));
                    match flow {
                        Ok(Flow::Continue) => continue,
                        Ok(Flow::End) => StreamEnd::Complete,
                        // The end of the stream truncated this event.
                        Err(EventError::Malformed(_)) if !event.is_whole => StreamEnd::Broken(None),
                        Err(error) => StreamEnd::Failed(error, event.data.into_owned()),
                    }
                }
                Ok(None) => StreamEnd::Broken(None),
                Err(error) => StreamEnd::Broken(Some(error)),
            };
            this.finish(end);
        }
    }
}

/// The end of a stream of events.
enum StreamEnd {
    /// With a last event.
    Complete,
    /// Without a last event.
    Broken(Option<ReadError<reqwest::Error>>),
    /// With an event that has this data and could not be used.
    Failed(EventError, String),
}

impl<A: Assembler> Deltas<'_, A> {
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

    fn finish(&mut self, end: StreamEnd) {
        let Some(assembler) = self.assembler.take() else { return };
        if matches!(end, StreamEnd::Complete) {
            self.end_deadline = Some(Box::pin(sleep(MAX_END_DELAY)));
        }
        match self.outcome(end, assembler) {
            Ok(response) => self.ready.push_back(Delta::Done(response)),
            Err(error) => {
                let request = self.client.failed_request(&self.url);
                self.failure = Some(error.with_request(request, self.request_id.clone()));
            }
        }
    }

    fn outcome(&self, end: StreamEnd, assembler: A) -> Result<ChatResponse, Error> {
        match end {
            StreamEnd::Complete if assembler.has_started() => Ok(assembler.finish()),
            StreamEnd::Complete => {
                Err(Error::invalid_response("the stream ended before the response started"))
            }
            // Only the usage can be missing.
            StreamEnd::Broken(_) if assembler.is_complete() => Ok(assembler.finish()),
            StreamEnd::Broken(error) => {
                let cause = error.map(|error| self.read_error(error));
                Err(Error::incomplete(cause).with_partial(assembler.finish()))
            }
            StreamEnd::Failed(error, data) => {
                let error = self.client.event_error(error, &data, Some("text/event-stream"));
                Err(error.with_partial(assembler.finish()))
            }
        }
    }

    fn read_error(&self, error: ReadError<reqwest::Error>) -> Error {
        match error {
            ReadError::Body(error) => Error::transport(&self.url, error),
            ReadError::TooLong => {
                Error::invalid_response(format!("the stream is longer than {MAX_BODY_BYTES} bytes"))
            }
        }
    }
}
