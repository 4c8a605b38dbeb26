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

use self::response::Problem;
use crate::Error;
use crate::client::{Client, request_id};

const PATH: &str = "responses";

/// Whose the items are that are kept with a message.
const PROVIDER: &str = "openai/responses";

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
    settings: Settings,
}

/// What is set of a model.
#[derive(Clone, Debug, Default)]
struct Settings {
    is_stored: bool,
    /// Unset, the model's name decides.
    has_encrypted_reasoning: Option<bool>,
    reasoning_summary: Option<String>,
}

impl Responses {
    pub(crate) fn new(client: Arc<Client>, model: String) -> Self {
        Self { client, model, settings: Settings::default() }
    }

    /// Whether the provider is to keep the responses; it is not, unless this is set. A run needs none of them, as it
    /// keeps its conversation itself.
    #[must_use]
    pub fn with_store(mut self, is_stored: bool) -> Self {
        self.settings.is_stored = is_stored;
        self
    }

    /// Whether the model's reasoning is asked for in encrypted form, so that it can be sent back to a provider that keeps
    /// nothing. Unless this is set, it is asked for where a reasoning effort is set, and of models whose names say that
    /// they reason, such as `o3` and `gpt-5`; others refuse the request.
    #[must_use]
    pub fn with_encrypted_reasoning(mut self, is_asked_for: bool) -> Self {
        self.settings.has_encrypted_reasoning = Some(is_asked_for);
        self
    }

    /// How much the provider is to tell of the model's reasoning, in its own word, such as `auto`; unset, it tells none
    /// of it or what it likes.
    #[must_use]
    pub fn with_reasoning_summary(mut self, summary: impl Into<String>) -> Self {
        self.settings.reasoning_summary = Some(summary.into());
        self
    }

    /// The model's name, as the endpoint knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.model
    }

    async fn ask(&self, request: &ChatRequest<'_>) -> Result<ChatResponse, Error> {
        let body = request::body(&self.model, &self.settings, request, false)?;
        let response = self.client.post(PATH, body, "application/json").await?;
        self.read_whole(response).await
    }

    async fn open(&self, request: &ChatRequest<'_>) -> Result<ChatStream<'_>, Error> {
        let body = request::body(&self.model, &self.settings, request, true)?;
        let response = self.client.post(PATH, body, "text/event-stream").await?;
        if content_type(&response).is_some_and(|value| value.starts_with("text/event-stream")) {
            return Ok(stream::deltas(&self.client, response).map_err(ModelError::from).boxed());
        }
        // Some servers do not stream, though they are asked to; and an error under status 200 is not streamed.
        let response = self.read_whole(response).await?;
        Ok(futures_util::stream::iter(Delta::all_of(response).into_iter().map(Ok)).boxed())
    }

    async fn read_whole(&self, response: Response) -> Result<ChatResponse, Error> {
        let content_type = content_type(&response);
        let request_id = request_id(&response);
        let body = self.client.body(PATH, response).await?;
        // To look for what is no text is slower than to see that there is none.
        let text = match std::str::from_utf8(&body) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(&body),
        };
        response::read(&text).map_err(|problem| match problem {
            Problem::Api(error) => self.client.api_error(None, error.as_bytes(), request_id),
            Problem::Unreadable(why) => {
                Error::unreadable(content_type.as_deref(), &self.client.without_key(&text), &why)
            }
        })
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
        true
    }

    /// `openai`, which is the name of this API with whoever offers it.
    fn provider_name(&self) -> Option<&str> {
        Some("openai")
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
