//! What `#[tool]` makes of a function: a table of its parameters and one function pointer.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::OnceLock;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;

use super::arguments::Arguments;
use super::future::Pending;
use super::repair::{self, Repair};
use crate::{Injection, Tool, ToolContext, ToolDefinition, ToolFuture, schema};

/// Takes the arguments, calls the function and converts what it returns; `None` if an argument is wrong.
///
/// This is all the code that there is per tool, so everything that can be done outside of it is.
type Call = for<'a> fn(&mut Arguments<'_, '_>, &'a ToolContext) -> Option<Pending<'a>>;

/// How many parameters need no allocation for their slots.
const FEW: usize = 12;

/// A tool that is a function: all of it is in statics, and its definition is made when it is first asked for.
#[derive(Debug)]
pub struct FunctionTool {
    name: ToolName,
    description: Option<&'static str>,
    parameters: &'static [Parameter],
    call: Call,
    // Boxed, as it would take room in the program for every tool otherwise.
    definition: OnceLock<Box<ToolDefinition>>,
}

impl FunctionTool {
    /// All that there is to a tool, put into one static.
    #[must_use]
    pub const fn new(
        name: ToolName,
        description: Option<&'static str>,
        parameters: &'static [Parameter],
        call: Call,
    ) -> Self {
        Self { name, description, parameters, call, definition: OnceLock::new() }
    }

    /// Calls the function with the arguments in a text.
    ///
    /// # Errors
    ///
    /// The text is no JSON object: the refusal of the call.
    fn call_with<'a>(
        &'a self,
        text: &str,
        context: &'a ToolContext,
    ) -> Result<ToolFuture<'a>, ToolFuture<'a>> {
        let mut few = [None; FEW];
        let mut many = Vec::new();
        let slots = match few.get_mut(..self.parameters.len()) {
            Some(slots) => slots,
            None => {
                many.resize(self.parameters.len(), None);
                &mut many
            }
        };
        let mut arguments = Arguments::read(self.parameters, text, slots, context.has_strict_arguments());
        let pending = (self.call)(&mut arguments, context);
        let (repairs, is_unreadable) = (arguments.take_repairs(), arguments.is_unreadable());
        match pending {
            Some(pending) => Ok(ToolFuture::from(pending).with_repairs(repairs)),
            None if is_unreadable => Err(arguments.refuse()),
            None => Ok(arguments.refuse()),
        }
    }
}

impl Tool for FunctionTool {
    fn definition(&self) -> &ToolDefinition {
        self.definition.get_or_init(|| {
            let parameters = schema::of_parameters(self.parameters);
            let description = self.description.map(Into::into);
            Box::new(ToolDefinition::from_parts(self.name.name.into(), description, parameters))
        })
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let refusal = match self.call_with(arguments, context) {
            Ok(future) => return future,
            Err(refusal) if context.has_strict_arguments() => return refusal,
            Err(refusal) => refusal,
        };
        let Some(mended) = repair::mend_text(arguments) else { return refusal };
        match self.call_with(&mended, context) {
            Ok(future) => future.with_repairs(vec![Repair::of_text(arguments, &mended)]),
            Err(refusal) => refusal,
        }
    }

    fn injections(&self) -> Option<&[Injection]> {
        Some(&[])
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        Some(self.name.declared_at)
    }
}

/// One declared parameter.
#[derive(Debug)]
pub struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) description: Option<&'static str>,
    pub(crate) is_required: bool,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Parameter {
    /// A parameter of this type.
    #[must_use]
    pub const fn new<T: ToolParameter>(
        name: &'static str,
        description: Option<&'static str>,
        is_required: bool,
    ) -> Self {
        Self { name, description, is_required, schema: SchemaGenerator::subschema_for::<T> }
    }
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

/// The type `sum` that stands beside the function `sum`: through it `tools![sum]` finds the tool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "not a function with `#[tool]`",
    note = "write `#[tool]` above the function, and import the function from where it is declared"
)]
pub trait StaticTool {
    /// What tells two tools apart.
    const NAME: ToolName;

    /// The tool itself.
    fn tool() -> &'static FunctionTool;
}

impl<T: StaticTool + Send + Sync> Tool for T {
    fn definition(&self) -> &ToolDefinition {
        T::tool().definition()
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        T::tool().call(arguments, context)
    }

    fn injections(&self) -> Option<&[Injection]> {
        T::tool().injections()
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        T::tool().declared_at()
    }
}

/// What a parameter's type must be able to do.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a tool",
    label = "needs `serde::Deserialize` and `schemars::JsonSchema`",
    note = "above a type of your own, write `#[derive(serde::Deserialize, schemars::JsonSchema)]`",
    note = "of any other type, take what it can be made of, such as a `String`"
)]
pub trait ToolParameter: DeserializeOwned + JsonSchema + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + 'static> ToolParameter for T {}

/// What a parameter's type must be if the parameter may be left out.
#[diagnostic::on_unimplemented(
    message = "a parameter of type `{Self}` cannot be left out",
    label = "with `required = false`, write `Option<{Self}>`"
)]
pub trait Omittable {}

#[diagnostic::do_not_recommend]
impl<T> Omittable for Option<T> {}

/// What `required = false` says of a parameter that may be left out: that it is not required.
#[must_use]
pub const fn left_out<T: Omittable>() -> bool {
    false
}

/// Tells by type, not by name, whether a parameter is an `Option`: the inherent constant wins over the trait's.
///
/// It is looked up where the user's own traits are in scope, so its name is one that no trait has.
#[derive(Debug)]
pub struct OptionalProbe<T: ?Sized>(PhantomData<T>);

impl<T> OptionalProbe<Option<T>> {
    /// An `Option` may be left out.
    pub const __TOOL_CORE_IS_REQUIRED: bool = false;
}

/// What holds for all types that are no `Option`.
pub trait RequiredByDefault {
    /// Any other type must be given.
    const __TOOL_CORE_IS_REQUIRED: bool = true;
}

impl<T: ?Sized> RequiredByDefault for OptionalProbe<T> {}
