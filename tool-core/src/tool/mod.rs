//! One tool: what it says of itself, how it is called, what it gives back.

mod arguments;
mod closure;
mod context;
mod definition;
#[cfg(feature = "dynamic")]
mod dynamic;
mod error;
mod expectation;
mod function;
mod future;
mod handler;
mod inspection;
mod into_output;
mod object;
mod output;
mod repair;

use std::panic::Location;

pub use self::closure::{FunctionTool, ToolArguments};
pub use self::context::ToolContext;
pub use self::definition::{ToolDefinition, ToolDefinitions};
#[cfg(feature = "dynamic")]
pub use self::dynamic::{DynamicTool, DynamicToolError};
pub use self::error::ToolError;
pub(crate) use self::error::nearest;
pub use self::future::ToolFuture;
pub use self::handler::ToolHandler;
pub use self::into_output::{IntoToolOutput, Json};
pub use self::output::ToolOutput;
pub use self::repair::Repair;

/// What generated code may name of this module.
pub(crate) mod private {
    pub use super::arguments::Arguments;
    pub use super::function::{
        FunctionTool, Omittable, OptionalProbe, Parameter, RequiredByDefault, StaticTool, ToolName,
        ToolParameter, left_out,
    };
    pub use super::future::{Pending, later};
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

    /// Where the tool is declared, if that is known: named when two tools of a set clash.
    fn declared_at(&self) -> Option<&'static Location<'static>> {
        None
    }
}
