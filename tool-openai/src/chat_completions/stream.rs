//! The streamed answer: server-sent events, each a chunk of the response.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use reqwest::Url;
use sse_stream::{Sse, SseByteStream};
use tool_core::Delta;

use super::assembler::Assembler;
use super::response::Completion;
use crate::client::{Answer, Client, LONGEST_BODY};
use crate::error::Told;
use crate::{Error, quirks};

/// What the API sends behind the last chunk.
const DONE: &str = "[DONE]";

/// The pieces of a streamed answer, as they come.
pub(super) fn deltas<'a>(
    client: &'a Client,
    answer: Answer,
) -> impl Stream<Item = Result<Delta, Error>> + Send + 'a {
    let state = State {
        client,
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
            let is_done = match self.events.next().await {
                Some(Ok(event)) => self.read(&event, &mut assembler)?,
                // Nothing but the usage can be missing then.
                _ if assembler.is_finished() => true,
                Some(Err(error)) => {
                    let why = Some(self.broken(error));
                    return Err(self.with_id(Error::incomplete(assembler.into_response(), why)));
                }
                None => return Err(self.with_id(Error::incomplete(assembler.into_response(), None))),
            };
            if is_done && !assembler.has_choice() {
                return Err(Error::invalid_response("the stream ended before it had begun"));
            }
            if is_done {
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
        if data.trim() == DONE {
            return Ok(true);
        }
        let error = || {
            self.client
                .api_error(data.as_bytes(), Told { request_id: self.request_id.clone(), ..Told::default() })
        };
        if event.event.as_deref() == Some("error") {
            return Err(error());
        }
        let chunk: Completion<'_> = serde_json::from_str(data).map_err(|why| {
            Error::unreadable(Some("text/event-stream"), &self.client.without_key(data), &why)
        })?;
        if chunk.error.is_some() || (chunk.choices.is_none() && quirks::api_error(data).is_some()) {
            return Err(error());
        }
        assembler.add(chunk, |delta| self.ready.push_back(delta));
        Ok(false)
    }

    fn with_id(&self, error: Error) -> Error {
        error.with_request_id(self.request_id.clone())
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
