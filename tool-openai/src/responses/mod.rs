//! The Responses API: `POST /responses`, plain and streamed.

mod dialect;
mod model_name;
mod output_item;
mod partial_item;
mod items;
mod replay;
mod input;
mod response;
mod assembler;
mod request;

use std::fmt;
use std::sync::Arc;

use futures_util::future::TryFutureExt;
use futures_util::stream::{TryStreamExt, once};
use tool_core::ChatModel;
use tool_core::model::{AssistantMessage, ChatRequest, ChatStream, Delta, FinishReason};
use tool_core::provider::ModelFuture;
use tool_http::client::json::Members;
use tool_http::client::{Error, RequestBody};

use self::assembler::EventAssembler;
use self::dialect::{Dialect, ReasoningOptions};
use self::request::Purpose;
use crate::api::{self, Api, Target};
use crate::client::Client;
use crate::tools;

const PATH: &str = "responses";
const COUNT_PATH: &str = "responses/input_tokens";
const COMPACT_PATH: &str = "responses/compact";

/// The longest count of tokens that is read.
const MAX_COUNT_BYTES: usize = 1 << 16;

/// A model of an OpenAI-compatible endpoint that uses the Responses API: see
/// [`OpenAi::responses_model`](crate::OpenAi::responses_model). Clones share the connections.
///
/// The items of each response are stored with its message and sent back unchanged, so that reasoning models can continue
/// their reasoning. The provider stores nothing unless [configured](Self::store) to.
///
/// Agents with [`ToolSearch::by_provider`](tool_core::agent::ToolSearch::by_provider) leave the search for tools to the provider: deferred
/// tools are sent with `defer_loading`, together with the tool `tool_search`. The API rejects earlier calls of a
/// deferred tool that the provider has not found, such as a call by another model, so such a tool is sent undeferred.
///
/// [Extra fields](crate#extra-fields) of the model options can add fields and the provider's own tools:
///
/// ```
/// use serde_json::json;
/// use tool_core::ModelOptions;
///
/// let options = ModelOptions::default().with_extra("tools", json!([{ "type": "web_search" }]));
/// ```
#[derive(Clone)]
pub struct Responses {
    target: Target,
    dialect: Dialect,
    reasoning: ReasoningOptions,
}

impl Responses {
    pub(crate) fn new(client: Arc<Client>, model: String) -> Self {
        let provider = client.provider(PATH).into();
        let dialect = Dialect { endpoint: Arc::clone(&client.endpoint), provider, is_stored: false };
        Self { target: Target::new(client, model), dialect, reasoning: ReasoningOptions::default() }
    }

    /// Sets whether the provider stores the responses. By default, it does not. Runs do not need it, because they store
    /// their conversations themselves.
    #[must_use]
    pub fn store(mut self, is_stored: bool) -> Self {
        self.dialect.is_stored = is_stored;
        self
    }

    /// Sets whether to request the model's reasoning in encrypted form, so that it can be sent back to a provider that
    /// stores nothing. By default, it is requested if a reasoning effort is set and from models with names of reasoning
    /// models, such as `o3` and `gpt-5`; others reject the request.
    #[must_use]
    pub fn encrypted_reasoning(mut self, is_encrypted: bool) -> Self {
        self.reasoning.is_encrypted = Some(is_encrypted);
        self
    }

    /// Sets how detailed the summary of the model's reasoning is, in the provider's terms, such as `auto`. By default, the
    /// provider decides.
    #[must_use]
    pub fn reasoning_summary(mut self, summary: impl Into<String>) -> Self {
        self.reasoning.summary = Some(summary.into());
        self
    }

    /// Returns the name of the model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.target.model
    }

    fn encode_for(&self, request: &ChatRequest<'_>, purpose: Purpose) -> Result<RequestBody, Error> {
        let on_warning = self.target.client.on_warning.as_ref();
        let model = self.target.model_for(request);
        request::encode(&self.dialect, model, &self.reasoning, request, on_warning, purpose)
    }

    /// Asks for the number of input tokens of a request.
    async fn count(&self, request: &ChatRequest<'_>) -> Result<u64, Error> {
        let (body, client) = (self.encode_for(request, Purpose::Count)?, &self.target.client);
        let url = client.url(COUNT_PATH, self.target.model_for(request));
        let attempt = || async {
            let response = client.connection.send(&url, Some(&body), "application/json").await?;
            response.read(MAX_COUNT_BYTES, |json| Members::parse(json)?.parsed("input_tokens")).await
        };
        client.retry.run(attempt).await
    }
}

impl Api for Responses {
    type Assembler<'a> = EventAssembler<'a>;

    fn target(&self) -> &Target {
        &self.target
    }

    fn encode(&self, request: &ChatRequest<'_>, is_streamed: bool) -> Result<RequestBody, Error> {
        let is_compaction = request.is_compaction();
        let purpose = if is_compaction { Purpose::Compaction } else { Purpose::Reply { is_streamed } };
        self.encode_for(request, purpose)
    }

    fn assembler(&self) -> EventAssembler<'_> {
        EventAssembler::new(&self.dialect.provider)
    }

    fn path(&self, request: &ChatRequest<'_>) -> &'static str {
        if request.is_compaction() { COMPACT_PATH } else { PATH }
    }
}

impl ChatModel for Responses {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move {
            let mut response = api::chat(self, request).await?;
            if request.is_compaction() && self.reads_summary(&response.message) {
                response.finish_reason = FinishReason::Compaction;
            }
            Ok(response)
        })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        // The API does not stream compactions.
        match request.is_compaction() {
            true => ChatStream::new(once(self.chat(request).map_ok(Delta::Done))),
            false => ChatStream::new(once(api::open_stream(self, request)).try_flatten()),
        }
    }

    fn reasoning_bytes(&self, reply: &AssistantMessage) -> usize {
        replay::reasoning_bytes(reply, &self.dialect)
    }

    /// Returns `true` if the [endpoint](crate::Endpoint::supports_compaction) does. Its summaries are encrypted, and it has a prompt of its own, so it
    /// rejects a request with another [one](ChatRequest::with_summary_prompt).
    fn supports_compaction(&self) -> bool {
        self.dialect.endpoint.supports_compaction
    }

    /// Returns `false`, because the request has no tools, with which the others begin.
    fn compacts_from_cache(&self) -> bool {
        false
    }

    fn reads_summary(&self, summary: &AssistantMessage) -> bool {
        self.supports_compaction() && replay::is_summary(summary, &self.dialect)
    }

    fn supports_response_format(&self) -> bool {
        self.dialect.endpoint.supports_json_schema
    }

    fn supports_response_format_with_tools(&self) -> bool {
        self.supports_response_format() && self.dialect.endpoint.supports_json_schema_with_tools
    }

    /// Returns `true` if the [endpoint](crate::Endpoint::supports_tool_search) searches tools, the model is not known to be too old, and
    /// the endpoint accepts [so many tools](crate::Endpoint::max_tools) besides the search.
    fn supports_tool_search(&self, tools: usize) -> bool {
        let endpoint = &self.dialect.endpoint;
        endpoint.supports_tool_search
            && model_name::can_search_tools(&self.target.model)
            && tools::fits_with_search(tools, endpoint)
    }

    /// Returns the number that the [endpoint](crate::Endpoint::counts_input_tokens) counts, or `None` if it counts none.
    fn count_tokens<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a, Option<u64>> {
        Box::pin(async move {
            match self.dialect.endpoint.counts_input_tokens {
                true => Ok(Some(self.count(request).await?)),
                false => Ok(None),
            }
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

impl fmt::Debug for Responses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt_as("Responses", f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::Endpoint;

    pub(super) const PROVIDER: &str = "here/responses";

    pub(super) fn dialect() -> Dialect {
        Dialect { endpoint: Arc::new(Endpoint::openai()), provider: PROVIDER.into(), is_stored: false }
    }

    pub(super) fn stored() -> Dialect {
        Dialect { is_stored: true, ..dialect() }
    }
}
