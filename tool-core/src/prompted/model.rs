//! The wrapper that adds tools to a model.

use std::fmt;

use super::exchange::{Exchange, is_pass_through};
use crate::model::{ChatModel, ChatRequest, ChatStream, ModelFuture, ModelInfo};

/// The default limit of corrections per response.
const DEFAULT_MAX_CORRECTIONS: u32 = 2;

/// Adds tools to a model that has none in its API: the system prompt describes the tools, and calls are parsed from the
/// model's text.
///
/// ```
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, PromptedTools, tool, tools};
///
/// /// Sums two numbers.
/// #[tool]
/// fn sum(a: f64, b: f64) -> f64 {
///     a + b
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A model that reads and writes only text.
/// let model = ScriptedModel::new()
///     .says("<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"a\": 2, \"b\": 40}}\n</tool_call>")
///     .says("It is 42.");
/// let agent = Agent::builder(PromptedTools::new(model)).tools(tools![sum]).build()?;
/// let answer = agent.ask("What is 2 + 40?").await?;
/// assert_eq!(answer.tool_executions()[0].call().name, "sum");
/// assert_eq!(answer.text(), "It is 42.");
/// # Ok(())
/// # }
/// ```
///
/// # Prompt
///
/// The conversation starts with a system message, added if there is none, that ends with the names, descriptions and
/// schemas of the tools and the form of a call: JSON in `<tool_call>` tags, as Hermes and Qwen models were trained.
/// Earlier calls are sent back in the same form, and results in `<tool_response>` tags in a user message, with their
/// images. All of this is the same in every turn, so prompt caches hit. A turn that
/// [requires](crate::model::ToolChoice::Required) a call says so after the last message.
///
/// A model that is constrained to a schema cannot write calls. While there are tools, a
/// [`ResponseFormat`](crate::provider::ResponseFormat) is therefore only described in the prompt. Without tools, or with
/// [`ToolChoice::None`](crate::model::ToolChoice::None), it is passed to the model, and the text is not parsed.
///
/// # Calls
///
/// These are calls:
///
/// - The content of `<tool_call>` tags: one or more objects, or a list. The last block need not be closed. A call to an
///   unknown tool is a call too, so that the model receives the names of the existing tools.
/// - An object at the start of a line or in its own code block (` ```json ` or without a language) that names an existing
///   tool: with `name` or `tool`, and `arguments` or `parameters`. Any other JSON is text.
///
/// Objects can be in Python syntax (single quotes, `True`, tuples) and have trailing commas, and arguments can be a string
/// of JSON. Calls in a `<think>` block are ignored. The rest of the reply is its text.
///
/// Of a [truncated](crate::model::FinishReason::is_truncated) reply, the complete calls are returned. If parallel calls are
/// [disabled](ChatRequest::parallel_tool_calls), only the first call is returned.
///
/// # Corrections
///
/// If a call cannot be parsed, or a required call is missing, all calls of the reply are discarded, and the model is asked
/// again with a description of the mistake, by default at most [twice](Self::max_corrections). The usage of all replies is
/// summed, and their texts are concatenated. If the last correction fails too, the error is a
/// [`PromptedToolsError`](crate::signatures::PromptedToolsError), because the reply would otherwise look like an answer that needs no
/// tool.
///
/// # Streams
///
/// Text is streamed as it arrives, except for text that can become a call: JSON at the start of a line or in a code block is
/// held back until it is complete. Calls follow at the end, once all of them are known to be valid.
#[must_use]
pub struct PromptedTools<M> {
    model: M,
    max_corrections: u32,
}

impl<M: ChatModel> PromptedTools<M> {
    /// Adds tools to a model.
    pub fn new(model: M) -> Self {
        Self { model, max_corrections: DEFAULT_MAX_CORRECTIONS }
    }

    /// Limits the corrections per response, after a call that cannot be parsed or is missing. The default is 2.
    pub fn max_corrections(mut self, limit: u32) -> Self {
        self.max_corrections = limit;
        self
    }

    /// Returns the wrapped model.
    #[must_use]
    pub fn model(&self) -> &M {
        &self.model
    }
}

impl<M: ChatModel> ChatModel for PromptedTools<M> {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        if is_pass_through(request) {
            return request.send_to(&self.model);
        }
        Box::pin(Exchange::new(&self.model, self.max_corrections, None).run(request))
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        if is_pass_through(request) {
            return request.stream_to(&self.model);
        }
        ChatStream::sent_by(|sender| {
            Exchange::new(&self.model, self.max_corrections, Some(sender)).run(request)
        })
    }

    fn supports_response_format(&self) -> bool {
        self.model.supports_response_format()
    }

    fn model_info(&self) -> ModelFuture<'_, Option<ModelInfo>> {
        self.model.model_info()
    }

    fn passes_requests_on(&self) -> bool {
        true
    }

    fn provider_name(&self) -> Option<&str> {
        self.model.provider_name()
    }

    fn model_name(&self) -> Option<&str> {
        self.model.model_name()
    }
}

impl<M> fmt::Debug for PromptedTools<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptedTools")
            .field("max_corrections", &self.max_corrections)
            .finish_non_exhaustive()
    }
}
