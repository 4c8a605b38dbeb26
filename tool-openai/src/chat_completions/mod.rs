//! Chat Completions: `POST /chat/completions`, plain and streamed.

mod assembler;
mod calls;
mod messages;
mod outline;
mod reasoning_details;
mod request;
mod response;
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
    /// [does not support](ChatModel::supports_response_format) answer formats then, and none is sent.
    ///
    /// ```
    /// use tool_core::ChatModel;
    /// use tool_openai::OpenAi;
    ///
    /// let local = OpenAi::builder().base_url("http://127.0.0.1:8080/v1").build()?;
    /// assert!(local.chat_model("small").supports_response_format());
    /// assert!(!local.chat_model("small").without_json_schema().supports_response_format());
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
}

impl Api for ChatCompletions {
    const PATH: &'static str = PATH;

    type Assembler<'a> = Assembler<'a>;

    fn client(&self) -> &Client {
        &self.client
    }

    fn model(&self) -> &str {
        &self.model
    }

    fn body(&self, request: &ChatRequest<'_>, is_streamed: bool) -> Result<RequestBody, Error> {
        let format = request.response_format().filter(|_| self.has_json_schema);
        let offered = tools::offered(request, &self.client.endpoint);
        let on_warning = self.client.on_warning.as_ref();
        tools::warn_of_left_out(request, &self.client.endpoint, on_warning);
        let tools = tools::written(&offered, Form::Nested, &self.client.endpoint, on_warning)?;
        let tools = tools.as_ref().map(AsRef::as_ref);
        request::body(&self.dialect, &self.model, request, tools, format, is_streamed)
    }

    fn assembler(&self) -> Assembler<'_> {
        Assembler::new(&self.dialect.provider)
    }

    fn read(&self, text: &str) -> Result<ChatResponse, Problem> {
        response::read(text, &self.dialect.provider)
    }
}

impl ChatModel for ChatCompletions {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move { Ok(asking::ask(self, request).await?) })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        Box::pin(once(asking::open(self, request)).try_flatten())
    }

    fn supports_response_format(&self) -> bool {
        self.has_json_schema
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

impl fmt::Debug for ChatCompletions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatCompletions").field("model", &self.model).field("client", &self.client).finish()
    }
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
        let body = request::body(&dialect, "m", request, tools, request.response_format(), is_streamed)?;
        Ok(body.to_vec())
    }
}
