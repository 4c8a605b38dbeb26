//! Turns the events of a streamed response into deltas, for every API.

use futures_util::stream::Stream;
use reqwest::Url;
use tool_core::model::Delta;
use tool_http::client::assembler::{self, Flow, StreamEnd};
use tool_http::client::sse::{Event, ReadError};

use crate::assembler::{Assembler, EventError};
use crate::client::{ApiResponse, Client, MAX_BODY_BYTES};
use crate::error::Error;

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
    let (url, request_id) = (response.url.clone(), response.request_id.clone());
    let assembler = StreamAssembler { client, url, request_id, assembler };
    assembler::assemble(response.success.into_bytes(), assembler, MAX_BODY_BYTES)
}

struct StreamAssembler<'a, A> {
    client: &'a Client,
    url: Url,
    request_id: Option<String>,
    assembler: A,
}

/// Why an event ends its stream.
pub(crate) enum StreamError {
    /// The end of the stream truncated it.
    Truncated,
    Failed(Error),
}

impl<A: Assembler> assembler::Assembler for StreamAssembler<'_, A> {
    type Item = Delta;
    type EventError = StreamError;
    type Error = Error;

    fn push(&mut self, event: &Event<'_>, emit: &mut dyn FnMut(Delta)) -> Result<Flow, StreamError> {
        self.assembler.push(event, &mut |delta| emit(delta)).map_err(|error| match error {
            EventError::Malformed(_) if !event.is_whole => StreamError::Truncated,
            error => {
                StreamError::Failed(self.client.event_error(error, &event.data, Some("text/event-stream")))
            }
        })
    }

    fn finish(self, end: StreamEnd<StreamError>) -> Result<Delta, Error> {
        let error = match end {
            StreamEnd::Complete if self.assembler.has_started() => {
                return Ok(Delta::Done(self.assembler.finish()));
            }
            StreamEnd::Complete => {
                let error = Error::invalid_response("the stream ended before the response started");
                return Err(error.with_request(self.client.failed_request(&self.url), self.request_id));
            }
            StreamEnd::Failed(StreamError::Failed(error)) => error,
            // Only the usage can be missing.
            _ if self.assembler.is_complete() => return Ok(Delta::Done(self.assembler.finish())),
            StreamEnd::Broken(Some(error)) => Error::incomplete(Some(read_error(&self.url, error))),
            StreamEnd::Broken(None) | StreamEnd::Failed(StreamError::Truncated) => Error::incomplete(None),
        };
        let error = error.with_partial(self.assembler.finish());
        Err(error.with_request(self.client.failed_request(&self.url), self.request_id))
    }
}

fn read_error(url: &Url, error: ReadError<reqwest::Error>) -> Error {
    match error {
        ReadError::Body(error) => Error::transport(url, error),
        ReadError::TooLong => {
            Error::invalid_response(format!("the stream is longer than {MAX_BODY_BYTES} bytes"))
        }
    }
}
