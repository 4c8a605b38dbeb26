//! The Responses API: `POST /responses`, plain and streamed.

mod assembler;
mod echo;
mod input;
mod item;
mod request;
mod response;
mod slot;
mod stream;

use std::fmt;
use std::sync::Arc;

use futures_util::stream::{TryStreamExt, once};
use tool_core::{ChatModel, ChatRequest, ChatResponse, ChatStream, ModelFuture};

use self::assembler::Assembler;
use crate::asking::{self, Api};
use crate::client::Client;
use crate::pieces::RequestBody;
use crate::streaming::Problem;
use crate::tools::{self, Form};
use crate::{Endpoint, Error};

const PATH: &str = "responses";

/// A model of an OpenAI-compatible endpoint, through the Responses API. Made by
/// [`OpenAi::responses_model`](crate::OpenAi::responses_model); cloning shares the connections.
///
/// What the model answers is kept with its message, item by item, and sent back as it came: reasoning models think on
/// where they were. Nothing is left with the provider, unless that is [asked for](Self::with_store).
///
/// A [further field](tool_core::ModelOptions::extra) of the request that has the name of one that is sent anyway is
/// joined to it, so that `tools` offers the provider's own tools beside the run's:
///
/// ```
/// use serde_json::json;
/// use tool_core::ModelOptions;
///
/// let options = ModelOptions::default().with_extra("tools", json!([{ "type": "web_search" }]));
/// ```
#[derive(Clone)]
pub struct Responses {
    client: Arc<Client>,
    model: String,
    dialect: Dialect,
    reasoning: Reasoning,
}

/// How an endpoint wants to be spoken to.
#[derive(Clone, Debug, PartialEq)]
struct Dialect {
    endpoint: Arc<Endpoint>,
    /// The name under which the endpoint keeps what it wants back.
    provider: Arc<str>,
    /// The endpoint keeps the responses.
    is_stored: bool,
}

impl Dialect {
    fn is_same(&self, other: &Self) -> bool {
        // Nearly always it is the very same.
        let is_very_same = Arc::ptr_eq(&self.endpoint, &other.endpoint)
            && Arc::ptr_eq(&self.provider, &other.provider)
            && self.is_stored == other.is_stored;
        is_very_same || self == other
    }
}

/// What is to be told of the model's reasoning.
#[derive(Clone, Default)]
struct Reasoning {
    /// Unset, the model's name decides.
    is_encrypted: Option<bool>,
    summary: Option<String>,
}

impl Responses {
    pub(crate) fn new(client: Arc<Client>, model: String) -> Self {
        let provider = client.provider(PATH).into();
        let dialect = Dialect { endpoint: Arc::clone(&client.endpoint), provider, is_stored: false };
        Self { client, model, dialect, reasoning: Reasoning::default() }
    }

    /// Whether the provider is to keep the responses; it is not, unless this is set. A run needs none of them, as it
    /// keeps its conversation itself.
    #[must_use]
    pub fn with_store(mut self, is_stored: bool) -> Self {
        self.dialect.is_stored = is_stored;
        self
    }

    /// Whether the model's reasoning is asked for in encrypted form, so that it can be sent back to a provider that keeps
    /// nothing. Unless this is set, it is asked for where a reasoning effort is set, and of models whose names say that
    /// they reason, such as `o3` and `gpt-5`; others refuse the request.
    #[must_use]
    pub fn with_encrypted_reasoning(mut self, is_asked_for: bool) -> Self {
        self.reasoning.is_encrypted = Some(is_asked_for);
        self
    }

    /// How much the provider is to tell of the model's reasoning, in its own word, such as `auto`; unset, it tells none
    /// of it or what it likes.
    #[must_use]
    pub fn with_reasoning_summary(mut self, summary: impl Into<String>) -> Self {
        self.reasoning.summary = Some(summary.into());
        self
    }

    /// The model's name, as the endpoint knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.model
    }
}

impl Api for Responses {
    const PATH: &'static str = PATH;

    type Assembler<'a> = Assembler<'a>;

    fn client(&self) -> &Client {
        &self.client
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn body(&self, request: &ChatRequest<'_>, is_streamed: bool) -> Result<RequestBody, Error> {
        let offered = tools::offered(request, &self.client.endpoint);
        let on_warning = self.client.on_warning.as_ref();
        tools::warn_of_left_out(request, &self.client.endpoint, on_warning);
        let tools = tools::written(&offered, Form::Flat, &self.client.endpoint, on_warning)?;
        let tools = tools.as_ref().map(AsRef::as_ref);
        request::body(&self.dialect, self.model_of(request), &self.reasoning, request, tools, is_streamed)
    }

    fn assembler(&self) -> Assembler<'_> {
        Assembler::new(&self.dialect.provider)
    }

    fn read(&self, text: &str) -> Result<ChatResponse, Problem> {
        response::read(text, &self.dialect.provider)
    }
}

impl ChatModel for Responses {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move { Ok(asking::ask(self, request).await?) })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        Box::pin(once(asking::open(self, request)).try_flatten())
    }

    fn supports_response_format(&self) -> bool {
        self.dialect.endpoint.json_schema
    }

    fn supports_response_format_with_tools(&self) -> bool {
        self.supports_response_format() && self.client.endpoint.json_schema_with_tools
    }

    /// The endpoint's [name](Endpoint::name); `openai` for one without, as that is the name of this API with whoever
    /// offers it.
    fn provider_name(&self) -> Option<&str> {
        Some(self.client.name())
    }

    fn model_name(&self) -> Option<&str> {
        Some(&self.model)
    }
}

impl fmt::Debug for Responses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responses").field("model", &self.model).field("client", &self.client).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const PROVIDER: &str = "here/responses";

    pub(super) fn dialect() -> Dialect {
        Dialect { endpoint: Arc::new(Endpoint::openai()), provider: PROVIDER.into(), is_stored: false }
    }

    pub(super) fn stored() -> Dialect {
        Dialect { is_stored: true, ..dialect() }
    }
}
