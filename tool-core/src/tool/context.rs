//! What the application hands to its tools, out of the model's sight.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::{ConversationId, ToolCall};

/// Values that the application hands to its tools, one per type; the model never sees them.
///
/// Cloning shares the values.
///
/// ```
/// use tool_core::ToolContext;
///
/// struct UserId(u32);
///
/// let context = ToolContext::new().with(UserId(7));
/// assert_eq!(context.get::<UserId>().map(|user| user.0), Some(7));
/// assert!(context.get::<String>().is_none());
/// ```
#[derive(Clone, Default)]
pub struct ToolContext {
    // Most runs hand over nothing: no allocation then.
    values: Option<Arc<HashMap<TypeId, Entry>>>,
    call: Option<Arc<ToolCall>>,
    // Made when it is first asked for, if nobody gave one.
    conversation: OnceLock<ConversationId>,
    reading: Reading,
}

/// How a set wants the arguments of its tools read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Arguments are taken as they are, and not mended.
    pub(crate) is_strict: bool,
    /// Arguments that the tool does not have are left out, and not refused.
    pub(crate) ignores_unknown: bool,
}

#[derive(Clone)]
struct Entry {
    type_name: &'static str,
    value: Arc<dyn Any + Send + Sync>,
}

impl ToolContext {
    /// A context that holds nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The same context with one more value; it takes the place of an earlier one of its type.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, value: T) -> Self {
        let values = Arc::make_mut(self.values.get_or_insert_default());
        values.insert(TypeId::of::<T>(), Entry { type_name: type_name::<T>(), value: Arc::new(value) });
        self
    }

    /// The value of this type, if there is one. While a tool is called, its [`ToolCall`] and the
    /// [`ConversationId`](crate::ConversationId) are there, and the context itself always is.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        let of_the_call = || (self.call.as_deref()? as &dyn Any).downcast_ref();
        let own = (self as &dyn Any).downcast_ref().or_else(of_the_call);
        let found = own.or_else(|| self.given());
        // Which type it is, is known when the program is compiled.
        if found.is_none() && TypeId::of::<T>() == TypeId::of::<ConversationId>() {
            return (self.conversation.get_or_init(ConversationId::unique) as &dyn Any).downcast_ref();
        }
        found
    }

    /// The value of this type that the application handed over.
    pub(crate) fn given<T: Any>(&self) -> Option<&T> {
        self.values.as_ref()?.get(&TypeId::of::<T>())?.value.downcast_ref()
    }

    /// The call that is made, while it is made.
    #[must_use]
    pub fn call(&self) -> Option<&ToolCall> {
        self.call.as_deref()
    }

    /// This context, as the tool of a call sees it.
    pub(crate) fn of_call(&self, call: &ToolCall, reading: Reading) -> Self {
        let mut context = self.clone();
        context.call = Some(Arc::new(call.clone()));
        context.reading = reading;
        context
    }

    pub(crate) fn reading(&self) -> Reading {
        self.reading
    }

    /// Arguments are read as they are, and not mended.
    pub(crate) fn has_strict_arguments(&self) -> bool {
        self.reading.is_strict
    }

    /// This context, filled with what only `defaults` has.
    pub(crate) fn or(mut self, defaults: &Self) -> Self {
        let Some(more) = &defaults.values else { return self };
        let values = Arc::make_mut(self.values.get_or_insert_default());
        for (id, entry) in more.iter() {
            values.entry(*id).or_insert_with(|| entry.clone());
        }
        self
    }
}

/// Names the types only: values may be secrets.
impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> =
            self.values.iter().flat_map(|map| map.values()).map(|entry| entry.type_name).collect();
        names.sort_unstable();
        f.debug_tuple("ToolContext").field(&names).finish()
    }
}
