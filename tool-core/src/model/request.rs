//! What a model is asked.

use std::any::Any;
use std::borrow::Cow;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::model::{Message, ModelOptions, RequestCache, ResponseFormat, ToolDefinitions};

/// One request to a model: the conversation so far and the tools on offer.
///
/// It borrows or owns the conversation, so a run asks turn after turn without copying its history.
///
/// ```
/// use tool_core::{ChatRequest, Message, ToolChoice};
///
/// let request = ChatRequest::new([Message::user("Good morning!")]).with_tool_choice(ToolChoice::None);
/// assert_eq!(request.messages().len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ChatRequest<'a> {
    messages: Cow<'a, [Message]>,
    tools: ToolDefinitions,
    tool_choice: ToolChoice,
    parallel_tool_calls: Option<bool>,
    options: Options<'a>,
    response_format: Option<ResponseFormat>,
    cache: Cache<'a>,
}

/// They are large and mostly unset, and a run has them already.
#[derive(Clone, Debug)]
enum Options<'a> {
    Unset,
    Borrowed(&'a ModelOptions),
    Owned(Box<ModelOptions>),
}

impl Options<'_> {
    fn get(&self) -> &ModelOptions {
        static UNSET: LazyLock<ModelOptions> = LazyLock::new(ModelOptions::default);
        match self {
            Self::Unset => &UNSET,
            Self::Borrowed(options) => options,
            Self::Owned(options) => options,
        }
    }
}

impl PartialEq for Options<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

/// It says nothing of what is asked, so all are the same.
#[derive(Clone, Copy, Debug)]
struct Cache<'a>(Option<&'a RequestCache>);

impl PartialEq for Cache<'_> {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl ChatRequest<'static> {
    /// A request that owns its messages.
    #[must_use]
    pub fn new(messages: impl Into<Vec<Message>>) -> Self {
        Self::over(Cow::Owned(messages.into()))
    }
}

impl<'a> ChatRequest<'a> {
    /// A request that borrows its messages.
    #[must_use]
    pub fn borrowing(messages: &'a [Message]) -> Self {
        Self::over(Cow::Borrowed(messages))
    }

    fn over(messages: Cow<'a, [Message]>) -> Self {
        Self {
            messages,
            tools: ToolDefinitions::default(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: None,
            options: Options::Unset,
            response_format: None,
            cache: Cache(None),
        }
    }

    /// Offers tools to the model.
    #[must_use]
    pub fn with_tools(mut self, tools: ToolDefinitions) -> Self {
        self.tools = tools;
        self
    }

    /// Whether the model may, must or must not call a tool.
    #[must_use]
    pub fn with_tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = choice;
        self
    }

    /// Whether the model may call several tools in one turn; unset, the provider decides.
    #[must_use]
    pub fn with_parallel_tool_calls(mut self, may: impl Into<Option<bool>>) -> Self {
        self.parallel_tool_calls = may.into();
        self
    }

    /// How the model is to answer; unset, the provider decides.
    #[must_use]
    pub fn with_options(mut self, options: ModelOptions) -> Self {
        self.options = Options::Owned(Box::new(options));
        self
    }

    /// The same as [`with_options`](Self::with_options), without a copy.
    #[must_use]
    pub fn with_borrowed_options(mut self, options: &'a ModelOptions) -> Self {
        self.options = Options::Borrowed(options);
        self
    }

    /// What the model's last message must look like; unset, it is a text of any kind.
    #[must_use]
    pub fn with_response_format(mut self, format: impl Into<Option<ResponseFormat>>) -> Self {
        self.response_format = format.into();
        self
    }

    /// Lets the provider keep something for the next request, which has these messages and more.
    #[must_use]
    pub fn with_cache(mut self, cache: &'a RequestCache) -> Self {
        self.cache = Cache(Some(cache));
        self
    }

    /// What the provider kept from the request before, to be used and changed: a type of its own. It begins with the
    /// default, as it does each time for a request [without a cache](Self::with_cache).
    pub fn cached<T: Any + Send + Default, R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        match self.cache.0 {
            Some(cache) => cache.with(look),
            None => look(&mut T::default()),
        }
    }

    /// The conversation so far.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The tools on offer.
    #[must_use]
    pub fn tools(&self) -> &ToolDefinitions {
        &self.tools
    }

    /// Whether the model may, must or must not call a tool.
    #[must_use]
    pub fn tool_choice(&self) -> &ToolChoice {
        &self.tool_choice
    }

    /// Whether the model may call several tools in one turn.
    #[must_use]
    pub fn parallel_tool_calls(&self) -> Option<bool> {
        self.parallel_tool_calls
    }

    /// How the model is to answer.
    #[must_use]
    pub fn options(&self) -> &ModelOptions {
        self.options.get()
    }

    /// What the model's last message must look like.
    #[must_use]
    pub fn response_format(&self) -> Option<&ResponseFormat> {
        self.response_format.as_ref()
    }
}

/// Whether the model may, must or must not call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model calls no tool.
    None,
    /// The model calls at least one tool.
    Required,
    /// The model calls this tool.
    Tool(String),
}
