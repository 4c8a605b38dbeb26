//! The declaration of a tool by `#[tool]`, and how its calls are executed.

use std::panic::Location;

use serde_json::Value;

use super::arguments::Arguments;
use super::details::DynDetails;
use crate::arguments::{
    Parameter, Repair, accepts_duplicates, duplicate_members, repair, schema_limits, schemas,
};
use crate::model::ToolDefinition;
use crate::tool::future::Pending;
use crate::tool::{Injection, ToolContext, ToolFuture};

/// The maximum number of parameters whose slots are on the stack.
const MAX_STACK_SLOTS: usize = 12;

/// The declaration of a function or method by `#[tool]`. All of it is in statics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declaration {
    pub(crate) name: ToolName,
    pub(crate) description: Option<&'static str>,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) details: Option<&'static dyn DynDetails>,
}

/// The definition of a tool, created from its schemas.
#[derive(Debug)]
pub(crate) struct Defined {
    pub(crate) definition: ToolDefinition,
    /// The schemas of the parameters' types, if they contain limits that deserializing the types does not enforce.
    pub(crate) type_limits: Option<Value>,
    /// The types of the parameters do not refuse all duplicate members by themselves.
    accepts_duplicates: bool,
}

/// The name of a tool and the location of its declaration.
#[derive(Clone, Copy, Debug)]
pub struct ToolName {
    pub(crate) name: &'static str,
    pub(crate) declared_at: &'static Location<'static>,
}

impl ToolName {
    /// Creates a name whose location is that of the caller.
    #[track_caller]
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, declared_at: Location::caller() }
    }
}

/// Takes the arguments, calls the function and converts its output. Returns `None` if an argument is invalid.
type Call<'c, 'f> = &'c dyn Fn(&mut Arguments<'_, '_>) -> Option<Pending<'f>>;

/// Takes arguments that only collect the defaults of the parameters, so that the function is never called.
pub(crate) type Describe<'c> = &'c dyn Fn(&mut Arguments<'_, '_>);

impl Declaration {
    #[must_use]
    pub(crate) const fn new(
        name: ToolName,
        description: Option<&'static str>,
        parameters: &'static [Parameter],
        details: Option<&'static dyn DynDetails>,
    ) -> Self {
        Self { name, description, parameters, details }
    }

    /// Creates the definition. `call` only provides the defaults of the parameters.
    #[cold]
    pub(crate) fn define(&self, call: Describe<'_>) -> Defined {
        let parameters = schemas::parameters_schema(self.parameters);
        let accepts_duplicates = accepts_duplicates(&parameters);
        let description = self.description.map(Into::into);
        let definition = ToolDefinition::from_parts(self.name.name.into(), description, parameters);
        let definition = match self.details {
            None => definition,
            Some(details) => details.complete(definition, self, call),
        };
        let type_limits = schema_limits::limited_schema(self.parameters);
        Defined { definition, type_limits, accepts_duplicates }
    }

    pub(crate) fn injections(&self) -> &'static [Injection] {
        self.details.map_or(&[], |details| details.injections())
    }

    /// Calls the function with the arguments from a text.
    pub(crate) fn call<'f>(
        &self,
        text: &str,
        context: &ToolContext,
        defined: &Defined,
        call: Call<'_, 'f>,
    ) -> ToolFuture<'f> {
        let type_limits = defined.type_limits.as_ref();
        let prepared = self.details.and_then(|details| details.prepare(text, self));
        let text = prepared.as_deref().unwrap_or(text);
        // Of a single object, the members are those of the arguments, which are in order only if each is given once.
        let may_have_duplicates = defined.accepts_duplicates && text.matches('{').nth(1).is_some();
        if (!may_have_duplicates || duplicate_members(text).is_empty())
            && let Some(pending) = call(&mut Arguments::in_order(self, text, type_limits))
        {
            return self.future(pending);
        }
        let refusal = match self.call_unordered(text, context, type_limits, call) {
            Ok(future) => return future,
            Err(refusal) if context.has_strict_arguments() => return refusal,
            Err(refusal) => refusal,
        };
        let Some(repaired) = repair::repair_text(text) else { return refusal };
        match self.call_unordered(&repaired, context, type_limits, call) {
            Ok(future) => future.with_repairs(vec![Repair::for_text(text, &repaired)]),
            Err(refusal) => refusal,
        }
    }

    /// Calls the function with arguments in any order, without repairing the text.
    ///
    /// # Errors
    ///
    /// Returns the refusal of the call if the text is not a JSON object.
    fn call_unordered<'f>(
        &self,
        text: &str,
        context: &ToolContext,
        type_limits: Option<&Value>,
        call: Call<'_, 'f>,
    ) -> Result<ToolFuture<'f>, ToolFuture<'f>> {
        let mut few = [None; MAX_STACK_SLOTS];
        let mut many = Vec::new();
        let slots = match few.get_mut(..self.parameters.len()) {
            Some(slots) => slots,
            None => {
                many.resize(self.parameters.len(), None);
                &mut many
            }
        };
        let mut arguments = Arguments::read(self, text, slots, context.read_mode(), type_limits);
        let pending = call(&mut arguments);
        let (repairs, is_unreadable) = (arguments.take_repairs(), arguments.is_unreadable());
        match pending {
            Some(pending) => Ok(self.future(pending).with_repairs(repairs)),
            None if is_unreadable => Err(arguments.refuse()),
            None => Ok(arguments.refuse()),
        }
    }

    /// Applies the timeout and the output limit of the declaration to a call.
    fn future<'f>(&self, pending: Pending<'f>) -> ToolFuture<'f> {
        ToolFuture::from(match self.details {
            Some(details) => details.limit(pending),
            None => pending,
        })
    }
}
