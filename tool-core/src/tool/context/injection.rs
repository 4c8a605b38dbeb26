//! The values that a tool takes from its context.

use std::any::{Any, TypeId, type_name};
use std::fmt;

use super::injectable::Injectable;
use super::tool_context::ToolContext;
use crate::tool::ToolError;

/// The type of a value that a tool takes from its [`ToolContext`], such as a parameter with `#[inject]`.
///
/// A tool lists its injections in [`Tool::injections`](crate::Tool::injections), so that a run whose context lacks one is
/// refused before a request is sent to the model.
///
/// ```
/// use tool_core::engine::Injection;
/// use tool_core::ToolContext;
///
/// struct UserId(u32);
///
/// let user = Injection::new::<UserId>();
/// assert!(user.is_missing_in(&ToolContext::new()));
/// assert!(!user.is_missing_in(&ToolContext::new().with(UserId(7))));
/// ```
#[derive(Clone, Copy)]
pub struct Injection {
    type_name: fn() -> &'static str,
    is_available: fn(&ToolContext) -> bool,
    is_optional: bool,
}

impl Injection {
    /// Creates the injection of a value of this type that the tool requires.
    #[must_use]
    pub const fn new<T: Any>() -> Self {
        Self { type_name: type_name::<T>, is_available: is_available::<T>, is_optional: false }
    }

    /// Returns this injection as one that the tool does not require.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// Returns this injection as one of a context that never has the value.
    pub(crate) const fn never_available(mut self) -> Self {
        self.is_available = |_| false;
        self
    }

    /// Returns the name of the type with its path.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        (self.type_name)()
    }

    /// Returns `true` if the tool requires the value and the context lacks it.
    #[must_use]
    pub fn is_missing_in(&self, context: &ToolContext) -> bool {
        !self.is_optional && !(self.is_available)(context)
    }
}

fn is_available<T: Any>(context: &ToolContext) -> bool {
    ToolContext::is_built_in(TypeId::of::<T>()) || context.get::<T>().is_some()
}

impl fmt::Debug for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Injection({}{})", self.type_name(), if self.is_optional { ", optional" } else { "" })
    }
}

/// Returns the value of this type, if the context contains one.
pub fn look_up<T: Injectable>(context: &ToolContext) -> Option<&T> {
    context.get()
}

/// Creates the error of a call whose context lacks a value of this type.
#[must_use]
pub fn missing_context<T: Injectable>() -> ToolError {
    ToolError::missing_context(type_name::<T>())
}
