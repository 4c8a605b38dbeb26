//! A recorded conversation, and a model that replays it.

use serde::Deserialize;
use tool_core::ToolCall;
use tool_core::model::{AssistantMessage, ChatResponse, Usage};
use tool_core::testing::ScriptedModel;

/// A recorded conversation: the user message, the model's replies and the results of the tools.
#[derive(Deserialize)]
pub(crate) struct Recording {
    pub(crate) user: String,
    pub(crate) turns: Vec<Turn>,
    /// The final reply, if the recording includes it.
    pub(crate) answer: Option<String>,
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
pub(crate) struct Turn {
    #[serde(default)]
    content: String,
    pub(crate) tool_calls: Vec<Call>,
    pub(crate) results: Vec<String>,
    usage: Option<Tokens>,
}

#[derive(Deserialize)]
pub(crate) struct Call {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    pub(crate) arguments: serde_json::Value,
}

#[derive(Clone, Copy, Deserialize)]
struct Tokens {
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl Recording {
    pub(crate) fn read(json: &str) -> serde_json::Result<Self> {
        serde_json::from_str(json)
    }

    /// Returns a model that requests the recorded calls, with their ids, and then returns the recorded answer.
    pub(crate) fn model(&self) -> ScriptedModel {
        let mut model = ScriptedModel::new();
        for turn in &self.turns {
            let calls = turn.tool_calls.iter().map(|call| {
                ToolCall::new(call.id.as_deref().unwrap_or_default(), &call.name, call.arguments.to_string())
            });
            let message = AssistantMessage::text(&turn.content).with_tool_calls(calls);
            model = model.replies(with_tokens(message, turn.usage));
        }
        let answer = self.answer.as_deref().unwrap_or("(the recording ends here)");
        model.replies(with_tokens(AssistantMessage::text(answer), self.usage))
    }
}

fn with_tokens(message: AssistantMessage, tokens: Option<Tokens>) -> ChatResponse {
    let response = ChatResponse::new(message);
    match tokens {
        Some(tokens) => response.with_usage(Usage::new(tokens.prompt_tokens, tokens.completion_tokens)),
        None => response,
    }
}
