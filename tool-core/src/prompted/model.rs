//! The model that is made of another.

use std::fmt;
use std::future::ready;

use futures_channel::mpsc;
use futures_util::SinkExt;
use futures_util::stream::{self, StreamExt};

use super::asking::{Asking, is_transparent};
use crate::model::{ChatModel, ChatRequest, ChatStream, Delta, ModelFuture};

/// How often a model is asked again, unless it is said.
const CORRECTIONS: u32 = 2;

/// Gives tools to a model that has none in its API: the tools stand in the system prompt, and calls are read out of what
/// the model writes.
///
#[cfg_attr(feature = "testing", doc = "```")]
#[cfg_attr(not(feature = "testing"), doc = "```ignore")]
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
/// // A model that knows texts only.
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
/// # What the model is sent
///
/// The names, descriptions and schemas of the tools stand behind the first system message, or in one of their own, with how
/// a call is written: as JSON in `<tool_call>` tags, as Hermes and Qwen models learned it. Earlier calls go back in the
/// same form, and results in `<tool_response>` tags in a message of the user, with their pictures. All this stays the same
/// from turn to turn, so prompt caches hit. That a call is [required](crate::ToolChoice::Required) is said behind
/// the last message, in the turns that require it.
///
/// A model that is held to a schema can write no call. So while there are tools, an [`ResponseFormat`](crate::ResponseFormat) is
/// told in the prompt, and the model is not held to it. Without tools, or with [`ToolChoice::None`](crate::ToolChoice::None),
/// it is, and a text is a text.
///
/// # What is a call
///
/// - What stands in `<tool_call>` tags: one object or several, a list, also in a last block that is not closed. A tool
///   that there is not is called all the same, so that the model is told which there are.
/// - An object that begins a line, or stands in a fence of its own (` ```json `, or without a word), if it names a tool
///   that there is: with `name`, `tool`, `tool_name` or `function`, and `arguments`, `parameters`, `args` or `input`. Any
///   other JSON is text.
///
/// Objects may be written as in Python (single quotes, `True`, tuples), with loose commas, and arguments may be a text of
/// JSON. What stands in a `<think>` block is no call. What a reply holds beside its calls is its text.
///
/// A reply that was [cut short](crate::FinishReason::is_cut_short) has the calls that were whole. If several calls are
/// [not allowed](ChatRequest::parallel_tool_calls), the first one counts.
///
/// # Asking again
///
/// If something is meant as a call and cannot be read, or a call is required and there is none, none of the reply's calls
/// counts, and the model is asked again with what was wrong, [twice](Self::max_corrections) at most. The tokens of all
/// replies are summed, and their texts follow each other. If that does not help, the error is a
/// [`PromptedToolsError`](crate::PromptedToolsError): the reply taken for an answer would look as if nothing had been meant to be
/// done.
///
/// # Streams
///
/// Text is passed on as it comes, but for what may become a call. Calls come at the end, when the reply is known to
/// have no broken one.
pub struct PromptedTools<M> {
    model: M,
    corrections: u32,
}

impl<M: ChatModel> PromptedTools<M> {
    /// Gives tools to this model.
    #[must_use]
    pub fn new(model: M) -> Self {
        Self { model, corrections: CORRECTIONS }
    }

    /// How often the model is asked again for one reply, if a call in it cannot be read, or is missing; 2 if not set.
    #[must_use]
    pub fn max_corrections(mut self, times: u32) -> Self {
        self.corrections = times;
        self
    }

    /// The model that has no tools.
    #[must_use]
    pub fn model(&self) -> &M {
        &self.model
    }
}

impl<M: ChatModel> ChatModel for PromptedTools<M> {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        if is_transparent(request) {
            return self.model.chat(request);
        }
        Box::pin(Asking::new(&self.model, self.corrections, None).ask(request))
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        if is_transparent(request) {
            return self.model.stream(request);
        }
        let (mut sender, deltas) = mpsc::channel(0);
        let asking = Asking::new(&self.model, self.corrections, Some(sender.clone()));
        let asked = async move {
            let outcome = asking.ask(request).await.map(Delta::Done);
            // Whoever drops the stream drops this too: there is always somebody to send to.
            let _ = sender.send(outcome).await;
        };
        let silent = stream::once(asked).filter_map(|()| ready(None));
        Box::pin(stream::select(deltas, silent))
    }

    fn supports_response_format(&self) -> bool {
        self.model.supports_response_format()
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
        f.debug_struct("PromptedTools").field("max_corrections", &self.corrections).finish_non_exhaustive()
    }
}
