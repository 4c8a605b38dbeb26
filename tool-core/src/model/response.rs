//! A model's response to a request.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::model::{AssistantMessage, Cost, TokenLogprob};

/// A model's response to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChatResponse {
    /// The message.
    pub message: AssistantMessage,
    /// The reason why the model stopped.
    pub finish_reason: FinishReason,
    /// The number of tokens used, if the provider reported it.
    pub usage: Option<Usage>,
    /// The provider's id of the response.
    pub id: Option<String>,
    /// The model that answered, as the provider names it.
    pub model: Option<String>,
    /// The [provider](crate::ChatModel::provider_name) that answered, if a [`Fallback`](crate::model::Fallback) or a
    /// [`Router`](crate::model::Router) chose it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The log probabilities of the text's tokens, if they were
    /// [requested](crate::ModelOptions::top_logprobs).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<TokenLogprob>,
}

impl ChatResponse {
    /// Creates a response with the finish reason that follows from the message: [`ToolCalls`](FinishReason::ToolCalls)
    /// if it has calls, otherwise [`Stop`](FinishReason::Stop).
    #[must_use]
    pub fn new(message: AssistantMessage) -> Self {
        let finish_reason =
            if message.tool_calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        Self {
            message,
            finish_reason,
            usage: None,
            id: None,
            model: None,
            provider: None,
            logprobs: Vec::new(),
        }
    }

    /// Returns this response without its message.
    pub(crate) fn without_message(&self) -> Self {
        Self {
            message: AssistantMessage::default(),
            finish_reason: self.finish_reason.clone(),
            usage: self.usage,
            id: self.id.clone(),
            model: self.model.clone(),
            provider: self.provider.clone(),
            logprobs: self.logprobs.clone(),
        }
    }

    /// Returns this response with the number of tokens used.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// Returns the usage, unless it cannot be true: each request has input, content takes output, and parts are at most the whole.
    pub(crate) fn credible_usage(&self) -> Option<Usage> {
        let AssistantMessage { text, reasoning, refusal, tool_calls, .. } = &self.message;
        let has_content =
            !text.is_empty() || !tool_calls.is_empty() || reasoning.is_some() || refusal.is_some();
        self.usage.filter(|usage| {
            let cache = [usage.cached_tokens, usage.cache_write_tokens];
            let cache = cache.into_iter().flatten().fold(0, u64::saturating_add);
            usage.input_tokens > 0
                && cache <= usage.input_tokens
                && (usage.output_tokens > 0 || !has_content)
                && usage.total_tokens >= usage.input_tokens.saturating_add(usage.output_tokens)
        })
    }

    /// Returns this response with another finish reason.
    #[must_use]
    pub fn with_finish_reason(mut self, reason: FinishReason) -> Self {
        self.finish_reason = reason;
        self
    }
}

/// The reason why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The response is complete.
    Stop,
    /// The model calls tools.
    ToolCalls,
    /// A token limit was reached, so the response is truncated.
    Length,
    /// The provider's content filter truncated the response.
    ContentFilter,
    /// The provider has summarized the conversation, as the [request](crate::model::ChatRequest::with_compaction) asks for.
    Compaction,
    /// Another reason, as the provider names it.
    Other(String),
}

impl FinishReason {
    /// Returns `true` if the response is truncated, so that its calls must not be executed.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        matches!(self, Self::Length | Self::ContentFilter)
    }
}

/// Numbers of tokens used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the input.
    pub input_tokens: u64,
    /// Tokens of the output, including reasoning.
    pub output_tokens: u64,
    /// The total, as reported by the provider.
    pub total_tokens: u64,
    /// Input tokens that were read from the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Input tokens that were written to the provider's cache, which some providers charge more for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// Those of them that stay in the cache for an hour instead of minutes, if the provider reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_cache_write_tokens: Option<u64>,
    /// Output tokens that were spent on reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Web searches that the provider made and charges for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub web_searches: Option<u64>,
    /// What the tokens cost, of an agent with [prices](crate::agent::AgentBuilder::prices). It includes what failed requests may
    /// have cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

impl Usage {
    /// Creates a usage from the numbers of input and output tokens. The total is their sum.
    ///
    /// ```
    /// use tool_core::model::Usage;
    ///
    /// let mut usage = Usage::new(10, 2);
    /// usage += Usage::new(20, 3);
    /// assert_eq!(usage.total_tokens, 35);
    /// ```
    #[must_use]
    pub fn new(input_tokens: u64, output_tokens: u64) -> Self {
        let total_tokens = input_tokens.saturating_add(output_tokens);
        Self { input_tokens, output_tokens, total_tokens, ..Self::default() }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (None, None) => None,
            _ => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.total_tokens = self.total_tokens.saturating_add(other.total_tokens);
        self.cached_tokens = sum(self.cached_tokens, other.cached_tokens);
        self.cache_write_tokens = sum(self.cache_write_tokens, other.cache_write_tokens);
        self.long_cache_write_tokens = sum(self.long_cache_write_tokens, other.long_cache_write_tokens);
        self.reasoning_tokens = sum(self.reasoning_tokens, other.reasoning_tokens);
        self.web_searches = sum(self.web_searches, other.web_searches);
        self.cost = Cost::sum(self.cost, other.cost);
    }
}
