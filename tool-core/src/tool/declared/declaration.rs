//! The declaration of a tool by `#[tool]`, and how its calls are executed.

use std::panic::Location;

use super::arguments::Arguments;
use super::details::Details;
use crate::arguments::{Contract, Parameter, Repair, repair_text, schemas};
use crate::model::ToolDefinition;
use crate::schema::{SchemaOf, Shape};
use crate::tool::future::Pending;
use crate::tool::{Injection, ToolContext, ToolFuture};

/// The declaration of a function or method by `#[tool]`. All of it is in statics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declaration {
    pub(crate) name: ToolName,
    pub(crate) description: Option<&'static str>,
    pub(crate) parameters: &'static [Parameter],
    pub(crate) details: Option<&'static Details>,
}

/// The definition of a tool, created from its schemas.
#[derive(Debug)]
pub(crate) struct Defined {
    pub(crate) definition: ToolDefinition,
    pub(crate) contract: Contract,
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
        details: Option<&'static Details>,
    ) -> Self {
        Self { name, description, parameters, details }
    }

    /// Creates the definition. `call` only provides the defaults of the parameters.
    #[cold]
    pub(crate) fn define(&self, call: Describe<'_>) -> Defined {
        let description = self.description.map(Into::into);
        let parameters = schemas::parameters_schema(self.parameters);
        let definition = ToolDefinition::from_parts(self.name.name.into(), description, parameters);
        let definition = match self.details {
            None => definition,
            Some(details) => details.complete(definition, self, call),
        };
        Defined { definition, contract: self.contract() }
    }

    fn contract(&self) -> Contract {
        let (parameters, details) = (self.parameters, self.details);
        let contract = Contract::new(&schemas::exact_parameters_schema(parameters), move || {
            let mut shape = Shape::parse(&schemas::exact_parameters_schema(parameters), SchemaOf::Type);
            for (index, parameter) in parameters.iter().enumerate() {
                let Some(details) = details.filter(|details| details.limits(index).next().is_some()) else {
                    continue;
                };
                shape.change_property(parameter.name, |node| {
                    let is_integer = node.names_type("integer");
                    details.limits(index).for_each(|limit| limit.restrict(&mut node.limits, is_integer));
                });
            }
            shape
        });
        if details.is_some_and(Details::has_limits) { contract.with_limits() } else { contract }
    }

    pub(crate) fn injections(&self) -> &'static [Injection] {
        self.details.map_or(&[], |details| details.injections)
    }

    /// Calls the function with the arguments from a text.
    pub(crate) fn call<'f>(
        &self,
        text: &str,
        context: &ToolContext,
        defined: &Defined,
        call: Call<'_, 'f>,
    ) -> ToolFuture<'f> {
        let contract = &defined.contract;
        if !contract.has_nested_duplicates(text)
            && let Some(pending) = call(&mut Arguments::in_order(self, contract, text))
        {
            return self.future(pending);
        }
        let refusal = match self.call_unordered(text, context, contract, call) {
            Ok(future) => return future,
            Err(refusal) if context.read_mode().forbids_repair => return refusal,
            Err(refusal) => refusal,
        };
        let Some(repaired) = repair_text(text) else { return refusal };
        match self.call_unordered(&repaired, context, contract, call) {
            Ok(future) => future.with_repairs(vec![Repair::for_text(text, &repaired)]),
            Err(refusal) => refusal,
        }
    }

    /// Calls the function with arguments in any order, without repairing the text.
    /// Returns the refusal of the call if the text is not a JSON object.
    #[cold]
    fn call_unordered<'f>(
        &self,
        text: &str,
        context: &ToolContext,
        contract: &Contract,
        call: Call<'_, 'f>,
    ) -> Result<ToolFuture<'f>, ToolFuture<'f>> {
        let mut slots = vec![None; self.parameters.len()];
        let mut arguments = Arguments::read(self, contract, text, &mut slots, context.read_mode());
        let pending = call(&mut arguments);
        let (repairs, is_unreadable) = (arguments.take_repairs(), arguments.is_unreadable());
        match pending {
            Some(pending) => Ok(self.future(pending).with_repairs(repairs)),
            None if is_unreadable => Err(self.future(arguments.refuse())),
            None => Ok(self.future(arguments.refuse())),
        }
    }

    /// Applies the timeout and the output limit of the declaration to a call, or to its refusal.
    fn future<'f>(&self, pending: Pending<'f>) -> ToolFuture<'f> {
        ToolFuture::from(match self.details {
            Some(details) => details.limit(pending),
            None => pending,
        })
    }
}
