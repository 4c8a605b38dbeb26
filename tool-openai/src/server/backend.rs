//! What answers: a model, or an agent.

use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::mpsc;
use tool_core::{Agent, ChatModel, ChatRequest, ChatResponse, Delta};

use super::agent::Leg;
use super::endpoint::Endpoint;
use super::error::ApiError;
use super::failure::Telling;
use super::http::LONGEST_SILENCE;

/// What answers under one name.
#[derive(Clone)]
pub(super) enum Backend {
    Model(Arc<dyn ChatModel>),
    Agent(Agent),
}

/// A request as either API reads it.
pub(super) struct Asked {
    /// The name that the caller knows the model by.
    pub(super) model: String,
    pub(super) chat: ChatRequest<'static>,
    /// What the API calls the parts of a request.
    pub(super) words: &'static Words,
}

/// What one of the APIs calls the parts of a request.
pub(super) struct Words {
    pub(super) messages: &'static str,
    pub(super) response_format: &'static str,
}

/// How many pieces wait for the caller before the model waits for it, too.
const BUFFERED_DELTAS: usize = 16;

pub(super) type Deltas = Pin<Box<dyn Stream<Item = Result<Delta, ApiError>> + Send>>;

/// The answer in pieces; the last is [`Delta::Done`].
pub(super) async fn respond(endpoint: &Arc<Endpoint>, asked: Asked) -> Result<Vec<Delta>, ApiError> {
    match ready_to_ask(endpoint, &asked)? {
        Backend::Model(model) => {
            let response = model.chat(&asked.chat).await;
            response.map(ChatResponse::into_deltas).map_err(|error| endpoint.settings.telling.model(&error))
        }
        Backend::Agent(agent) => Leg::new(&agent, &asked, endpoint)?.respond().await,
    }
}

/// The pieces of the answer, as they come. An error before the first of them is one of the request, unless it is long in
/// coming.
pub(super) async fn stream(endpoint: &Arc<Endpoint>, asked: Asked) -> Result<Deltas, ApiError> {
    let deltas = match ready_to_ask(endpoint, &asked)? {
        Backend::Model(model) => stream_model(model, asked.chat, endpoint.settings.telling),
        Backend::Agent(agent) => Leg::new(&agent, &asked, endpoint)?.stream(),
    };
    let deltas = AssertUnwindSafe(deltas).catch_unwind();
    let mut deltas = whole(deltas.map(|delta| delta.unwrap_or_else(|_| Err(ApiError::internal()))));
    match tokio::time::timeout(LONGEST_SILENCE, deltas.next()).await {
        Ok(Some(Ok(first))) => Ok(stream::once(ready(Ok(first))).chain(deltas).boxed()),
        Ok(Some(Err(error))) => Err(error),
        Ok(None) | Err(_) => Ok(deltas),
    }
}

/// What answers. Whoever asks for JSON of a schema takes the answer for such, so that is not ignored.
fn ready_to_ask(endpoint: &Endpoint, asked: &Asked) -> Result<Backend, ApiError> {
    let backend = endpoint.backend(&asked.model)?;
    let is_supported = match backend {
        Backend::Model(model) => model.supports_response_format(),
        Backend::Agent(agent) => agent.model().supports_response_format(),
    };
    if is_supported || asked.chat.response_format().is_none() {
        return Ok(backend.clone());
    }
    let param = asked.words.response_format;
    Err(ApiError::invalid(param, format!("this model cannot be held to a JSON schema; leave `{param}` out")))
}

/// A stream that owns the request of which the model's own stream borrows. One task polls both, so
/// nothing runs on when the caller goes away.
fn stream_model(model: Arc<dyn ChatModel>, chat: ChatRequest<'static>, telling: Telling) -> Deltas {
    let (sender, mut receiver) = mpsc::channel(BUFFERED_DELTAS);
    let driver = async move {
        let mut deltas = model.stream(&chat);
        while let Some(delta) = deltas.next().await {
            let delta = delta.map_err(|error| telling.model(&error));
            if sender.send(delta).await.is_err() {
                break;
            }
        }
    };
    let silent = driver.into_stream().filter_map(|()| ready(None));
    let received = stream::poll_fn(move |context| receiver.poll_recv(context));
    stream::select(received, silent).boxed()
}

/// The pieces, up to the first error or the end. Those that a model only told of at the end come before it; a stream
/// that has no end is an error.
fn whole(deltas: impl Stream<Item = Result<Delta, ApiError>> + Send + 'static) -> Deltas {
    #[derive(Default)]
    struct Told {
        text: bool,
        reasoning: bool,
        refusal: bool,
        calls: usize,
        is_over: bool,
    }
    let deltas = deltas.map(Some).chain(stream::once(ready(None)));
    let deltas = deltas.scan(Told::default(), |told, delta| {
        if told.is_over {
            return ready(None);
        }
        let mut pieces = Vec::new();
        match delta {
            Some(Ok(Delta::Done(response))) => {
                told.is_over = true;
                pieces.extend(response.into_deltas().into_iter().filter(|piece| match piece {
                    Delta::Text(_) => !told.text,
                    Delta::Reasoning(_) => !told.reasoning,
                    Delta::Refusal(_) => !told.refusal,
                    Delta::ToolCall { index, .. } | Delta::Arguments { index, .. } => *index >= told.calls,
                    _ => true,
                }));
            }
            Some(Ok(delta)) => {
                match &delta {
                    Delta::Text(_) => told.text = true,
                    Delta::Reasoning(_) => told.reasoning = true,
                    Delta::Refusal(_) => told.refusal = true,
                    Delta::ToolCall { index, .. } => told.calls = told.calls.max(index + 1),
                    _ => {}
                }
                pieces.push(delta);
            }
            Some(Err(error)) => {
                told.is_over = true;
                return ready(Some(vec![Err(error)]));
            }
            None => {
                told.is_over = true;
                return ready(Some(vec![Err(ApiError::internal())]));
            }
        }
        ready(Some(pieces.into_iter().map(Ok).collect()))
    });
    deltas.flat_map(stream::iter).boxed()
}
