//! The model behind the Messages API.

use std::fmt;
use std::sync::Arc;

use futures_util::stream::{StreamExt, unfold};
use tool_core::ChatModel;
use tool_core::model::{AssistantMessage, ChatRequest, ChatStream};
use tool_core::provider::{ModelFuture, ModelInfo};

use crate::client::Client;
use crate::model_info;
use crate::options::{Cache, HostedTool, MessagesOptions, Thinking};
use crate::request::{
    MAX_TOOLS, ModelRequest, forgets_thinking, has_thinking, is_summary, lacks_compaction, thinking_bytes,
};
use crate::turn::{self, Turn};

/// A model that uses the Messages API: see [`Anthropic::chat_model`](crate::Anthropic::chat_model). Clones share the connections.
///
/// The blocks of each reply are stored with its message and sent back unchanged. Thinking is sent back only while all that the model
/// read before it is unchanged, because the API rejects it otherwise.
///
/// [Extra fields](crate#extra-fields) of the model options can add fields.
#[derive(Clone)]
#[must_use]
pub struct Messages {
    client: Arc<Client>,
    model: String,
    options: MessagesOptions,
}

impl Messages {
    pub(crate) fn new(client: Arc<Client>, model: String) -> Self {
        Self { client, model, options: MessagesOptions::default() }
    }

    /// Sets what the provider caches. By default, it is all that pays off in a conversation.
    pub fn cache(mut self, cache: Cache) -> Self {
        self.options.cache = cache;
        self
    }

    /// Sets how the model thinks. By default, the model decides.
    pub fn thinking(mut self, thinking: Thinking) -> Self {
        self.options.thinking = Some(thinking);
        self
    }

    /// Adds a tool that the provider executes.
    pub fn hosted_tool(mut self, tool: HostedTool) -> Self {
        self.options.hosted_tools.push(tool);
        self
    }

    /// Sets whether the model cites the [files](tool_core::content::File) that it reads, in
    /// [`AssistantMessage::citations`](tool_core::model::AssistantMessage::citations). By default, it does not. Citations cannot be
    /// combined with typed answers, unless these are taken by a tool.
    pub fn citations(mut self, has_citations: bool) -> Self {
        self.options.has_citations = has_citations;
        self
    }

    /// Limits how often a reply that the provider pauses, for example in a long search, is continued. The default is eight. A reply
    /// that pauses more often ends with the finish reason `pause_turn`.
    pub fn max_pauses(mut self, pauses: u32) -> Self {
        self.options.max_pauses = pauses;
        self
    }

    /// Returns the name of the model.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.model
    }

    fn turn<'a>(&'a self, chat: &'a ChatRequest<'_>, is_streamed: bool) -> Turn<'a> {
        let request = self.request(chat);
        request.warn();
        Turn::new(request, is_streamed)
    }

    fn request<'a>(&'a self, chat: &'a ChatRequest<'_>) -> ModelRequest<'a> {
        let model = chat.options().model.as_deref().unwrap_or(&self.model);
        ModelRequest { client: &self.client, model, options: &self.options, chat }
    }
}

impl ChatModel for Messages {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async move { Ok(self.turn(request, false).response().await?) })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let deltas = unfold(self.turn(request, true), turn::next_delta);
        ChatStream::new(deltas.map(|delta| Ok(delta?)))
    }

    fn binds_reasoning(&self, reply: &AssistantMessage) -> bool {
        has_thinking(reply, &self.client.provider())
    }

    fn reasoning_bytes(&self, reply: &AssistantMessage) -> usize {
        if forgets_thinking(&self.model) { 0 } else { thinking_bytes(reply, &self.client.provider()) }
    }

    fn supports_compaction(&self) -> bool {
        self.client.endpoint.supports_compaction && !lacks_compaction(&self.model)
    }

    fn reads_summary(&self, summary: &AssistantMessage) -> bool {
        self.supports_compaction() && is_summary(summary, &self.client.provider())
    }

    fn supports_response_format(&self) -> bool {
        self.client.endpoint.supports_output_format && !self.options.has_citations()
    }

    /// Returns `true` if the endpoint searches tools and accepts so many of them.
    fn supports_tool_search(&self, tools: usize) -> bool {
        self.client.endpoint.supports_tool_search && tools <= MAX_TOOLS
    }

    fn count_tokens<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a, Option<u64>> {
        Box::pin(async move {
            match self.client.endpoint.counts_tokens {
                true => Ok(Some(model_info::count_tokens(self.request(request)).await?)),
                false => Ok(None),
            }
        })
    }

    fn model_info(&self) -> ModelFuture<'_, Option<ModelInfo>> {
        Box::pin(async move {
            match self.client.endpoint.describes_models {
                true => Ok(Some(model_info::model_info(&self.client, &self.model).await?)),
                false => Ok(None),
            }
        })
    }

    fn provider_name(&self) -> Option<&str> {
        Some(&self.client.endpoint.name)
    }

    fn model_name(&self) -> Option<&str> {
        Some(&self.model)
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("model", &self.model).field("client", &self.client).finish()
    }
}
