//! The Chat Completions API: `POST /chat/completions`, plain and streamed.

mod dialect;
mod reasoning_details;
mod response;
mod brackets;
mod tool_call_assembler;
mod assembler;
mod messages;
mod request;

use std::fmt;
use std::sync::Arc;

use futures_util::stream::{TryStreamExt, once};
use tool_core::ChatModel;
use tool_core::model::{ChatRequest, ChatStream};
use tool_core::provider::{ModelFuture, ModelInfo};
use tool_http::client::{Error, RequestBody};

use self::assembler::ChunkAssembler;
use self::dialect::Dialect;
use crate::api::{self, Api, Target};
use crate::client::Client;
use crate::context::context_in_use;

/// A model of an OpenAI-compatible endpoint that uses the Chat Completions API: see
/// [`OpenAi::chat_model`](crate::OpenAi::chat_model). Clones share the connections.
///
/// [Extra fields](crate#extra-fields) of the model options can add fields and the provider's own tools.
#[derive(Clone)]
pub struct ChatCompletions {
    target: Target,
    dialect: Dialect,
}

impl ChatCompletions {
    pub(crate) fn new(client: Arc<Client>, model: String) -> Self {
        let provider = client.provider("chat").into();
        let dialect = Dialect { endpoint: Arc::clone(&client.endpoint), provider };
        Self { target: Target::new(client, model), dialect }
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
        Arc::make_mut(&mut self.dialect.endpoint).supports_json_schema = false;
        self
    }

    /// Returns the name of the model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.target.model
    }
}

impl Api for ChatCompletions {
    type Assembler<'a> = ChunkAssembler<'a>;

    fn target(&self) -> &Target {
        &self.target
    }

    fn encode(&self, request: &ChatRequest<'_>, is_streamed: bool) -> Result<RequestBody, Error> {
        let on_warning = self.target.client.on_warning.as_ref();
        request::encode(&self.dialect, self.target.model_for(request), request, on_warning, is_streamed)
    }

    fn assembler(&self) -> ChunkAssembler<'_> {
        ChunkAssembler::new(&self.dialect.provider)
    }

    fn path(&self, _: &ChatRequest<'_>) -> &'static str {
        "chat/completions"
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
        self.dialect.endpoint.supports_json_schema
    }

    fn supports_response_format_with_tools(&self) -> bool {
        self.supports_response_format() && self.dialect.endpoint.supports_json_schema_with_tools
    }

    /// Returns the context that the server uses, of an [endpoint](crate::Endpoint::truncates_silently) that reports it once the model is loaded.
    fn model_info(&self) -> ModelFuture<'_, Option<ModelInfo>> {
        Box::pin(async move {
            let client = &self.target.client;
            let context = match client.endpoint.truncates_silently {
                true => context_in_use(client, &self.target.model).await,
                false => None,
            };
            Ok(context.map(|context| ModelInfo::default().with_context_window(context)))
        })
    }

    /// Returns the endpoint's [name](crate::Endpoint::name), or `openai` if it has none.
    fn provider_name(&self) -> Option<&str> {
        Some(self.target.client.name())
    }

    fn model_name(&self) -> Option<&str> {
        Some(&self.target.model)
    }
}

impl fmt::Debug for ChatCompletions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt_as("ChatCompletions", f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;

    pub(super) const PROVIDER: &str = "here/chat";

    /// Encodes the body of a request to the model `m`.
    pub(super) fn body(
        endpoint: Endpoint,
        request: &ChatRequest<'_>,
        is_streamed: bool,
    ) -> Result<Vec<u8>, Error> {
        let dialect = Dialect { endpoint: Arc::new(endpoint), provider: PROVIDER.into() };
        Ok(request::encode(&dialect, "m", request, None, is_streamed)?.to_vec())
    }
}
