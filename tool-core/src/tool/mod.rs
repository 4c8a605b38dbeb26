//! One tool: its definition, its context, its outcome, and how a call of it is executed.

mod call_arguments;
mod closure;
mod context;
pub(crate) mod declared;
#[cfg(feature = "dynamic")]
mod dynamic;
mod error;
mod execution;
pub(crate) mod future;
mod message;
pub(crate) mod object;
mod output;
mod strict;
pub(crate) mod timing;

use std::panic::Location;

pub use self::closure::{FunctionTool, ToolArguments, ToolHandler};
pub use self::context::{Attempt, IdempotencyKey, Injection, Progress, ToolContext, ToolProgress, Undone};
pub(crate) use self::context::{AttemptContext, ProgressSink, Reading};
#[cfg(feature = "dynamic")]
pub use self::dynamic::{DynamicTool, DynamicToolError};
pub use self::error::{ToolError, ToolErrorKind};
pub(crate) use self::execution::Notes;
pub use self::execution::ToolExecution;
pub use self::future::ToolFuture;
pub(crate) use self::output::{Budget, write_outcome};
pub use self::output::{IntoToolOutput, Json, ToolOutput};
pub(crate) use self::strict::StrictTool;
use crate::model::ToolDefinition;

/// The items of this module that generated code names.
pub(crate) mod private {
    pub use super::context::{Injectable, InjectableByValue, for_call, lacks, look_up};
    pub use super::declared::{
        Arguments, DeclaredTool, Details, ParameterDetails, StaticTool, Taken, ToolName,
    };
    pub use super::future::{Pending, blocking, later};
    pub use super::output::{PlainKind, Returned, ToolFailure, ToolReturn};
}

/// Something that a language model can call.
///
/// `#[tool]` makes one of a function; implement the trait by hand for what a function cannot say.
///
/// # Contract
///
/// - [`definition`](Tool::definition) gives the same definition each time: it is sent to the model once
///   per turn, and read once per [`ToolSet`](crate::ToolSet).
/// - [`call`](Tool::call) may run several times at once. It gets the arguments as the model wrote them,
///   so it checks them before it acts.
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
/// let dice = Dice { definition: ToolDefinition::new("roll", "Rolls a die") };
/// assert_eq!(dice.definition().name(), "roll");
/// ```
pub trait Tool: Send + Sync {
    /// What the model is told of the tool.
    fn definition(&self) -> &ToolDefinition;

    /// Calls the tool with the JSON text that the model wrote.
    ///
    /// # Errors
    ///
    /// The future gives a [`ToolError`] when the arguments are wrong or the tool fails.
    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a>;

    /// What the tool takes from the context; `None` if it does not say. A run that lacks something is
    /// refused before the model is asked.
    fn injections(&self) -> Option<&[Injection]> {
        None
    }

    /// Where the tool is declared, if that is known: named when two tools of a set clash.
    fn declared_at(&self) -> Option<&'static Location<'static>> {
        None
    }

    /// Where the tool comes from if it is none of the program's own, in words such as "the MCP server `files`": named
    /// when two tools of a set clash.
    fn origin(&self) -> Option<&str> {
        None
    }
}
