//! What a model answered.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::model::{AssistantMessage, TokenLogprob};

/// What a model answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChatResponse {
    /// The message.
    pub message: AssistantMessage,
    /// Why the model stopped there.
    pub finish_reason: FinishReason,
    /// The tokens that it took, if the provider told.
    pub usage: Option<Usage>,
    /// The provider's name for the response.
    pub id: Option<String>,
    /// The model that answered, in the provider's words.
    pub model: Option<String>,
    /// How likely the tokens of the text were, where that was [asked for](crate::ModelOptions::top_logprobs).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logprobs: Vec<TokenLogprob>,
}

impl ChatResponse {
    /// A response; the finish reason follows from the message.
    #[must_use]
    pub fn new(message: AssistantMessage) -> Self {
        let finish_reason =
            if message.tool_calls.is_empty() { FinishReason::Stop } else { FinishReason::ToolCalls };
        Self { message, finish_reason, usage: None, id: None, model: None, logprobs: Vec::new() }
    }

    /// The same response with the tokens that it took.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    /// The same response with another finish reason.
    #[must_use]
    pub fn with_finish_reason(mut self, reason: FinishReason) -> Self {
        self.finish_reason = reason;
        self
    }
}

/// Why a model stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// It had said all.
    Stop,
    /// It calls tools.
    ToolCalls,
    /// It ran into a limit of tokens: the reply is cut short.
    Length,
    /// A filter of the provider cut the reply short.
    ContentFilter,
    /// Another reason, in the provider's words.
    Other(String),
}

impl FinishReason {
    /// The reply is not whole, so its calls are not to be trusted.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        matches!(self, Self::Length | Self::ContentFilter)
    }
}

/// Tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens that the model read.
    pub input_tokens: u64,
    /// Tokens that the model wrote, its reasoning included.
    pub output_tokens: u64,
    /// The sum, as the provider told it.
    pub total_tokens: u64,
    /// Of the tokens read, those that came from the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Of the tokens written, those spent on reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
}

impl Usage {
    /// So many tokens read and written.
    ///
    /// ```
    /// use tool_core::Usage;
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
        self.reasoning_tokens = sum(self.reasoning_tokens, other.reasoning_tokens);
    }
}
