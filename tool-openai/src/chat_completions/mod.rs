//! Chat Completions: `POST /chat/completions`, plain and streamed.

mod assembler;
mod calls;
mod messages;
mod reasoning_details;
mod rejected;
mod request;
mod response;
mod stream;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use futures_util::stream::{StreamExt, TryStreamExt, once};
use reqwest::Response;
use reqwest::header::CONTENT_TYPE;
use tool_core::{ChatModel, ChatRequest, ChatResponse, ChatStream, Delta, ModelError, ModelFuture};

use self::assembler::Assembler;
use self::rejected::Tellings;
use crate::client::{Answer, Client};
use crate::pieces::RequestBody;
use crate::streaming;
use crate::tools::{self, Form};
use crate::{Endpoint, Error};

const PATH: &str = "chat/completions";

/// A model of an OpenAI-compatible endpoint, through Chat Completions. Made by
/// [`OpenAi::chat_model`](crate::OpenAi::chat_model); cloning shares the connections.
#[derive(Clone)]
pub struct ChatCompletions {
    client: Arc<Client>,
    model: String,
    dialect: Dialect,
    has_json_schema: bool,
}

/// How an endpoint wants to be spoken to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dialect {
    endpoint: Arc<Endpoint>,
    /// The name under which the endpoint keeps what it wants back.
    provider: Arc<str>,
}

impl Dialect {
    fn is_same(&self, other: &Self) -> bool {
        // Nearly always it is the very same.
        (Arc::ptr_eq(&self.endpoint, &other.endpoint) && Arc::ptr_eq(&self.provider, &other.provider))
            || self == other
    }
}

impl ChatCompletions {
    pub(crate) fn new(client: Arc<Client>, model: String) -> Self {
        let provider = client.provider("chat").into();
        let dialect = Dialect { endpoint: Arc::clone(&client.endpoint), provider };
        let has_json_schema = client.endpoint.json_schema;
        Self { client, model, dialect, has_json_schema }
    }

    /// The same model of a server that knows no `response_format` with a JSON schema: the model
    /// [does not support](ChatModel::supports_answer_format) answer formats then, and none is sent.
    ///
    /// ```
    /// use tool_core::ChatModel;
    /// use tool_openai::OpenAi;
    ///
    /// let local = OpenAi::builder().base_url("http://127.0.0.1:8080/v1").build()?;
    /// assert!(local.chat_model("small").supports_answer_format());
    /// assert!(!local.chat_model("small").without_json_schema().supports_answer_format());
    /// # Ok::<_, tool_openai::Error>(())
    /// ```
    #[must_use]
    pub fn without_json_schema(mut self) -> Self {
        self.has_json_schema = false;
        self
    }

    /// The model's name, as the endpoint knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.model
    }

    fn body(&self, request: &ChatRequest<'_>, is_streamed: bool) -> Result<RequestBody, Error> {
        let format = request.answer_format().filter(|_| self.has_json_schema);
        let definitions = request.tools();
        let on_warning = self.client.on_warning.as_ref();
        let tools = tools::written(definitions, Form::Nested, &self.client.endpoint, on_warning)?;
        let tools = tools.as_ref().map(AsRef::as_ref);
        request::body(&self.dialect, &self.model, request, tools, format, is_streamed)
    }

    async fn ask(&self, request: &ChatRequest<'_>) -> Result<ChatResponse, Error> {
        let mut tellings = Tellings::new(request);
        loop {
            let body = self.body(tellings.request(), false)?;
            let model = self.model_of(tellings.request());
            let mut retries = self.client.retries();
            let error = loop {
                match self.ask_once(model, &body).await {
                    Ok(response) => return Ok(response),
                    Err(error) if error.is_tool_generation() => break error,
                    Err(error) => retries.after(error).await?,
                }
            };
            tellings.after(error)?;
        }
    }

    async fn ask_once(&self, model: &str, body: &RequestBody) -> Result<ChatResponse, Error> {
        let answer = self.client.send_once(PATH, model, body, "application/json").await?;
        self.read_whole(answer).await
    }

    async fn open(&self, request: &ChatRequest<'_>) -> Result<ChatStream<'_>, Error> {
        let mut tellings = Tellings::new(request);
        let answer = loop {
            let body = self.body(tellings.request(), true)?;
            let model = self.model_of(tellings.request());
            match self.client.send(PATH, model, &body, "text/event-stream").await {
                Ok(answer) => break answer,
                Err(error) => tellings.after(error)?,
            }
        };
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

impl ChatModel for ChatCompletions {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move { Ok(self.ask(request).await?) })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        Box::pin(once(async move { self.open(request).await.map_err(ModelError::from) }).try_flatten())
    }

    fn supports_answer_format(&self) -> bool {
        self.has_json_schema
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

impl fmt::Debug for ChatCompletions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatCompletions").field("model", &self.model).field("client", &self.client).finish()
    }
}

fn content_type(response: &Response) -> Option<String> {
    response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const PROVIDER: &str = "here/chat";

    /// The body of a request to the model `m`.
    pub(super) fn body(
        endpoint: Endpoint,
        request: &ChatRequest<'_>,
        is_streamed: bool,
    ) -> Result<Vec<u8>, Error> {
        let dialect = Dialect { endpoint: Arc::new(endpoint), provider: PROVIDER.into() };
        let tools = tools::written(request.tools(), Form::Nested, &dialect.endpoint, None)?;
        let tools = tools.as_ref().map(AsRef::as_ref);
        let body = request::body(&dialect, "m", request, tools, request.answer_format(), is_streamed)?;
        Ok(body.to_vec())
    }
}
