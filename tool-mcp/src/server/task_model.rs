//! The model of the agent that drives tasks, which has nothing to say.

use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse};
use tool_core::provider::ModelFuture;
use tool_core::{Agent, BuildError, ChatModel, ToolSet};

/// Ends a run whose call has a result, which is all that the host reads.
pub(super) struct NothingToSay;

impl ChatModel for NothingToSay {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async { Ok(ChatResponse::new(AssistantMessage::text("The call has ended."))) })
    }
}

/// Fails if a run cannot undo the calls of these tools as they declare.
pub(super) fn check_undo(tools: &ToolSet) -> Result<(), BuildError> {
    Agent::builder(NothingToSay).tools(tools.clone()).build().map(drop)
}
