//! The Chat Completions API: `POST /chat/completions`, plain and streamed.

mod assembler;
mod brackets;
mod messages;
mod reasoning_details;
mod request;
mod response;
mod tool_calls;

use std::fmt;
use std::sync::Arc;

use futures_util::stream::{TryStreamExt, once};
use reqwest::Url;
use tool_core::ChatModel;
use tool_core::model::{ChatRequest, ChatResponse, ChatStream, ModelFuture};

use self::assembler::ChunkAssembler;
use crate::api::{self, Api};
use crate::body::RequestBody;
use crate::client::Client;
use crate::streaming::EventError;
use crate::tools::{self, ToolFormat};
use crate::warning::warn_about_omitted_fields;
use crate::{Endpoint, Error};

const PATH: &str = "chat/completions";

/// A model of an OpenAI-compatible endpoint that uses the Chat Completions API: see
/// [`OpenAi::chat_model`](crate::OpenAi::chat_model). Clones share the connections.
///
/// [Extra fields](crate#extra-fields) of the model options can add fields and the provider's own tools.
#[derive(Clone)]
pub struct ChatCompletions {
    client: Arc<Client>,
    model: String,
    url: Url,
    dialect: Dialect,
    supports_json_schema: bool,
}

/// The endpoint that messages are encoded for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dialect {
    endpoint: Arc<Endpoint>,
    /// The name under which the endpoint's provider data is stored.
    provider: Arc<str>,
}

impl Dialect {
    fn is_same_as(&self, other: &Self) -> bool {
        // Comparing pointers is enough in nearly every case.
        (Arc::ptr_eq(&self.endpoint, &other.endpoint) && Arc::ptr_eq(&self.provider, &other.provider))
            || self == other
    }
}

impl ChatCompletions {
    pub(crate) fn new(client: Arc<Client>, model: String) -> Self {
        let provider = client.provider("chat").into();
        let dialect = Dialect { endpoint: Arc::clone(&client.endpoint), provider };
        let supports_json_schema = client.endpoint.supports_json_schema;
        let url = client.url(PATH, &model);
        Self { client, model, url, dialect, supports_json_schema }
    }

    /// Returns this model for a server that does not support JSON schemas in `response_format`: the model
    /// [does not support](ChatModel::supports_response_format) response formats, and none is sent.
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
        self.supports_json_schema = false;
        self
    }

    /// Returns the name of the model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.model
    }
}

impl Api for ChatCompletions {
    const PATH: &'static str = PATH;

    type Assembler<'a> = ChunkAssembler<'a>;

    fn client(&self) -> &Client {
        &self.client
    }

    fn default_model(&self) -> &str {
        &self.model
    }

    fn default_url(&self) -> &Url {
        &self.url
    }

    fn encode(&self, request: &ChatRequest<'_>, is_streamed: bool) -> Result<RequestBody, Error> {
        let format = request.response_format().filter(|_| self.supports_json_schema);
        let offered = tools::offered(request, &self.client.endpoint);
        let on_warning = self.client.on_warning.as_ref();
        warn_about_omitted_fields(request, &self.client.endpoint, on_warning);
        let is_searched = tools::is_searched(request, ToolFormat::Nested, &self.client.endpoint)?;
        let tools =
            tools::encode(&offered, ToolFormat::Nested, is_searched, &self.client.endpoint, on_warning)?;
        let tools = tools.as_ref().map(AsRef::as_ref);
        request::encode(&self.dialect, self.model_for(request), request, tools, format, is_streamed)
    }

    fn assembler(&self) -> ChunkAssembler<'_> {
        ChunkAssembler::new(&self.dialect.provider)
    }

    fn parse(&self, text: &str) -> Result<ChatResponse, EventError> {
        response::parse(text, &self.dialect.provider)
    }
}

impl ChatModel for ChatCompletions {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move { Ok(api::chat(self, request).await?) })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        ChatStream::new(once(api::open_stream(self, request)).try_flatten())
    }

    fn supports_response_format(&self) -> bool {
        self.supports_json_schema
    }

    fn supports_response_format_with_tools(&self) -> bool {
        self.supports_response_format() && self.client.endpoint.supports_json_schema_with_tools
    }

    /// Returns the endpoint's [name](Endpoint::name), or `openai` if it has none.
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

    /// Encodes the body of a request to the model `m`.
    pub(super) fn body(
        endpoint: Endpoint,
        request: &ChatRequest<'_>,
        is_streamed: bool,
    ) -> Result<Vec<u8>, Error> {
        let dialect = Dialect { endpoint: Arc::new(endpoint), provider: PROVIDER.into() };
        let tools = tools::encode(request.tools(), ToolFormat::Nested, false, &dialect.endpoint, None)?;
        let tools = tools.as_ref().map(AsRef::as_ref);
        let body = request::encode(&dialect, "m", request, tools, request.response_format(), is_streamed)?;
        Ok(body.to_vec())
    }
}
