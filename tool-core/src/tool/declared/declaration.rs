//! The declaration of a tool by `#[tool]`, and how its calls are executed.

use std::panic::{AssertUnwindSafe, Location, catch_unwind};

use super::arguments::Arguments;
use super::details::Details;
use crate::arguments::{Contract, Decoder, Parameter, decode, schemas};
use crate::model::ToolDefinition;
use crate::schema::{SchemaOf, Shape};
use crate::tool::future::Pending;
use crate::tool::{Injection, ToolContext, ToolError, ToolFuture};

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
    /// Creates a name that is located at the caller.
    #[track_caller]
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, declared_at: Location::caller() }
    }
}

/// Takes the arguments, calls the function and converts its output. Returns `None` if an argument is invalid.
type Call<'c, 'f> = &'c dyn Fn(&mut Arguments<'_, '_>) -> Option<Pending<'f>>;

/// Takes arguments that only collect the defaults of the parameters, so that the function is never called.
type Describe<'c> = &'c dyn Fn(&mut Arguments<'_, '_>);

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
            Some(details) => {
                let mut arguments = Arguments::describing();
                // A default that panics is omitted from the schema. It fails only the calls that need it.
                let _ = catch_unwind(AssertUnwindSafe(|| call(&mut arguments)));
                details.complete(definition, self.parameters, &arguments.into_defaults())
            }
        };
        Defined { definition, contract: self.contract() }
    }

    fn contract(&self) -> Contract {
        let (parameters, details) = (self.parameters, self.details);
        let schema = move || {
            let mut schema = schemas::exact_parameters_schema(parameters);
            if let Some(details) = details {
                details.describe_limits(parameters, &mut schema);
            }
            schema
        };
        Contract::of_parameters(parameters, &schema(), move || Shape::parse(&schema(), SchemaOf::Type))
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
        let (mut pending, mut missing) = (None, None);
        let decoded = decode(text, &defined.contract, context.read_mode(), &mut |decoder| {
            let mut arguments = Arguments::new(decoder);
            pending = call(&mut arguments);
            missing = arguments.missing_context;
        });
        match (decoded, pending) {
            (Ok(repairs), Some(pending)) => self.future(pending, context).with_repairs(repairs),
            (Ok(_), None) => {
                let error = ToolError::missing_context(missing.unwrap_or("a value"));
                self.future(Pending::ready(Err(error)), context)
            }
            (Err(errors), _) => self.future(Pending::ready(Err(errors.into())), context),
        }
    }

    /// Checks the arguments from a text. `call` only takes them, and does not call the function.
    pub(crate) fn check(
        &self,
        text: &str,
        context: &ToolContext,
        defined: &Defined,
        call: Describe<'_>,
    ) -> Result<(), ToolError> {
        let take = &mut |decoder: &mut Decoder<'_>| call(&mut Arguments::checking(decoder));
        decode(text, &defined.contract, context.read_mode(), take)?;
        Ok(())
    }

    /// Applies the timeout and the output limit of the declaration to a call, or to its refusal.
    fn future<'f>(&self, pending: Pending<'f>, context: &ToolContext) -> ToolFuture<'f> {
        ToolFuture::from(match self.details {
            Some(details) => details.limit(pending, context),
            None => pending,
        })
    }
}
