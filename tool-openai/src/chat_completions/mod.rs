//! Chat Completions: `POST /chat/completions`, plain and streamed.

mod assembler;
mod calls;
mod messages;
mod reasoning_details;
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
use crate::Error;
use crate::client::{Client, request_id};
use crate::streaming::{self, Problem};

const PATH: &str = "chat/completions";

/// A model of an OpenAI-compatible endpoint, through Chat Completions. Made by
/// [`OpenAi::chat_model`](crate::OpenAi::chat_model); cloning shares the connections.
#[derive(Clone)]
pub struct ChatCompletions {
    client: Arc<Client>,
    model: String,
    has_json_schema: bool,
}

impl ChatCompletions {
    pub(crate) fn new(client: Arc<Client>, model: String) -> Self {
        Self { client, model, has_json_schema: true }
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

    fn body(&self, request: &ChatRequest<'_>, is_streamed: bool) -> Result<Vec<u8>, Error> {
        let format = request.answer_format().filter(|_| self.has_json_schema);
        request::body(&self.model, request, format, is_streamed)
    }

    async fn ask(&self, request: &ChatRequest<'_>) -> Result<ChatResponse, Error> {
        let body = self.body(request, false)?;
        let response = self.client.post(PATH, body, "application/json").await?;
        self.read_whole(response).await
    }

    async fn open(&self, request: &ChatRequest<'_>) -> Result<ChatStream<'_>, Error> {
        let body = self.body(request, true)?;
        let response = self.client.post(PATH, body, "text/event-stream").await?;
        if content_type(&response).is_some_and(|value| value.starts_with("text/event-stream")) {
            let deltas =
                streaming::deltas(&self.client, PATH, response, Assembler::new(self.client.provider()));
            return Ok(deltas.map_err(ModelError::from).boxed());
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
        response::read(&text, self.client.provider()).map_err(|problem| match problem {
            Problem::Api(told) => self.client.api_error(None, told.as_bytes(), request_id),
            Problem::GivenUp(why) => Error::invalid_response(why),
            Problem::Unreadable(why) => {
                Error::unreadable(content_type.as_deref(), &self.client.without_key(&text), &why)
            }
        })
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

    /// `openai`, which is the name of this API with whoever offers it.
    fn provider_name(&self) -> Option<&str> {
        Some("openai")
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
