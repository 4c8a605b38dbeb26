//! The streamed answer: server-sent events, each of which tells of the response or of one of its items.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use reqwest::Url;
use sse_stream::{Sse, SseByteStream};
use tool_core::Delta;

use super::assembler::Assembler;
use crate::Error;
use crate::client::{Answer, Client, LONGEST_BODY};

/// What some servers send behind the last event, as in Chat Completions.
const DONE: &str = "[DONE]";

/// The pieces of a streamed answer, as they come.
pub(super) fn deltas<'a>(
    client: &'a Client,
    provider: &'a str,
    answer: Answer,
) -> impl Stream<Item = Result<Delta, Error>> + Send + 'a {
    let state = State {
        client,
        provider,
        url: answer.url.clone(),
        request_id: answer.request_id.clone(),
        events: SseByteStream::new(bounded(answer).boxed()),
        assembler: Some(Assembler::default()),
        ready: VecDeque::new(),
    };
    stream::try_unfold(state, State::next)
}

/// The bytes of an answer, up to the length that no answer has.
fn bounded(answer: Answer) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let mut left = LONGEST_BODY;
    answer.into_bytes().map(move |chunk| {
        let chunk = chunk.map_err(io::Error::other)?;
        let too_long = || io::Error::other(format!("it is longer than {LONGEST_BODY} bytes"));
        left = left.checked_sub(chunk.len()).ok_or_else(too_long)?;
        Ok(chunk)
    })
}

struct State<'a, E> {
    client: &'a Client,
    provider: &'a str,
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
            let incomplete = |assembler: Assembler, why| {
                let error = Error::incomplete(assembler.into_response(self.provider), why);
                error.with_request_id(self.request_id.clone())
            };
            let is_last = match self.events.next().await {
                Some(Ok(event)) if event.data.as_deref().is_some_and(|data| data.trim() == DONE) => {
                    return Err(incomplete(assembler, None));
                }
                Some(Ok(event)) => self.read(&event, &mut assembler)?,
                Some(Err(error)) => return Err(incomplete(assembler, Some(self.broken(error)))),
                None => return Err(incomplete(assembler, None)),
            };
            if is_last {
                self.ready.push_back(Delta::Done(assembler.into_response(self.provider)));
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
        added.map_err(|problem| {
            let error = problem.into_error(self.client, Some("text/event-stream"), data);
            error.with_request_id(self.request_id.clone())
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
