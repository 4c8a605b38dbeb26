//! The streamed answer: server-sent events, each of which tells of the response or of one of its items.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use reqwest::{Response, Url};
use sse_stream::{Sse, SseByteStream};
use tool_core::Delta;

use super::PATH;
use super::assembler::Assembler;
use super::response::Problem;
use crate::Error;
use crate::client::{Client, LONGEST_BODY, request_id};

/// What some servers send behind the last event, as in Chat Completions.
const DONE: &str = "[DONE]";

/// The pieces of a streamed answer, as they come.
pub(super) fn deltas<'a>(
    client: &'a Client,
    response: Response,
) -> impl Stream<Item = Result<Delta, Error>> + Send + 'a {
    let state = State {
        client,
        url: client.url(PATH),
        request_id: request_id(&response),
        events: SseByteStream::new(bounded(response).boxed()),
        assembler: Some(Assembler::default()),
        ready: VecDeque::new(),
    };
    stream::try_unfold(state, State::next)
}

/// The bytes of an answer, up to the length that no answer has.
fn bounded(response: Response) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let mut left = LONGEST_BODY;
    response.bytes_stream().map(move |chunk| {
        let chunk = chunk.map_err(io::Error::other)?;
        let too_long = || io::Error::other(format!("it is longer than {LONGEST_BODY} bytes"));
        left = left.checked_sub(chunk.len()).ok_or_else(too_long)?;
        Ok(chunk)
    })
}

struct State<'a, E> {
    client: &'a Client,
    url: Url,
    request_id: Option<String>,
    events: E,
    /// Gone once the response is told to be whole.
    assembler: Option<Assembler>,
    ready: VecDeque<Delta>,
}

impl<E: Stream<Item = Result<Sse, sse_stream::Error>> + Unpin> State<'_, E> {
    async fn next(mut self) -> Result<Option<(Delta, Self)>, Error> {
        loop {
            if let Some(delta) = self.ready.pop_front() {
                return Ok(Some((delta, self)));
            }
            let Some(mut assembler) = self.assembler.take() else { return Ok(None) };
            let is_last = match self.events.next().await {
                Some(Ok(event)) if event.data.as_deref().is_some_and(|data| data.trim() == DONE) => {
                    return Err(Error::incomplete(assembler.into_response(), None));
                }
                Some(Ok(event)) => self.read(&event, &mut assembler)?,
                Some(Err(error)) => {
                    return Err(Error::incomplete(assembler.into_response(), Some(self.broken(error))));
                }
                None => return Err(Error::incomplete(assembler.into_response(), None)),
            };
            if is_last {
                self.ready.push_back(Delta::Done(assembler.into_response()));
            } else {
                self.assembler = Some(assembler);
            }
        }
    }

    /// Reads one event; whether it is the last.
    fn read(&mut self, event: &Sse, assembler: &mut Assembler) -> Result<bool, Error> {
        let Some(data) = event.data.as_deref().filter(|data| !data.trim().is_empty()) else {
            return Ok(false);
        };
        let added = assembler.add(event.event.as_deref(), data, &mut |delta| self.ready.push_back(delta));
        added.map_err(|problem| match problem {
            Problem::Api(error) => self.client.api_error(None, error.as_bytes(), self.request_id.clone()),
            Problem::Unreadable(why) => {
                Error::unreadable(Some("text/event-stream"), &self.client.without_key(data), &why)
            }
        })
    }

    fn broken(&self, error: sse_stream::Error) -> Error {
        let unreadable =
            |why: &dyn Display| Error::invalid_response(format!("the stream cannot be read: {why}"));
        let sse_stream::Error::Body(error) = error else { return unreadable(&error) };
        // It was wrapped in `bounded`.
        match error.downcast::<io::Error>().map(|error| error.downcast::<reqwest::Error>()) {
            Ok(Ok(error)) => Error::transport(&self.url, error),
            Ok(Err(other)) => unreadable(&other),
            Err(other) => unreadable(&other),
        }
    }
}
