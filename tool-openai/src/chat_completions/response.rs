//! The answer: what is read of it, and all of it optional, because some server leaves any of it out.

use serde::Deserialize;
use serde_json::value::RawValue;
use tool_core::{ChatResponse, Usage};

use super::assembler::Assembler;
use crate::quirks::{self, WireContent};

/// A whole answer, or a chunk of a streamed one.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct Completion<'a> {
    pub(super) id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) choices: Option<Vec<Choice>>,
    pub(super) usage: Option<WireUsage>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Choice {
    pub(super) index: Option<u32>,
    /// Of a whole answer.
    pub(super) message: Option<WireMessage>,
    /// Of a streamed one.
    pub(super) delta: Option<WireMessage>,
    pub(super) finish_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct WireMessage {
    pub(super) content: Option<WireContent>,
    pub(super) refusal: Option<String>,
    /// DeepSeek's name for it.
    pub(super) reasoning_content: Option<String>,
    /// The name that Ollama and vLLM give it.
    pub(super) reasoning: Option<String>,
    pub(super) tool_calls: Option<Vec<WireCall>>,
}

/// A call, or a fragment of one.
#[derive(Deserialize)]
pub(super) struct WireCall {
    pub(super) index: Option<u32>,
    pub(super) id: Option<String>,
    pub(super) function: Option<WireFunction>,
}

#[derive(Deserialize)]
pub(super) struct WireFunction {
    pub(super) name: Option<String>,
    #[serde(default, deserialize_with = "quirks::arguments")]
    pub(super) arguments: Option<String>,
}

#[derive(Clone, Copy, Deserialize)]
pub(super) struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

#[derive(Clone, Copy, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

#[derive(Clone, Copy, Deserialize)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let mut usage = Self::new(wire.prompt_tokens.unwrap_or(0), wire.completion_tokens.unwrap_or(0));
        usage.total_tokens = wire.total_tokens.unwrap_or(usage.total_tokens);
        usage.cached_tokens = wire.prompt_tokens_details.and_then(|details| details.cached_tokens);
        usage.reasoning_tokens = wire.completion_tokens_details.and_then(|details| details.reasoning_tokens);
        usage
    }
}

/// Why an answer gives no response.
pub(super) enum Problem {
    /// It tells of an error; some servers do so under status 200.
    Api,
    /// It has no choices.
    Empty,
    /// It is not one of the API.
    Unreadable(String),
}

/// Reads a whole answer.
pub(super) fn read(text: &str) -> Result<ChatResponse, Problem> {
    let completion: Completion<'_> =
        serde_json::from_str(text).map_err(|error| Problem::Unreadable(error.to_string()))?;
    let has_choice = completion.choices.as_ref().is_some_and(|choices| !choices.is_empty());
    if completion.error.is_some() || (!has_choice && quirks::api_error(text).is_some()) {
        return Err(Problem::Api);
    }
    if !has_choice {
        // Anything may be an object without choices.
        return Err(match completion.choices.is_some() || text.contains("\"choices\"") {
            true => Problem::Empty,
            false => Problem::Unreadable("it has no choices".into()),
        });
    }
    let mut assembler = Assembler::default();
    assembler.add(completion, |_| {});
    Ok(assembler.into_response())
}
