//! The trait of all tools.

use std::any::Any;
use std::panic::Location;

use super::context::{Injection, ToolContext};
use super::error::ToolError;
use super::future::ToolFuture;
use crate::model::ToolDefinition;

/// A tool that a language model can call.
///
/// `#[tool]` turns a function into a tool. Implement the trait by hand for anything that a function cannot express.
///
/// # Contract
///
/// - [`definition`](Tool::definition) always returns the same definition. It is sent to the model once per turn, and
///   read once per [`ToolSet`](crate::ToolSet).
/// - [`call`](Tool::call) can run several times concurrently. It receives the arguments as the model wrote them,
///   and must validate them before it acts.
/// - Dropping the future cancels the call.
///
/// # Examples
///
/// ```
/// use tool_core::model::ToolDefinition;
/// use tool_core::tool::ToolFuture;
/// use tool_core::{Tool, ToolContext, ToolOutput};
///
/// struct Dice {
///     definition: ToolDefinition,
/// }
///
/// impl Tool for Dice {
///     fn definition(&self) -> &ToolDefinition {
///         &self.definition
///     }
///
///     fn call<'a>(&'a self, _arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
///         ToolFuture::ready(Ok(ToolOutput::text("4")))
///     }
/// }
///
/// let dice = Dice { definition: ToolDefinition::new("roll").with_description("Rolls a die") };
/// assert_eq!(dice.definition().name(), "roll");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "does not implement `Tool`",
    note = "`#[tool]` functions are passed in a list: `.tools(tools![sum])`, and where one tool is expected, as `sum {{}}`",
    note = "a toolbox is passed to `tools` as a value: `.tools(Calculator::new())`",
    note = "a closure becomes a tool with `FunctionTool::new(\"name\", closure)`, and an agent with `agent.as_tool(\"name\", \"description\")`",
    note = "a definition whose calls the caller executes becomes one with `ExternalTool::new(definition)`"
)]
pub trait Tool: Any + Send + Sync {
    /// Returns the definition that is sent to the model.
    fn definition(&self) -> &ToolDefinition;

    /// Calls the tool with the JSON text that the model wrote. An asynchronous tool returns
    /// `ToolFuture::boxed(async move { … })`.
    ///
    /// # Errors
    ///
    /// The future resolves to a [`ToolError`](crate::ToolError) if the arguments are invalid or the tool fails.
    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a>;

    /// Returns the tool that this one wraps, such as one whose calls it logs. By default, the methods below are then those of the wrapped
    /// tool. A wrapper of an [agent](crate::Agent::as_tool) has to return it: otherwise the run of the agent is not part of the outer one.
    /// Its [`call`](Self::call) is entered twice: until it asks the agent, and again from its start once the agent has answered. So what it holds
    /// around the agent, such as a permit or a time limit, ends with the question. The agent's tools get values of the context of the run,
    /// and not what the wrapper adds to it.
    fn wrapped(&self) -> Option<&dyn Tool> {
        None
    }

    /// Reports that a call that has recorded something will not be continued, so that the tool can end what goes on elsewhere: its run was
    /// stopped while the call [waited](crate::tool::Asker), or its process ended and the call must not be repeated. The context is that of the call, and its [`Asker::once`](crate::tool::Asker::once) returns what
    /// the call has recorded. This must not block: what takes time belongs into a task. By default, nothing happens.
    ///
    /// The driver of the run reports this once the end of the call is stored, and not again if its process dies before.
    fn give_up(&self, context: &ToolContext) {
        if let Some(tool) = self.wrapped() {
            tool.give_up(context);
        }
    }

    /// Checks arguments without calling the tool, for a person who edits the model's. By default, all are accepted, and
    /// [`call`](Self::call) refuses them.
    ///
    /// # Errors
    ///
    /// Returns the error of a call with these arguments if they are invalid.
    fn check_arguments(&self, arguments: &str, context: &ToolContext) -> Result<(), ToolError> {
        self.wrapped().map_or(Ok(()), |tool| tool.check_arguments(arguments, context))
    }

    /// Returns the values that the tool takes from its context, or `None` if they are not known. A run whose context
    /// lacks one of them is refused before a request is sent to the model.
    fn injections(&self) -> Option<&[Injection]> {
        self.wrapped()?.injections()
    }

    /// Returns the location where the tool is declared, if known. Errors about duplicate names include it.
    fn declared_at(&self) -> Option<&'static Location<'static>> {
        self.wrapped()?.declared_at()
    }

    /// Returns the origin of a tool that the program does not declare itself, such as "the MCP server `files`". Errors
    /// about duplicate names include it.
    fn origin(&self) -> Option<&str> {
        self.wrapped()?.origin()
    }
}
