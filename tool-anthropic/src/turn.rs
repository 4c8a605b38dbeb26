//! One reply of a model: requests, and what they return, until the reply is complete.
//!
//! The provider pauses replies that use hosted tools for long. They are continued with the same messages and their own content.

use std::sync::Arc;

use futures_util::stream::{BoxStream, StreamExt, iter};
use reqwest::Url;
use tool_core::Message;
use tool_core::model::{ChatResponse, Delta, FinishReason};
use tool_core::provider::EarlierAttempt;
use tool_http::client::{Error, RequestBody, count_attempt};

use crate::client::Client;
use crate::request::{MAX_UNSTREAMED_TOKENS, ModelRequest, Purpose};
use crate::response::{PAUSE_TURN, ReplyAssembler};

type Deltas<'a> = BoxStream<'a, Result<Delta, Error>>;

/// One reply.
pub(crate) struct Turn<'a> {
    request: ModelRequest<'a>,
    purpose: Purpose,
    /// The reply so far, if the provider paused it.
    paused: Option<ChatResponse>,
    pauses: u32,
    state: TurnState<'a>,
}

enum TurnState<'a> {
    /// The next request is to be sent.
    Ready,
    Receiving(Deltas<'a>),
    Finished,
}

impl<'a> Turn<'a> {
    /// Starts a reply. The API returns a long one only as a stream.
    pub(crate) fn new(request: ModelRequest<'a>, is_streamed: bool) -> Self {
        let is_long = request.max_tokens() > MAX_UNSTREAMED_TOKENS;
        let purpose = if is_streamed || is_long { Purpose::Stream } else { Purpose::Reply };
        Self { request, purpose, paused: None, pauses: 0, state: TurnState::Ready }
    }

    /// Returns the whole reply.
    pub(crate) async fn response(mut self) -> Result<ChatResponse, Error> {
        loop {
            match next_delta(self).await {
                Some((Ok(Delta::Done(response)), _)) => return Ok(response),
                Some((Ok(_), turn)) => self = turn,
                Some((Err(error), _)) => return Err(error),
                None => return Err(Error::incomplete(None)),
            }
        }
    }

    /// Sends the next request, with retries, and returns the deltas of its response.
    fn open(&self) -> impl Future<Output = Result<Deltas<'a>, Error>> + Send + use<'a> {
        let (purpose, is_resumed) = (self.purpose, self.paused.is_some());
        let (encoded, url) = (self.encode(), self.request.url(purpose));
        let ModelRequest { client, chat, .. } = self.request;
        async move {
            let (body, beta, assembler) = encoded?;
            if is_resumed {
                count_attempt(chat, EarlierAttempt::Continued).await?;
            }
            let mut retries = client.retry.start();
            loop {
                match send(client, (&url, &body), beta, assembler(), (purpose, is_resumed)).await {
                    Ok(deltas) => return Ok(deltas),
                    Err(error) => retries.repeat(chat, error).await?,
                }
            }
        }
    }

    /// Encodes the next request, and returns what assembles its response.
    #[allow(clippy::type_complexity, reason = "the assembler has no name")]
    fn encode(
        &self,
    ) -> Result<(RequestBody, Option<&'static str>, impl Fn() -> ReplyAssembler + Send + Sync + use<>), Error>
    {
        // The paused reply is not part of the conversation yet.
        let resumed = self.paused.as_ref().map(|paused| {
            let reply = Message::Assistant(paused.message.clone());
            self.request.chat.copy_with_messages([self.request.chat.messages(), &[reply]].concat())
        });
        let request = ModelRequest { chat: resumed.as_ref().unwrap_or(self.request.chat), ..self.request };
        if resumed.is_none() && !request.chat.is_compaction() {
            request.reject_prefill()?;
        }
        let encoded = request.encode(self.purpose)?;
        let provider: Arc<str> = request.client.provider().into();
        let (paused, is_compaction) = (self.paused.clone(), request.chat.is_compaction());
        let assembler = move || {
            let assembler = ReplyAssembler::new(Arc::clone(&provider), encoded.prefix.clone());
            match &paused {
                _ if is_compaction => assembler.summarizing(encoded.seed.clone()),
                Some(paused) => assembler.resuming(paused),
                None => assembler,
            }
        };
        Ok((encoded.body, encoded.beta, assembler))
    }

    /// Returns the response, unless it is to be continued. A reply with calls continues with their results, in the next request.
    fn end_of_reply(&mut self, mut response: ChatResponse) -> Option<ChatResponse> {
        let mut is_paused =
            matches!(&response.finish_reason, FinishReason::Other(reason) if reason == PAUSE_TURN);
        if is_paused && !response.message.tool_calls.is_empty() {
            response.finish_reason = FinishReason::ToolCalls;
            is_paused = false;
        }
        if !is_paused || self.pauses == self.request.options.max_pauses {
            self.state = TurnState::Finished;
            return Some(response);
        }
        self.pauses += 1;
        self.paused = Some(response);
        self.state = TurnState::Ready;
        None
    }
}

/// Returns the next delta of a reply. The last one is the whole response.
pub(crate) async fn next_delta(mut turn: Turn<'_>) -> Option<(Result<Delta, Error>, Turn<'_>)> {
    loop {
        let delta = match &mut turn.state {
            TurnState::Receiving(deltas) => deltas.next().await?,
            TurnState::Finished => return None,
            TurnState::Ready => match turn.open().await {
                Ok(deltas) => {
                    turn.state = TurnState::Receiving(deltas);
                    continue;
                }
                Err(error) => Err(error),
            },
        };
        match delta {
            Ok(Delta::Done(response)) => {
                if let Some(response) = turn.end_of_reply(response) {
                    return Some((Ok(Delta::Done(response)), turn));
                }
            }
            Ok(delta) => return Some((Ok(delta), turn)),
            Err(error) => {
                turn.state = TurnState::Finished;
                return Some((Err(error), turn));
            }
        }
    }
}

/// Sends a request and returns the deltas of its response. Those of what was already emitted are not repeated.
async fn send<'a>(
    client: &'a Client,
    (url, body): (&Url, &RequestBody),
    beta: Option<&'static str>,
    assembler: ReplyAssembler,
    (purpose, is_resumed): (Purpose, bool),
) -> Result<Deltas<'a>, Error> {
    let is_streamed = purpose == Purpose::Stream;
    let accept = if is_streamed { "text/event-stream" } else { "application/json" };
    let response = client.send(url, Some(body), accept, beta).await?;
    if is_streamed && response.is_event_stream() {
        return Ok(Box::pin(response.into_deltas(assembler)));
    }
    // Some servers ignore `stream`.
    let response = response.assemble(assembler).await?;
    let is_quiet = !is_streamed || is_resumed;
    let deltas = if is_quiet { vec![Delta::Done(response)] } else { response.into_deltas() };
    Ok(Box::pin(iter(deltas.into_iter().map(Ok))))
}
