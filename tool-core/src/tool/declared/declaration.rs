//! What `#[tool]` says of a function or a method, and how its calls are made.

use std::panic::Location;

use serde_json::Value;

use super::arguments::Arguments;
use super::details::Words;
use crate::arguments::{Parameter, Repair, repair, schemas};
use crate::model::ToolDefinition;
use crate::tool::future::Pending;
use crate::tool::{Injection, ToolContext, ToolFuture};

/// How many parameters need no allocation for their slots.
const FEW: usize = 12;

/// What `#[tool]` says: all of it is in statics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declaration {
    pub(crate) name: ToolName,
    pub(crate) description: Option<&'static str>,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) details: Option<&'static dyn Words>,
}

/// What is known of a tool once its schemas are made.
#[derive(Debug)]
pub(crate) struct Defined {
    pub(crate) definition: ToolDefinition,
    /// The schemas of the parameters' types, if they promise what reading the types does not see to.
    pub(crate) promises: Option<Value>,
}

/// The name of a tool, and where it is declared.
#[derive(Clone, Copy, Debug)]
pub struct ToolName {
    pub(crate) name: &'static str,
    pub(crate) declared_at: &'static Location<'static>,
}

impl ToolName {
    /// A name that is declared where this is called.
    #[track_caller]
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, declared_at: Location::caller() }
    }
}

/// Takes the arguments, calls the function and converts what it returns; `None` if an argument is wrong.
type Call<'c, 'f> = &'c dyn Fn(&mut Arguments<'_, '_>) -> Option<Pending<'f>>;

/// The same, of arguments that are there to be asked for and not to call anything.
pub(crate) type Describe<'c> = &'c dyn Fn(&mut Arguments<'_, '_>);

impl Declaration {
    #[must_use]
    pub(crate) const fn new(
        name: ToolName,
        description: Option<&'static str>,
        parameters: &'static [Parameter],
        details: Option<&'static dyn Words>,
    ) -> Self {
        Self { name, description, parameters, details }
    }

    /// What is known once the schemas are made. `call` is asked for the defaults of its parameters, and calls nothing.
    #[cold]
    pub(crate) fn define(&self, call: Describe<'_>) -> Defined {
        let parameters = schemas::parameters_schema(self.parameters);
        let description = self.description.map(Into::into);
        let definition = ToolDefinition::from_parts(self.name.name.into(), description, parameters);
        let definition = match self.details {
            None => definition,
            Some(details) => details.complete(definition, self, call),
        };
        let promises = self.details.and_then(|details| details.promises(self.parameters));
        Defined { definition, promises }
    }

    pub(crate) fn injections(&self) -> &'static [Injection] {
        self.details.map_or(&[], |details| details.injections())
    }

    /// Calls the function with the arguments in a text.
    pub(crate) fn call<'f>(
        &self,
        text: &str,
        context: &ToolContext,
        promises: Option<&Value>,
        call: Call<'_, 'f>,
    ) -> ToolFuture<'f> {
        let prepared = self.details.and_then(|details| details.prepare(text, self));
        let text = prepared.as_deref().unwrap_or(text);
        if let Some(pending) = call(&mut Arguments::in_order(self, text, promises)) {
            return self.future(pending);
        }
        let refusal = match self.call_with(text, context, promises, call) {
            Ok(future) => return future,
            Err(refusal) if context.has_strict_arguments() => return refusal,
            Err(refusal) => refusal,
        };
        let Some(mended) = repair::repair_text(text) else { return refusal };
        match self.call_with(&mended, context, promises, call) {
            Ok(future) => future.with_repairs(vec![Repair::for_text(text, &mended)]),
            Err(refusal) => refusal,
        }
    }

    /// As [`call`](Self::call), but the text is taken as it is, and the arguments in any order.
    ///
    /// # Errors
    ///
    /// The text is no JSON object: the refusal of the call.
    fn call_with<'f>(
        &self,
        text: &str,
        context: &ToolContext,
        promises: Option<&Value>,
        call: Call<'_, 'f>,
    ) -> Result<ToolFuture<'f>, ToolFuture<'f>> {
        let mut few = [None; FEW];
        let mut many = Vec::new();
        let slots = match few.get_mut(..self.parameters.len()) {
            Some(slots) => slots,
            None => {
                many.resize(self.parameters.len(), None);
                &mut many
            }
        };
        let mut arguments = Arguments::read(self, text, slots, context.reading(), promises);
        let pending = call(&mut arguments);
        let (repairs, is_unreadable) = (arguments.take_repairs(), arguments.is_unreadable());
        match pending {
            Some(pending) => Ok(self.future(pending).with_repairs(repairs)),
            None if is_unreadable => Err(arguments.refuse()),
            None => Ok(arguments.refuse()),
        }
    }

    /// The call with what the declaration puts around it.
    fn future<'f>(&self, pending: Pending<'f>) -> ToolFuture<'f> {
        ToolFuture::from(match self.details {
            Some(details) => details.around(pending),
            None => pending,
        })
    }
}
