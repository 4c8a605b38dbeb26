//! A request to a model.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};

use super::setters::setters;
use crate::content::Content;
use crate::model::{
    Begun, Message, Meter, ModelOptions, RequestCache, ResponseFormat, ToolDefinitions, restore_results,
};

/// A request to a model: the conversation so far and the available tools.
///
/// It borrows or owns the conversation, so a run does not copy its history in every turn.
///
/// ```
/// use tool_core::model::{ChatRequest, ToolChoice};
/// use tool_core::Message;
///
/// let request = ChatRequest::new([Message::user("Good morning!")]).with_tool_choice(ToolChoice::None);
/// assert_eq!(request.messages().len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct ChatRequest<'a> {
    messages: Cow<'a, [Message]>,
    tools: ToolDefinitions,
    has_tool_search: bool,
    is_compaction: bool,
    summary_prompt: Option<Arc<str>>,
    /// The first message whose reasoning has to be read, and the number of messages when that was set.
    reasoning_start: (usize, usize),
    tool_choice: ToolChoice,
    parallel_tool_calls: Option<bool>,
    options: Options<'a>,
    response_format: Option<ResponseFormat>,
    shared: Shared<'a>,
}

/// Boxed or borrowed, because the options are large and mostly unset.
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

/// What a request shares with others. It does not change the meaning of a request, so it compares equal to any other.
#[derive(Clone, Copy, Default)]
struct Shared<'a> {
    cache: Option<&'a RequestCache>,
    meter: Option<&'a dyn Meter>,
    /// The attempt that the request is, if it is one.
    attempt: Option<usize>,
}

impl PartialEq for Shared<'_> {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Shared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl<'a> ChatRequest<'a> {
    /// Sets a cache, which the provider shares between this request and later ones that append messages to it.
    pub fn with_cache(mut self, cache: &'a RequestCache) -> Self {
        self.shared.cache = Some(cache);
        self
    }

    /// Returns the same request with these messages in place of its own. It shares no cache with this one.
    pub fn copy_with_messages(&self, messages: impl Into<Vec<Message>>) -> ChatRequest<'static> {
        ChatRequest::new(messages)
            .with_tools(self.tools.clone())
            .with_tool_search(self.has_tool_search)
            .with_compaction(self.is_compaction)
            .with_summary_prompt(self.summary_prompt.clone())
            .with_reasoning_start(self.reasoning_start())
            .with_tool_choice(self.tool_choice.clone())
            .with_parallel_tool_calls(self.parallel_tool_calls)
            .with_options(self.options().clone())
            .with_response_format(self.response_format.clone())
    }

    /// Calls `f` with the value that the provider cached in earlier requests, of a type private to the provider. The
    /// value starts as the default, as it always does for a request [without a cache](Self::with_cache).
    pub fn cached<T: Any + Send + Default, R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        match self.shared.cache {
            Some(cache) => cache.with(f),
            None => f(&mut T::default()),
        }
    }
}

setters! {
    ChatRequest<'_> {
        /// Sets the tools that the model can call: [`ToolDefinitions`], a list of definitions, or a [`&ToolSet`](crate::ToolSet).
        with_tools(tools: impl Into<ToolDefinitions>) tools = tools.into();
        /// Sets whether the provider searches the [deferred](crate::model::ToolDefinition::is_deferred) tools and shows the model those
        /// that it finds, if the model [supports](crate::ChatModel::supports_tool_search) that. Otherwise, deferred tools are offered like
        /// all others.
        with_tool_search(is_by_provider: bool) has_tool_search = is_by_provider;
        /// Sets whether the provider is to summarize the conversation instead of letting the model reply, if the model
        /// [supports](crate::ChatModel::supports_compaction) that. The format of the last message does not apply to the summary.
        with_compaction(is_compaction: bool) is_compaction = is_compaction;
        /// Sets what the provider is asked for a summary, in place of a prompt of its own.
        with_summary_prompt(prompt: impl Into<Option<Arc<str>>>) summary_prompt = prompt.into();
        /// Sets whether the model can, must or must not call a tool.
        with_tool_choice(choice: ToolChoice) tool_choice = choice;
        /// Sets whether the model can call several tools in one turn. The provider decides if it is not set.
        with_parallel_tool_calls(allowed: impl Into<Option<bool>>) parallel_tool_calls = allowed.into();
        /// Sets the format of the model's last message, which is any text by default.
        with_response_format(format: impl Into<Option<ResponseFormat>>) response_format = format.into();
    }
}

impl ChatRequest<'static> {
    /// Creates a request that owns its messages.
    pub fn new(messages: impl Into<Vec<Message>>) -> Self {
        Self::from_messages(Cow::Owned(messages.into()))
    }
}

impl<'a> ChatRequest<'a> {
    /// Creates a request that borrows its messages.
    pub fn borrowing(messages: &'a [Message]) -> Self {
        Self::from_messages(Cow::Borrowed(messages))
    }

    fn from_messages(messages: Cow<'a, [Message]>) -> Self {
        Self {
            messages,
            tools: ToolDefinitions::default(),
            has_tool_search: false,
            is_compaction: false,
            summary_prompt: None,
            reasoning_start: (0, 0),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: None,
            options: Options::Unset,
            response_format: None,
            shared: Shared::default(),
        }
    }

    /// Returns the same request for another model, which shares no cache with this one, nor the name of the model.
    pub(crate) fn for_other_model(&self) -> ChatRequest<'_> {
        let options = ModelOptions { model: None, ..self.options().clone() };
        let shared = Shared { cache: None, ..self.shared };
        ChatRequest { shared, ..self.borrowed() }.with_options(options)
    }

    /// Returns the same request as an attempt, with its limit of output tokens.
    pub(crate) fn as_attempt(&self, Begun { id, max_output_tokens }: Begun) -> ChatRequest<'_> {
        let mut request = self.borrowed();
        request.shared.attempt = Some(id);
        match max_output_tokens {
            Some(tokens) => request.with_options(self.options().clone().with_max_output_tokens(tokens)),
            None => request,
        }
    }

    pub(crate) fn borrowed(&self) -> ChatRequest<'_> {
        ChatRequest {
            messages: Cow::Borrowed(&self.messages),
            tools: self.tools.clone(),
            has_tool_search: self.has_tool_search,
            is_compaction: self.is_compaction,
            summary_prompt: self.summary_prompt.clone(),
            reasoning_start: self.reasoning_start,
            tool_choice: self.tool_choice.clone(),
            parallel_tool_calls: self.parallel_tool_calls,
            options: Options::Borrowed(self.options()),
            response_format: self.response_format.clone(),
            shared: self.shared,
        }
    }

    /// Sets what counts the attempts of the request.
    pub(crate) fn metered(mut self, meter: Option<&'a dyn Meter>) -> Self {
        self.shared = Shared { meter, attempt: None, ..self.shared };
        self
    }

    pub(crate) fn meter(&self) -> Option<&'a dyn Meter> {
        self.shared.meter
    }

    /// Returns what counts the request, and the id of the attempt that it is.
    pub(crate) fn attempt(&self) -> Option<(&'a dyn Meter, usize)> {
        self.shared.meter.zip(self.shared.attempt)
    }

    /// Sets the position of the first message whose reasoning the model has to read. That of earlier replies can be left out. By default,
    /// it is 0. It stays when messages are changed or added, and is 0 once there are fewer: set it again if you move messages.
    pub fn with_reasoning_start(mut self, position: usize) -> Self {
        self.reasoning_start = (position, self.messages.len());
        self
    }

    /// Replaces the conversation.
    pub fn with_messages(mut self, messages: impl Into<Vec<Message>>) -> Self {
        (self.messages, self.shared.cache) = (Cow::Owned(messages.into()), None);
        self
    }

    /// Returns the conversation to be changed. The provider's prompt cache is missed from the first change on, so change messages rarely, or
    /// in the same way in every request of a run.
    pub fn messages_mut(&mut self) -> &mut Vec<Message> {
        self.shared.cache = None;
        self.messages.to_mut()
    }

    /// Restores the results of calls that are missing, and leaves out those without a call.
    pub(crate) fn with_results_of(self, before: &ChatRequest<'_>) -> Self {
        let (changed, before) = (self.messages(), before.messages());
        if std::ptr::eq(changed, before) {
            return self;
        }
        let restored = match restore_results(changed, before) {
            Cow::Owned(restored) => restored,
            Cow::Borrowed(_) => return self,
        };
        self.with_messages(restored)
    }

    /// Sets the instructions, in place of a system message at the beginning.
    pub fn with_instructions(mut self, instructions: impl Into<Content>) -> Self {
        let instructions = Message::System(instructions.into());
        let messages = self.messages_mut();
        match messages.first_mut() {
            Some(first @ Message::System(_)) => *first = instructions,
            _ => {
                messages.insert(0, instructions);
                let start = &mut self.reasoning_start.0;
                *start += usize::from(*start > 0);
            }
        }
        self
    }

    /// Sets the options of the model. The provider decides about options that are not set.
    pub fn with_options(mut self, options: ModelOptions) -> Self {
        self.options = Options::Owned(Box::new(options));
        self
    }

    /// Sets the options of the model like [`with_options`](Self::with_options), but borrows them.
    pub fn with_borrowed_options(mut self, options: &'a ModelOptions) -> Self {
        self.options = Options::Borrowed(options);
        self
    }

    /// Replaces the messages, and the cache by the one that is shared by earlier requests with these messages, if any.
    pub(crate) fn with_other_messages(
        mut self,
        messages: &'a [Message],
        cache: Option<&'a RequestCache>,
    ) -> Self {
        let start = self.reasoning_start();
        (self.messages, self.shared.cache) = (Cow::Borrowed(messages), cache);
        self.with_reasoning_start(start)
    }

    /// Returns the conversation so far.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the tools that the model can call.
    #[must_use]
    pub fn tools(&self) -> &ToolDefinitions {
        &self.tools
    }

    /// Returns `true` if the provider searches the [deferred](crate::model::ToolDefinition::is_deferred) tools. Send these in
    /// the form in which its API searches them.
    #[must_use]
    pub fn has_tool_search(&self) -> bool {
        self.has_tool_search
    }

    /// Returns the position of the first message whose reasoning the model has to read. A provider that sends reasoning back omits that of
    /// the replies before.
    #[must_use]
    pub fn reasoning_start(&self) -> usize {
        let (start, messages) = self.reasoning_start;
        if self.messages.len() < messages { 0 } else { start }
    }

    /// Returns `true` if the provider is to summarize the conversation instead of letting the model reply.
    #[must_use]
    pub fn is_compaction(&self) -> bool {
        self.is_compaction
    }

    /// Returns what the provider is asked for a summary, if it is not to use a prompt of its own.
    #[must_use]
    pub fn summary_prompt(&self) -> Option<&str> {
        self.summary_prompt.as_deref()
    }

    /// Returns whether the model can, must or must not call a tool.
    #[must_use]
    pub fn tool_choice(&self) -> &ToolChoice {
        &self.tool_choice
    }

    /// Returns whether the model can call several tools in one turn, if it is set.
    #[must_use]
    pub fn parallel_tool_calls(&self) -> Option<bool> {
        self.parallel_tool_calls
    }

    /// Returns the options of the model.
    pub fn options(&self) -> &ModelOptions {
        self.options.get()
    }

    /// Returns the format of the model's last message, if it is set.
    #[must_use]
    pub fn response_format(&self) -> Option<&ResponseFormat> {
        self.response_format.as_ref()
    }
}

/// The choice of whether the model can, must or must not call a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model must not call a tool.
    None,
    /// The model must call at least one tool.
    Required,
    /// The model must call the tool with this name.
    Tool(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_of_reasoning_stays_where_it_is_valid() {
        let messages = ["One?", "Two?", "Three?"].map(Message::user);
        let request = || ChatRequest::borrowing(&messages).with_reasoning_start(2);
        let mut changed = request();
        changed.messages_mut()[0] = Message::user("[redacted]");
        let mut longer = request();
        longer.messages_mut().push(Message::user("Be brief."));
        let mut shorter = request();
        shorter.messages_mut().remove(0);
        let instructed = request().with_instructions("Be brief.");
        let table = [
            (changed, 2),
            (longer, 2),
            (shorter, 0),
            (instructed.clone(), 3),
            (instructed.with_instructions("Be polite."), 3),
            (request().with_messages(messages.to_vec()), 2),
            (request().with_messages([Message::user("Hello")]), 0),
            (request().with_other_messages(&messages[1..], None), 2),
            (ChatRequest::borrowing(&messages).with_instructions("Be brief."), 0),
        ];
        for (at, (request, expected)) in table.into_iter().enumerate() {
            assert_eq!(request.reasoning_start(), expected, "row {at}");
        }
    }
}
