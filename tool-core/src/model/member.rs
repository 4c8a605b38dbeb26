//! A model among those that a fallback or a router chooses from.

use std::sync::Arc;

use futures_util::SinkExt;

use crate::model::{
    AssistantMessage, ChatModel, ChatRequest, ChatResponse, Delta, DeltaSender, Message, ModelError,
};

/// One of the models.
pub(super) struct Member {
    pub(super) model: Arc<dyn ChatModel>,
    /// Only one model of several shares the cache of a run, because the caches of two can have one type.
    pub(super) shares_cache: bool,
}

impl Member {
    /// Sends the request to the model. With a sender, all deltas but the last are sent to it, and `on_delta` is called before each.
    pub(super) async fn ask(
        &self,
        request: &ChatRequest<'_>,
        mut sender: Option<&mut DeltaSender>,
        mut on_delta: impl FnMut() + Send,
    ) -> Result<ChatResponse, ModelError> {
        let request = self.own_request(request);
        let mut deltas = request.reply_of(&*self.model, sender.is_some());
        while let Some(delta) = deltas.next().await {
            match (delta?, &mut sender) {
                (Delta::Done(response), _) => return Ok(self.signed(response)),
                (delta, Some(sender)) => {
                    on_delta();
                    // The receiver is never dropped before this future, as the stream owns both.
                    let _ = sender.send(Ok(delta)).await;
                }
                (_, None) => {}
            }
        }
        Err(ModelError::cut_off())
    }

    /// Returns the request without what belongs to another of the models: its cache, and the data that it expects back.
    fn own_request<'a>(&self, request: &'a ChatRequest<'_>) -> ChatRequest<'a> {
        let own = if self.shares_cache { request.borrowed() } else { request.for_other_model() };
        let name = self.model.model_name();
        let is_of_other = |reply: &AssistantMessage| {
            reply.model.is_some() && reply.model.as_deref() != name && !self.model.reads_summary(reply)
        };
        if !request.messages().iter().filter_map(Message::as_assistant).any(is_of_other) {
            return own;
        }
        let mut messages = request.messages().to_vec();
        for message in &mut messages {
            if let Message::Assistant(reply) = message
                && is_of_other(reply)
            {
                reply.provider_data = None;
                reply.tool_calls.iter_mut().for_each(|call| call.provider_data = None);
            }
        }
        own.with_messages(messages)
    }

    /// Adds the names of the model and its provider to a response that has none.
    fn signed(&self, mut response: ChatResponse) -> ChatResponse {
        let name = self.model.model_name().map(str::to_owned);
        response.provider = response.provider.or_else(|| self.model.provider_name().map(str::to_owned));
        response.message.model = response.message.model.take().or_else(|| name.clone());
        response.model = response.model.or(name);
        response
    }
}

/// Implements [`ChatModel`](crate::model::ChatModel) for a type that chooses a member in its function `ask`.
macro_rules! impl_by_members {
    ($type:ident) => {
        #[diagnostic::do_not_recommend]
        impl ChatModel for $type {
            fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
                Box::pin(self.ask(request, None))
            }

            fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
                ChatStream::sent_by(|mut sender| async move { self.ask(request, Some(&mut sender)).await })
            }

            fn supports_response_format(&self) -> bool {
                self.models().all(|model| model.supports_response_format())
            }

            fn supports_response_format_with_tools(&self) -> bool {
                self.models().all(|model| model.supports_response_format_with_tools())
            }

            fn binds_reasoning(&self, reply: &$crate::model::AssistantMessage) -> bool {
                self.models().any(|model| model.binds_reasoning(reply))
            }

            fn reasoning_bytes(&self, reply: &$crate::model::AssistantMessage) -> usize {
                self.models().map(|model| model.reasoning_bytes(reply)).max().unwrap_or_default()
            }

            fn supports_compaction(&self) -> bool {
                // Nobody reads the summary of another provider.
                let provider = self.provider_name();
                self.models().all(|model| model.supports_compaction() && model.provider_name() == provider)
            }

            fn compacts_from_cache(&self) -> bool {
                self.models().all(|model| model.compacts_from_cache())
            }

            fn reads_summary(&self, summary: &$crate::model::AssistantMessage) -> bool {
                self.models().all(|model| model.reads_summary(summary))
            }

            fn supports_tool_search(&self, tools: usize) -> bool {
                self.models().all(|model| model.supports_tool_search(tools))
            }

            /// Returns the smallest context window that the models report.
            fn model_info(&self) -> ModelFuture<'_, Option<$crate::model::ModelInfo>> {
                Box::pin(async move {
                    let mut smallest: Option<u64> = None;
                    for model in self.models().collect::<Vec<_>>() {
                        let window = model.model_info().await?.and_then(|info| info.context_window);
                        smallest = smallest.into_iter().chain(window).min();
                    }
                    Ok(smallest.map(|window| $crate::model::ModelInfo::default().with_context_window(window)))
                })
            }

            fn passes_requests_on(&self) -> bool {
                true
            }

            fn provider_name(&self) -> Option<&str> {
                self.models().next()?.provider_name()
            }

            fn model_name(&self) -> Option<&str> {
                self.models().next()?.model_name()
            }
        }

        /// Shows the names of the models.
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let names: Vec<_> = self.models().map(ChatModel::model_name).collect();
                f.debug_tuple(stringify!($type)).field(&names).finish()
            }
        }
    };
}

pub(super) use impl_by_members;
