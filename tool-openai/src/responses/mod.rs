//! The Responses API: `POST /responses`, plain and streamed.

mod assembler;
mod echo;
mod input;
mod item;
mod request;
mod response;
mod slot;
mod stream;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use futures_util::stream::{StreamExt, TryStreamExt, once};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use tool_core::{ChatModel, ChatRequest, ChatResponse, ChatStream, Delta, ModelError, ModelFuture};

use self::assembler::Assembler;
use crate::client::{Answer, Client};
use crate::pieces::RequestBody;
use crate::streaming;
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

    fn body(&self, request: &ChatRequest<'_>, is_streamed: bool) -> Result<RequestBody, Error> {
        let on_warning = self.client.on_warning.as_ref();
        let tools = tools::written(request.tools(), Form::Flat, &self.client.endpoint, on_warning)?;
        let tools = tools.as_ref().map(AsRef::as_ref);
        request::body(&self.dialect, self.model_of(request), &self.reasoning, request, tools, is_streamed)
    }

    async fn ask(&self, request: &ChatRequest<'_>) -> Result<ChatResponse, Error> {
        let body = self.body(request, false)?;
        let mut retries = self.client.retries();
        loop {
            match self.ask_once(self.model_of(request), &body).await {
                Ok(response) => return Ok(response),
                Err(error) => retries.after(error).await?,
            }
        }
    }

    async fn ask_once(&self, model: &str, body: &RequestBody) -> Result<ChatResponse, Error> {
        let answer = self.client.send_once(PATH, model, body, "application/json").await?;
        self.read_whole(answer).await
    }

    async fn open(&self, request: &ChatRequest<'_>) -> Result<ChatStream<'_>, Error> {
        let body = self.body(request, true)?;
        let answer = self.client.send(PATH, self.model_of(request), &body, "text/event-stream").await?;
        if content_type(&answer.response).is_some_and(|value| value.starts_with("text/event-stream")) {
            let deltas = streaming::deltas(&self.client, answer, Assembler::new(&self.dialect.provider));
            return Ok(deltas.map_err(ModelError::from).boxed());
        }
        // Some servers do not stream, though they are asked to; and an error under status 200 is not streamed.
        let response = self.read_whole(answer).await?;
        Ok(futures_util::stream::iter(Delta::all_of(response).into_iter().map(Ok)).boxed())
    }

    async fn read_whole(&self, answer: Answer) -> Result<ChatResponse, Error> {
        let content_type = content_type(&answer.response);
        let request_id = answer.request_id.clone();
        let body = self.client.body(answer).await?;
        // To look for what is no text is slower than to see that there is none.
        let text = match std::str::from_utf8(&body) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(&body),
        };
        response::read(&text, &self.dialect.provider).map_err(|problem| {
            let content_type = content_type.as_deref();
            self.client.problem(problem, &text, content_type, request_id)
        })
    }

    /// The model that is asked.
    fn model_of<'a>(&'a self, request: &'a ChatRequest<'_>) -> &'a str {
        request.options().model.as_deref().unwrap_or(&self.model)
    }
}

impl ChatModel for Responses {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move { Ok(self.ask(request).await?) })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        Box::pin(once(async move { self.open(request).await.map_err(ModelError::from) }).try_flatten())
    }

    fn supports_answer_format(&self) -> bool {
        self.dialect.endpoint.json_schema
    }

    /// The endpoint's [name](Endpoint::name); `openai` for one without, as that is the name of this API with whoever
    /// offers it.
    fn provider_name(&self) -> Option<&str> {
        Some(self.client.endpoint.name.as_ref()).filter(|name| !name.is_empty()).or(Some("openai"))
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

fn content_type(response: &Response) -> Option<String> {
    response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned)
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
