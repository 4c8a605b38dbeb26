//! What a tool takes from its context.

use std::any::{Any, TypeId, type_name};
use std::fmt;

use crate::tool::ToolContext;

/// One value that a tool takes from its [`ToolContext`], by type: a parameter with `#[inject]`.
///
/// A tool tells what it takes with [`Tool::injections`](crate::Tool::injections), so that a run which lacks
/// something is refused before the model is asked.
///
/// ```
/// use tool_core::tool::Injection;
/// use tool_core::ToolContext;
///
/// struct UserId(u32);
///
/// let user = Injection::of::<UserId>();
/// assert!(user.is_missing_in(&ToolContext::new()));
/// assert!(!user.is_missing_in(&ToolContext::new().with(UserId(7))));
/// ```
#[derive(Clone, Copy)]
pub struct Injection {
    type_name: fn() -> &'static str,
    is_in: fn(&ToolContext) -> bool,
    is_optional: bool,
}

impl Injection {
    /// A value of this type, without which the tool cannot be called.
    #[must_use]
    pub const fn of<T: Any>() -> Self {
        Self { type_name: type_name::<T>, is_in: is_in::<T>, is_optional: false }
    }

    /// The same value, which need not be there.
    #[must_use]
    pub const fn optional(mut self) -> Self {
        self.is_optional = true;
        self
    }

    /// The name of the type, with its path.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        (self.type_name)()
    }

    /// The tool needs the value, and the context does not have it.
    #[must_use]
    pub fn is_missing_in(&self, context: &ToolContext) -> bool {
        !self.is_optional && !(self.is_in)(context)
    }
}

fn is_in<T: Any>(context: &ToolContext) -> bool {
    ToolContext::is_of_every_call(TypeId::of::<T>()) || context.get::<T>().is_some()
}

impl fmt::Debug for Injection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Injection({}{})", self.type_name(), if self.is_optional { ", optional" } else { "" })
    }
}
