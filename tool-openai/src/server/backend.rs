//! The model or agent that answers the requests for one name.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::stream::{self, Stream, StreamExt, TryStreamExt};
use tool_core::model::{ChatRequest, Delta, RunUser};
use tool_core::{Agent, ChatModel};
use tool_http::server::Caller;

use super::error::ApiError;

/// The model or agent behind one name.
#[derive(Clone)]
pub(super) enum Backend {
    Model(Arc<dyn ChatModel>),
    Agent(Agent),
}

/// A request to a backend, parsed from a request of either API.
pub(super) struct BackendRequest {
    pub(super) caller: Caller,
    pub(super) user: Option<RunUser>,
    /// The name of the backend.
    pub(super) model: String,
    pub(super) chat: ChatRequest<'static>,
    /// The caller is asked the questions of tools, also if it has not declared a tool for them.
    pub(super) is_asked: bool,
    pub(super) field_names: &'static FieldNames,
}

/// The names that an API has for fields of a request, for its error messages.
pub(super) struct FieldNames {
    pub(super) messages: &'static str,
    pub(super) response_format: &'static str,
    pub(super) reasoning_effort: &'static str,
}

pub(super) type Deltas = Pin<Box<dyn Stream<Item = Result<Delta, ApiError>> + Send>>;

/// Joins lists of deltas to one stream.
pub(super) fn flatten(lists: impl Stream<Item = Result<Vec<Delta>, ApiError>> + Send + 'static) -> Deltas {
    lists.map_ok(|deltas| stream::iter(deltas.into_iter().map(Ok))).try_flatten().boxed()
}
