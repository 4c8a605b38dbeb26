//! The cache points of requests.

/// Where a request asks the provider to store its start, so that later requests with the same start are cheaper and faster.
///
/// There are at most four cache points: behind the tools, behind the instructions, behind the last message, and in a turn of more
/// than twenty blocks also behind the last message of the previous request. A part that is too short for any model's cache has none,
/// and the messages have none unless a further request is likely: there are tools, or the model has already replied.
///
/// Reading from the cache costs a tenth of the price of input tokens; writing costs a quarter more for five minutes, and twice as
/// much for an hour. [`Usage`](tool_core::model::Usage) counts both.
///
/// ```
/// use tool_anthropic::{Anthropic, Cache, CacheTtl};
///
/// let anthropic = Anthropic::builder().api_key("…").build()?;
/// // The instructions are reused by questions that are less than an hour apart.
/// let model = anthropic.chat_model("claude-sonnet-5-5").cache(Cache::default().prefix(CacheTtl::OneHour));
/// # let _ = model;
/// # Ok::<_, tool_anthropic::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Cache {
    prefix: Option<CacheTtl>,
    messages: Option<CacheTtl>,
}

/// How long the provider stores the start of a request after it was last used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CacheTtl {
    /// Five minutes.
    FiveMinutes,
    /// An hour.
    OneHour,
}

impl Cache {
    /// Sets no cache points.
    pub fn off() -> Self {
        Self { prefix: None, messages: None }
    }

    /// Stores the tools and the instructions for this time.
    pub fn prefix(mut self, ttl: CacheTtl) -> Self {
        self.prefix = Some(ttl);
        self
    }

    /// Stores the messages for this time. The tools and the instructions before them are stored for at least as long, because the
    /// API requires it.
    pub fn messages(mut self, ttl: CacheTtl) -> Self {
        self.messages = Some(ttl);
        self
    }

    /// Returns the member that makes a block of the tools or the instructions a cache point.
    pub(crate) fn prefix_point(self) -> Option<&'static str> {
        self.prefix.map(|ttl| self.messages.map_or(ttl, |messages| ttl.max(messages)).member())
    }

    /// Returns the member that makes a block of a message a cache point.
    pub(crate) fn message_point(self) -> Option<&'static str> {
        self.messages.map(CacheTtl::member)
    }
}

impl Default for Cache {
    /// Stores all for five minutes.
    fn default() -> Self {
        Self { prefix: Some(CacheTtl::FiveMinutes), messages: Some(CacheTtl::FiveMinutes) }
    }
}

impl CacheTtl {
    fn member(self) -> &'static str {
        match self {
            Self::FiveMinutes => r#","cache_control":{"type":"ephemeral"}"#,
            Self::OneHour => r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
        }
    }
}
