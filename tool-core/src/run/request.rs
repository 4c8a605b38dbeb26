//! The next request of a run to the model: borrowed, or apart from the run.

use std::sync::Arc;

use super::shared_vec::SharedVec;
use crate::model::{
    ChatRequest, Message, ModelOptions, RequestCache, ResponseFormat, ToolChoice, ToolDefinitions,
};
use crate::run::Run;

/// The next request of a run, which shares its messages.
pub(crate) struct SharedRequest {
    messages: SharedVec<Message>,
    cache: Arc<RequestCache>,
    tool_choice: ToolChoice,
    parallel_tool_calls: Option<bool>,
    options: ModelOptions,
    response_format: Option<ResponseFormat>,
}

impl SharedRequest {
    pub(crate) fn with_tools(&self, tools: &ToolDefinitions) -> ChatRequest<'_> {
        ChatRequest::borrowing(&self.messages)
            .with_cache(&self.cache)
            .with_tools(tools.clone())
            .with_tool_choice(self.tool_choice.clone())
            .with_parallel_tool_calls(self.parallel_tool_calls)
            .with_borrowed_options(&self.options)
            .with_response_format(self.response_format.clone())
    }
}

impl Run {
    /// Returns the next request to the model.
    pub(crate) fn request(&self, tools: &ToolDefinitions) -> ChatRequest<'_> {
        let settings = &self.head.settings;
        ChatRequest::borrowing(self.history.messages())
            .with_cache(&self.cache)
            .with_tools(tools.clone())
            .with_tool_choice(self.current_tool_choice().clone())
            .with_parallel_tool_calls(settings.parallel_tool_calls)
            .with_borrowed_options(&settings.options)
            .with_response_format(settings.response_format.clone())
    }

    /// Returns the next request to the model, for which the run need not be borrowed.
    pub(crate) fn share_request(&self) -> SharedRequest {
        let (settings, (messages, _)) = (&self.head.settings, self.history.share());
        SharedRequest {
            messages,
            cache: self.cache.share(),
            tool_choice: self.current_tool_choice().clone(),
            parallel_tool_calls: settings.parallel_tool_calls,
            options: settings.options.clone(),
            response_format: settings.response_format.clone(),
        }
    }
}
