//! Methods as tools: `#[toolbox]` on an `impl` block.

use std::any::TypeId;
use std::collections::HashMap;
use std::panic::Location;
use std::sync::{Arc, Mutex, PoisonError};

use crate::arguments::Parameter;
use crate::model::{ToolDefinition, ToolDefinitions};
use crate::tool::declared::{Arguments, Declaration, Defined, Details, ToolName};
use crate::tool::future::Pending;
use crate::tool::{Injection, Tool, ToolContext, ToolError, ToolFuture};
use crate::toolset::ToolSet;

/// A type whose methods are tools, with `#[toolbox]` on its `impl` block and `#[tool]` on each of these methods.
///
/// All tools of a toolbox share one value, so its methods take `&self`, `self: Arc<Self>` or no receiver.
///
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// use tool_core::{ToolSet, toolbox};
///
/// struct Counter(AtomicU32);
///
/// #[toolbox]
/// impl Counter {
///     /// Adds to the counter and returns its new value.
///     #[tool]
///     fn count(&self, by: u32) -> u32 {
///         self.0.fetch_add(by, Ordering::Relaxed) + by
///     }
/// }
///
/// let set = ToolSet::from(Counter(AtomicU32::new(0)));
/// assert!(set.get("count").is_some());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a set of tools nor a toolbox",
    label = "not a `ToolSet` and not a toolbox",
    note = "`#[tool]` functions are passed in a list: `tools![sum, square_root]`; another tool is added to a set with `ToolSet::default().with(tool)?`",
    note = "a toolbox has `#[toolbox]` above an `impl` block and `#[tool]` above its methods, and is passed by value or in an `Arc`"
)]
pub trait Toolbox: Sized + Send + Sync + 'static {
    /// Returns the methods that are tools.
    #[doc(hidden)]
    fn methods() -> &'static [Method<Self>];

    /// Returns the definitions of the tools without a value of the type, for example to send them to a model or to review them.
    ///
    /// ```
    /// use tool_core::toolbox;
    /// use tool_core::toolset::Toolbox;
    ///
    /// struct Database {
    ///     # #[expect(dead_code)]
    ///     connection: std::net::TcpStream,
    /// }
    ///
    /// #[toolbox]
    /// impl Database {
    ///     /// Returns the number of rows of a table.
    ///     #[tool]
    ///     fn count(&self, table: String) -> u32 {
    ///         # let _ = table;
    ///         42
    ///     }
    /// }
    ///
    /// assert_eq!(Database::definitions()[0].name(), "count");
    /// ```
    #[must_use]
    fn definitions() -> ToolDefinitions {
        definitions(Self::methods()).iter().map(|defined| defined.definition.clone()).collect()
    }
}

/// Calls a method of a value with the arguments of a call. Without a value, the method is only defined.
type Call<S> = for<'a> fn(Option<&'a Arc<S>>, &mut Arguments<'_, '_>, &'a ToolContext) -> Option<Pending<'a>>;

/// A method that is a tool.
#[derive(Debug)]
pub struct Method<S: 'static> {
    declaration: Declaration,
    call: Call<S>,
}

impl<S> Method<S> {
    /// Creates a method.
    #[must_use]
    pub const fn new(
        name: ToolName,
        description: Option<&'static str>,
        parameters: &'static [Parameter],
        details: Option<&'static Details>,
        call: Call<S>,
    ) -> Self {
        Self { declaration: Declaration::new(name, description, parameters, details), call }
    }
}

/// Returns the set of tools of a value and some methods of its type.
#[must_use]
pub fn toolbox_tool_set<S: Send + Sync + 'static>(this: Arc<S>, methods: &'static [Method<S>]) -> ToolSet {
    let definitions = definitions(methods);
    let tools = methods.iter().enumerate().map(|(index, method)| -> Arc<dyn Tool> {
        let (this, definitions) = (Arc::clone(&this), Arc::clone(&definitions));
        Arc::new(MethodTool { this, method, definitions, index })
    });
    ToolSet::from_methods(tools)
}

impl<T: Toolbox> From<T> for ToolSet {
    fn from(toolbox: T) -> Self {
        Self::from(Arc::new(toolbox))
    }
}

/// For a value that the application uses as well.
impl<T: Toolbox> From<Arc<T>> for ToolSet {
    fn from(toolbox: Arc<T>) -> Self {
        toolbox_tool_set(toolbox, T::methods())
    }
}

type Definitions = Arc<[Defined]>;

/// Returns the definitions of methods, which are built once per process and not once per value.
fn definitions<S: 'static>(methods: &'static [Method<S>]) -> Definitions {
    static CACHE: Mutex<Option<HashMap<(TypeId, usize), Definitions>>> = Mutex::new(None);

    let key = (TypeId::of::<S>(), methods.as_ptr() as usize);
    let cached = |cache: &Option<HashMap<_, Definitions>>| cache.as_ref()?.get(&key).map(Arc::clone);
    // The map is intact even if a thread panicked and poisoned the lock.
    if let Some(definitions) = cached(&CACHE.lock().unwrap_or_else(PoisonError::into_inner)) {
        return definitions;
    }
    // The lock is not held here, because the default of a parameter may create a toolbox itself.
    let context = ToolContext::new();
    let define = |method: &'static Method<S>| {
        method.declaration.define(&|arguments| drop((method.call)(None, arguments, &context)))
    };
    let definitions: Definitions = methods.iter().map(define).collect();
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    cache.get_or_insert_default().insert(key, Arc::clone(&definitions));
    definitions
}

/// A method of a value, as a tool.
struct MethodTool<S: 'static> {
    this: Arc<S>,
    method: &'static Method<S>,
    definitions: Definitions,
    index: usize,
}

impl<S: Send + Sync + 'static> Tool for MethodTool<S> {
    fn definition(&self) -> &ToolDefinition {
        &self.definitions[self.index].definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let call =
            |arguments: &mut Arguments<'_, '_>| (self.method.call)(Some(&self.this), arguments, context);
        self.method.declaration.call(arguments, context, &self.definitions[self.index], &call)
    }

    fn check_arguments(&self, arguments: &str, context: &ToolContext) -> Result<(), ToolError> {
        let check = |arguments: &mut Arguments<'_, '_>| drop((self.method.call)(None, arguments, context));
        self.method.declaration.check(arguments, context, &self.definitions[self.index], &check)
    }

    fn injections(&self) -> Option<&[Injection]> {
        Some(self.method.declaration.injections())
    }

    fn declared_at(&self) -> Option<&'static Location<'static>> {
        Some(self.method.declaration.name.declared_at)
    }
}
