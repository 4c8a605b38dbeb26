//! One tool: what it says of itself, how it is called, what it gives back.

mod absent;
mod arguments;
mod budget;
mod call_arguments;
mod closure;
pub(crate) mod context;
mod declaration;
mod definition;
#[allow(missing_docs, reason = "for generated code only")]
mod details;
#[cfg(feature = "dynamic")]
mod dynamic;
mod error;
pub(crate) mod expectation;
mod function;
mod future;
mod handler;
mod in_order;
mod injection;
mod inspection;
mod into_output;
#[allow(missing_docs, reason = "for generated code only")]
mod limits;
mod members;
mod object;
mod output;
mod parameter;
mod progress;
mod promises;
pub(crate) mod repair;
mod strict;
mod taken;
mod toolbox;
mod value;

use std::panic::Location;

pub(crate) use self::budget::Budget;
pub use self::closure::{FunctionTool, ToolArguments};
pub(crate) use self::context::AttemptContext;
pub use self::context::ToolContext;
pub use self::definition::{ReturnDirect, ToolDefinition, ToolDefinitions, ToolPolicy};
#[cfg(feature = "dynamic")]
pub use self::dynamic::{DynamicTool, DynamicToolError};
pub(crate) use self::error::nearest;
pub use self::error::{ToolError, ToolErrorKind};
pub use self::future::ToolFuture;
pub use self::handler::ToolHandler;
pub use self::injection::Injection;
pub use self::into_output::{IntoToolOutput, Json};
pub(crate) use self::members::Members;
pub use self::output::ToolOutput;
pub(crate) use self::output::write_outcome;
pub(crate) use self::progress::ProgressSink;
pub use self::progress::{Progress, ToolProgress};
pub use self::repair::Repair;
pub use self::strict::StrictError;
pub(crate) use self::strict::StrictTool;
pub use self::toolbox::Toolbox;

/// What generated code may name of this module.
pub(crate) mod private {
    pub use super::arguments::Arguments;
    pub use super::declaration::ToolName;
    pub use super::details::{Details, ParameterDetails};
    pub use super::function::{DeclaredTool, StaticTool};
    pub use super::future::{Pending, blocking, later};
    pub use super::limits::{
        Bound, Bounds, Length, Measured, Pattern, PatternCell, Range, Ranged, Textual, compiled,
    };
    pub use super::output::{PlainKind, Returned, ToolFailure};
    pub use super::parameter::{
        FromText, Injectable, InjectableByValue, NotShown, Omittable, OptionalProbe, Parameter,
        RequiredByDefault, Shown, ToolParameter, example, for_call, lacks, left_out, look_up,
    };
    pub use super::taken::Taken;
    pub use super::toolbox::{Method, tool_set_of};
    pub use super::value::ToolReturn;
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
/// use tool_core::{Tool, ToolContext, ToolDefinition, ToolFuture, ToolOutput};
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
