//! Layers from closures that rewrite what passes.

use std::sync::Arc;

use super::closure::{Closure, ClosureLayer, IntoVerdict};
use super::context::LayerContext;
use super::verdict::{OutputVerdict, QuestionVerdict};
use crate::content::Content;
use crate::model::{ChatRequest, ToolCall};
use crate::tool::{ToolArguments, ToolExecution, ToolOutput};

/// Rewrites each request to the model: its messages, options or tool choice. The run and its
/// [memory](crate::agent::AgentBuilder::memory) keep the conversation as it is, and the next request starts from it again. Tools are
/// chosen with [`guard::offer`](super::guard::offer): calls are looked up in all tools of the turn.
///
/// Calls and their results stay together: a result whose call was removed is removed too, and one that was removed without its
/// call is sent nevertheless. To shorten a result, change its content.
///
/// ```
/// use tool_core::layer::rewrite;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, Message, tool, tools};
///
/// #[tool("Reads a file")]
/// fn read_file(path: String) -> String {
///     format!("the long text of {path}")
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new()
///     .calls("read_file", r#"{"path": "a.txt"}"#)
///     .expects(|request| request.messages()[2].text() == "[read]")
///     .says("It is long.");
/// let short = rewrite::request(|mut request| {
///     for message in request.messages_mut() {
///         if let Message::Tool(result) = message {
///             result.content = "[read]".into();
///         }
///     }
///     request
/// });
/// let agent = Agent::builder(model).tools(tools![read_file]).layer(short).build()?;
/// let answer = agent.ask("What is in a.txt?").await?;
/// assert_eq!(answer.new_messages()[2].text(), "the long text of a.txt");
/// # Ok(())
/// # }
/// ```
pub fn request(
    rewrite: impl for<'a> Fn(ChatRequest<'a>) -> ChatRequest<'a> + Send + Sync + 'static,
) -> ClosureLayer {
    request_with_context(move |request, _| rewrite(request))
}

/// Rewrites each request to the model, with its [`LayerContext`].
///
/// ```
/// use tool_core::layer::rewrite;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::Agent;
///
/// struct User(&'static str);
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().expects(|request| request.messages()[0].text() == "You help Ada.").says("Hello");
/// let personal = rewrite::request_with_context(|request, at| match at.context.get() {
///     Some(User(name)) => request.with_instructions(format!("You help {name}.")),
///     None => request,
/// });
/// Agent::builder(model).layer(personal).build()?.ask("Hello").context(User("Ada")).await?;
/// # Ok(())
/// # }
/// ```
pub fn request_with_context(
    rewrite: impl for<'a> Fn(ChatRequest<'a>, &LayerContext<'_>) -> ChatRequest<'a> + Send + Sync + 'static,
) -> ClosureLayer {
    ClosureLayer::new("rewrite::request", Closure::Request(Box::new(rewrite)))
}

/// Rewrites the question of the run, and further messages of the user, before the model is asked. `None` leaves it as it is. The run
/// and its [memory](crate::agent::AgentBuilder::memory) have only what it is rewritten to.
///
/// ```
/// use tool_core::Agent;
/// use tool_core::layer::{Redact, rewrite};
/// use tool_core::testing::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let redact = Redact::new().email_addresses();
/// let layer = rewrite::question(move |question| Some(redact.text(&question.text()).into_owned()));
/// let agent = Agent::builder(ScriptedModel::new().says("Done.")).layer(layer).build()?;
/// let answer = agent.ask("Write to ada@example.com").await?;
/// assert_eq!(answer.new_messages()[0].text(), "Write to [e-mail address]");
/// # Ok(())
/// # }
/// ```
pub fn question<Q: Into<Content>>(
    rewrite: impl Fn(&Content) -> Option<Q> + Send + Sync + 'static,
) -> ClosureLayer {
    let judge = Box::new(move |question: &Content, _: &LayerContext<'_>| {
        rewrite(question).map_or(QuestionVerdict::Pass, QuestionVerdict::rewrite).into_verdict()
    });
    ClosureLayer::new("rewrite::question", Closure::Question(judge))
}

/// Rewrites the arguments of calls, as JSON text, before anything judges them. `None` leaves them as they are.
pub fn call(rewrite: impl Fn(&ToolCall) -> Option<String> + Send + Sync + 'static) -> ClosureLayer {
    let rewrite = Box::new(move |call: &ToolCall, _: &LayerContext<'_>| rewrite(call).into_verdict());
    ClosureLayer::new("rewrite::call", Closure::Rewrite(rewrite))
}

/// Rewrites the arguments of the calls of one tool, which are read as `T`: all parameters of the tool.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tool_core::layer::rewrite;
/// use tool_core::schemars::JsonSchema;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, tool, tools};
///
/// #[tool("Reads a file")]
/// fn read(path: String) -> String {
///     path
/// }
///
/// #[derive(Deserialize, Serialize, JsonSchema)]
/// struct Read {
///     path: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("read", r#"{"path": "a.txt"}"#).says("Read.");
/// let home = rewrite::arguments("read", |read: Read| Read { path: format!("/home/{}", read.path) });
/// let agent = Agent::builder(model).tools(tools![read]).layer(home).build()?;
/// let answer = agent.ask("Read it").await?;
/// let execution = &answer.tool_executions()[0];
/// assert_eq!(execution.call().arguments, r#"{"path":"/home/a.txt"}"#);
/// assert_eq!(execution.original_arguments(), r#"{"path": "a.txt"}"#);
/// # Ok(())
/// # }
/// ```
pub fn arguments<T: ToolArguments + serde::Serialize>(
    tool: impl Into<String>,
    rewrite: impl Fn(T) -> T + Send + Sync + 'static,
) -> ClosureLayer {
    let tool: Arc<str> = tool.into().into();
    let concerned = Arc::clone(&tool);
    let rewrite = Box::new(move |call: &ToolCall, _: &LayerContext<'_>| {
        let rewritten = (*call.name == *concerned).then(|| {
            // Arguments that the type refuses must not pass unchanged.
            let arguments = call.arguments_as().map_err(crate::layer::LayerError::from)?;
            serde_json::to_string(&rewrite(arguments)).map_err(crate::layer::LayerError::from)
        });
        rewritten.transpose().into_verdict()
    });
    ClosureLayer::new("rewrite::arguments", Closure::Rewrite(rewrite)).about(tool)
}

/// Rewrites the output of each call that succeeded. The record contains both.
///
/// ```
/// use tool_core::layer::rewrite;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, ToolOutput, tool, tools};
///
/// #[tool("Returns the customer")]
/// fn customer() -> String {
///     "Ada, 4111111111111111".into()
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("customer", "{}").says("Ada.");
/// let redact = rewrite::output(|_, output| ToolOutput::text(output.to_string().replace(char::is_numeric, "*")));
/// let agent = Agent::builder(model).tools(tools![customer]).layer(redact).build()?;
/// let answer = agent.ask("Who is it?").await?;
/// assert_eq!(answer.new_messages()[2].text(), "Ada, ****************");
/// # Ok(())
/// # }
/// ```
pub fn output<O: Into<ToolOutput>>(
    rewrite: impl Fn(&ToolCall, &ToolOutput) -> O + Send + Sync + 'static,
) -> ClosureLayer {
    let judge = Box::new(move |execution: &ToolExecution, _: &LayerContext<'_>| {
        let verdict = match execution.outcome() {
            Ok(output) => OutputVerdict::replace(rewrite(execution.call(), output)),
            Err(_) => OutputVerdict::Pass,
        };
        verdict.into_verdict()
    });
    ClosureLayer::new("rewrite::output", Closure::Output(judge))
}
