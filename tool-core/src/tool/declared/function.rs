//! The tools that `#[tool]` declares for free functions.

use std::panic::Location;
use std::sync::OnceLock;

use super::arguments::Arguments;
use super::declaration::{Declaration, Defined, ToolName};
use super::details::Details;
use crate::arguments::Parameter;
use crate::model::ToolDefinition;
use crate::tool::future::Pending;
use crate::tool::{Injection, Tool, ToolContext, ToolError, ToolFuture};

/// Takes the arguments, calls the function and converts its output. Returns `None` if an argument is invalid.
///
/// This is the only code that exists per tool, so everything that can be done elsewhere is.
type Call = for<'a> fn(&mut Arguments<'_, '_>, &'a ToolContext) -> Option<Pending<'a>>;

/// The declaration of a tool, with its function.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    declaration: Declaration,
    call: Call,
}

impl Declared {
    /// Creates the declaration.
    #[must_use]
    pub const fn new(
        name: ToolName,
        description: Option<&'static str>,
        parameters: &'static [Parameter],
        details: Option<&'static Details>,
        call: Call,
    ) -> Self {
        Self { declaration: Declaration::new(name, description, parameters, details), call }
    }
}

/// A tool declared as a static. Its definition is created on first use.
#[derive(Debug)]
pub struct DeclaredTool {
    declaration: Declaration,
    call: Call,
    // Boxed, so that the static of each tool stays small.
    defined: OnceLock<Box<Defined>>,
}

impl DeclaredTool {
    /// Creates the tool, in a static.
    #[must_use]
    pub const fn new<T: StaticTool>() -> Self {
        match T::DECLARED {
            Some(Declared { declaration, call }) => Self { declaration, call, defined: OnceLock::new() },
            None => panic!("a tool with mistakes is no static"),
        }
    }

    fn defined(&self) -> &Defined {
        self.defined.get_or_init(|| {
            let context = ToolContext::new();
            Box::new(self.declaration.define(&|arguments| drop((self.call)(arguments, &context))))
        })
    }
}

impl Tool for DeclaredTool {
    fn definition(&self) -> &ToolDefinition {
        &self.defined().definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        self.declaration
            .call(arguments, context, self.defined(), &|arguments| (self.call)(arguments, context))
    }

    fn check_arguments(&self, arguments: &str, context: &ToolContext) -> Result<(), ToolError> {
        let check = |arguments: &mut Arguments<'_, '_>| drop((self.call)(arguments, context));
        self.declaration.check(arguments, context, self.defined(), &check)
    }

    fn injections(&self) -> Option<&[Injection]> {
        Some(self.declaration.injections())
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        Some(self.declaration.name.declared_at)
    }
}

/// The type `sum` declared beside the function `sum`, through which `tools![sum]` finds the tool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tool",
    label = "not the tool of a `#[tool]` function",
    note = "`#[tool]` functions are passed in a list: `.tools(tools![sum])`, and the tool of one is `sum {{}}`; write `#[tool]` above the function, and import it from the module that declares it",
    note = "a toolbox is passed as a value, without `tools!`: `.tools(Calculator::new())`"
)]
pub trait StaticTool {
    /// The name of the tool and the location of its declaration.
    const NAME: ToolName;

    /// The declaration. One constant names all types of the parameters, so that rustc reports an unmet bound only once. `None` for a tool with
    /// mistakes.
    const DECLARED: Option<Declared>;

    /// The entry of a `tools!` list. It is a constant of this trait, and not an argument of a generic function, because rustc
    /// then says of a function without `#[tool]` that it is no type.
    const LISTED: Listed = Listed { name: Self::NAME, tool: Self::tool };

    /// What `call!` checks its pattern with.
    const SIGNATURE: Signature = Signature {
        name: Self::NAME.name,
        parameters: match Self::DECLARED {
            Some(declared) => Some(declared.declaration.parameters),
            None => None,
        },
    };

    /// Returns the tool.
    fn tool() -> &'static DeclaredTool;
}

/// One entry of a `tools!` list.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    pub(crate) name: ToolName,
    pub(crate) tool: fn() -> &'static DeclaredTool,
}

/// The name and the parameters of a tool.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    pub(crate) name: &'static str,
    /// `None` for a tool with mistakes.
    pub(crate) parameters: Option<&'static [Parameter]>,
}

#[diagnostic::do_not_recommend]
impl<T: StaticTool + Send + Sync + 'static> Tool for T {
    fn definition(&self) -> &ToolDefinition {
        T::tool().definition()
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        T::tool().call(arguments, context)
    }

    fn wrapped(&self) -> Option<&dyn Tool> {
        Some(T::tool())
    }
}
