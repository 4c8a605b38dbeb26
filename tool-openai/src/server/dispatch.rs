//! Sends a request to its model or agent, and returns the answer, whole or as a stream.

use std::future::ready;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tool_core::ChatModel;
use tool_core::model::{ChatRequest, ChatResponse, Delta};
use tool_http::server::MAX_SILENCE;

use super::agent::answer;
use super::backend::{Backend, BackendRequest, Deltas, flatten};
use super::error::ApiError;
use super::error_mapping::ErrorMapper;
use super::state::ServerState;

/// The number of deltas that are buffered for a slow caller.
const BUFFERED_DELTAS: usize = 16;

/// Returns the complete answer as deltas; the last one is [`Delta::Done`].
pub(super) async fn respond(
    state: &Arc<ServerState>,
    request: BackendRequest,
) -> Result<Vec<Delta>, ApiError> {
    match resolve(state, &request)? {
        Backend::Model(model) => {
            let response = model.chat(&request.chat).await;
            response
                .map(ChatResponse::into_deltas)
                .map_err(|error| state.config.error_mapper.map_model_error(&error))
        }
        Backend::Agent(agent) => answer(&agent, &request, state, false).await?.try_collect().await,
    }
}

/// Streams the answer. An error before the first delta is returned as the error of the request, unless the first delta takes
/// longer than [`MAX_SILENCE`].
pub(super) async fn stream(state: &Arc<ServerState>, request: BackendRequest) -> Result<Deltas, ApiError> {
    let deltas = match resolve(state, &request)? {
        Backend::Model(model) => stream_model(model, request.chat, state.config.error_mapper),
        Backend::Agent(agent) => answer(&agent, &request, state, true).await?,
    };
    let deltas = AssertUnwindSafe(deltas).catch_unwind();
    let mut deltas = complete(deltas.map(|delta| delta.unwrap_or_else(|_| Err(ApiError::internal()))));
    match tokio::time::timeout(MAX_SILENCE, deltas.next()).await {
        Ok(Some(Ok(first))) => Ok(stream::once(ready(Ok(first))).chain(deltas).boxed()),
        Ok(Some(Err(error))) => Err(error),
        Ok(None) | Err(_) => Ok(deltas),
    }
}

/// Returns the backend of a request. Refuses a response format that the model does not support, because the caller relies on
/// the form of the answer.
fn resolve(state: &ServerState, request: &BackendRequest) -> Result<Backend, ApiError> {
    let backend = state.backend(&request.model)?;
    let is_supported = match backend {
        Backend::Model(model) => model.supports_response_format(),
        Backend::Agent(agent) => agent.model().supports_response_format(),
    };
    if is_supported || request.chat.response_format().is_none() {
        return Ok(backend.clone());
    }
    let param = request.field_names.response_format;
    Err(ApiError::invalid(param, format!("this model does not support a JSON schema; omit `{param}`")))
}

/// Streams from a model, and owns the request that the model's stream borrows. One task polls both, so the model stops
/// when the caller disconnects.
fn stream_model(model: Arc<dyn ChatModel>, chat: ChatRequest<'static>, error_mapper: ErrorMapper) -> Deltas {
    let (sender, mut receiver) = mpsc::channel(BUFFERED_DELTAS);
    let driver = async move {
        let mut deltas = model.stream(&chat);
        while let Some(delta) = deltas.next().await {
            let delta = delta.map_err(|error| error_mapper.map_model_error(&error));
            if sender.send(delta).await.is_err() {
                break;
            }
        }
    };
    let driver = driver.into_stream().filter_map(|()| ready(None));
    let received = stream::poll_fn(move |context| receiver.poll_recv(context));
    stream::select(received, driver).boxed()
}

/// The parts of a response that a stream has emitted.
#[derive(Default)]
struct Emitted {
    text: bool,
    reasoning: bool,
    refusal: bool,
    calls: usize,
    is_finished: bool,
}

impl Emitted {
    /// Returns the delta, and before [`Delta::Done`] what the stream has not emitted.
    fn add(&mut self, delta: Delta) -> Vec<Delta> {
        match &delta {
            Delta::Text(_) => self.text = true,
            Delta::Reasoning(_) => self.reasoning = true,
            Delta::Refusal(_) => self.refusal = true,
            Delta::ToolCall { index, .. } => self.calls = self.calls.max(index + 1),
            _ => {}
        }
        let Delta::Done(response) = delta else { return vec![delta] };
        let mut deltas = response.into_deltas();
        deltas.retain(|delta| match delta {
            Delta::Text(_) => !self.text,
            Delta::Reasoning(_) => !self.reasoning,
            Delta::Refusal(_) => !self.refusal,
            Delta::ToolCall { index, .. } | Delta::Arguments { index, .. } => *index >= self.calls,
            _ => true,
        });
        deltas
    }
}

/// Yields the deltas up to the first error or [`Delta::Done`]. Parts of the response that the model did not stream are
/// emitted before `Done`. A stream without `Done` ends in an error.
fn complete(deltas: impl Stream<Item = Result<Delta, ApiError>> + Send + 'static) -> Deltas {
    let deltas = deltas.chain(stream::once(ready(Err(ApiError::internal()))));
    let deltas = deltas.scan(Emitted::default(), |emitted, delta| {
        if emitted.is_finished {
            return ready(None);
        }
        emitted.is_finished = matches!(delta, Err(_) | Ok(Delta::Done(_)));
        ready(Some(delta.map(|delta| emitted.add(delta))))
    });
    flatten(deltas)
}
