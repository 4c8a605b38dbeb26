//! The tool that `#[tool]` makes of a free function.

use std::panic::Location;
use std::sync::OnceLock;

use super::arguments::Arguments;
use super::declaration::{Declaration, Defined, ToolName};
use super::details::{Details, words};
use crate::arguments::Parameter;
use crate::model::ToolDefinition;
use crate::tool::future::Pending;
use crate::tool::{Injection, Tool, ToolContext, ToolFuture};

/// Takes the arguments, calls the function and converts what it returns; `None` if an argument is wrong.
///
/// This is all the code that there is per tool, so everything that can be done outside of it is.
type Call = for<'a> fn(&mut Arguments<'_, '_>, &'a ToolContext) -> Option<Pending<'a>>;

/// A tool that is a function: all of it is in statics, and its definition is made when it is first asked for.
#[derive(Debug)]
pub struct DeclaredTool {
    declaration: Declaration,
    call: Call,
    // Boxed, as it would take room in the program for every tool otherwise.
    defined: OnceLock<Box<Defined>>,
}

impl DeclaredTool {
    /// All that there is to a tool, put into one static.
    #[must_use]
    pub const fn new(
        name: ToolName,
        description: Option<&'static str>,
        parameters: &'static [Parameter],
        details: Option<&'static Details>,
        call: Call,
    ) -> Self {
        let declaration = Declaration::new(name, description, parameters, words(details));
        Self { declaration, call, defined: OnceLock::new() }
    }
}

impl DeclaredTool {
    fn defined(&self) -> &Defined {
        self.defined.get_or_init(|| {
            let nothing = ToolContext::new();
            Box::new(self.declaration.define(&|arguments| drop((self.call)(arguments, &nothing))))
        })
    }
}

impl Tool for DeclaredTool {
    fn definition(&self) -> &ToolDefinition {
        &self.defined().definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let promises = self.defined().promises.as_ref();
        self.declaration.call(arguments, context, promises, &|arguments| (self.call)(arguments, context))
    }

    fn injections(&self) -> Option<&[Injection]> {
        Some(self.declaration.injections())
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        Some(self.declaration.name.declared_at)
    }
}

/// The type `sum` that stands beside the function `sum`: through it `tools![sum]` finds the tool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "not a function with `#[tool]`",
    note = "write `#[tool]` above the function, and import it from the module that declares it"
)]
pub trait StaticTool {
    /// What tells two tools apart.
    const NAME: ToolName;

    /// The tool itself.
    fn tool() -> &'static DeclaredTool;
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
