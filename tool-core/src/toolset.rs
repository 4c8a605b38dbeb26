//! Sets of tools: what a model is offered and what its calls are looked up in.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use futures_util::FutureExt;

use crate::tool::private::FunctionTool;
use crate::tool::{ToolDefinitions, nearest};
use crate::{
    Repair, Tool, ToolCall, ToolContext, ToolError, ToolExecution, ToolFuture, ToolOutput, registered,
};

/// A set of tools, in order, with names that differ. Cloning shares it.
///
/// ```
/// use tool_core::{ToolCall, ToolContext, tool, tools};
///
/// /// Sums two numbers.
/// #[tool]
/// fn sum(a: f64, b: f64) -> f64 {
///     a + b
/// }
///
/// # let outcome = futures_util::FutureExt::now_or_never(async {
/// let set = tools![sum];
/// let call = ToolCall::new("call_1", "sum", r#"{"a": 2, "b": 40}"#);
/// let output = set.call(&call, &ToolContext::new()).await?;
/// assert_eq!(output.to_string(), "42.0");
/// # Ok::<_, tool_core::ToolError>(())
/// # });
/// # outcome.unwrap().unwrap();
/// ```
#[derive(Clone, Default)]
pub struct ToolSet(Arc<Shared>);

#[derive(Clone, Default)]
struct Shared {
    tools: Vec<ToolRef>,
    /// The positions of the tools, sorted by their names.
    by_name: Vec<usize>,
    definitions: ToolDefinitions,
    has_strict_arguments: bool,
}

#[derive(Clone)]
enum ToolRef {
    Static(&'static dyn Tool),
    Shared(Arc<dyn Tool>),
}

impl ToolRef {
    fn get(&self) -> &dyn Tool {
        match self {
            Self::Static(tool) => *tool,
            Self::Shared(tool) => &**tool,
        }
    }
}

impl ToolSet {
    /// A set of any tools.
    ///
    /// # Errors
    ///
    /// Two tools have one name: the error names both places. Or the arguments of a tool are no object.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self, ToolSetError> {
        let tools: Vec<_> = tools.into_iter().map(ToolRef::Shared).collect();
        for tool in &tools {
            if tool.get().definition().parameters().get("type").is_none_or(|kind| kind != "object") {
                return Err(ToolSetError::no_object(tool.get()));
            }
        }
        Self::of(tools)
    }

    /// All `#[tool]` functions of the program, sorted by name: see [`registered`].
    ///
    /// # Errors
    ///
    /// Two functions have one name: the error names both places.
    pub fn registered() -> Result<Self, ToolSetError> {
        Self::of(registered().into_iter().map(ToolRef::Static).collect())
    }

    /// The tools of these names, out of all `#[tool]` functions of the program, as a configuration
    /// would choose them.
    ///
    /// # Errors
    ///
    /// There is no tool of a name, or two functions share it, or the name is given twice.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, ToolSetError> {
        let all = registered();
        let mut tools = Vec::new();
        for name in names {
            let mut found = all.iter().filter(|tool| tool.definition().name() == name);
            let Some(tool) = found.next() else {
                let known: Vec<_> = all.iter().map(|tool| tool.definition().name()).collect();
                return Err(ToolSetError::unknown(name, &known));
            };
            if let Some(other) = found.next() {
                return Err(ToolSetError::duplicate(*tool, *other));
            }
            tools.push(ToolRef::Static(*tool));
        }
        Self::of(tools)
    }

    /// This set and another, as one. If one of them has [`strict_arguments`](Self::strict_arguments), so
    /// has the whole.
    ///
    /// # Errors
    ///
    /// Both have a tool of one name: the error names both places.
    pub fn union(&self, other: &Self) -> Result<Self, ToolSetError> {
        let union = Self::of(self.0.tools.iter().chain(&other.0.tools).cloned().collect())?;
        let is_strict = self.0.has_strict_arguments || other.0.has_strict_arguments;
        Ok(if is_strict { union.strict_arguments() } else { union })
    }

    fn of(tools: Vec<ToolRef>) -> Result<Self, ToolSetError> {
        let mut by_name: Vec<usize> = Vec::with_capacity(tools.len());
        for (position, tool) in tools.iter().enumerate() {
            let name = tool.get().definition().name();
            match by_name.binary_search_by_key(&name, |other| tools[*other].get().definition().name()) {
                Ok(other) => return Err(ToolSetError::duplicate(tools[by_name[other]].get(), tool.get())),
                Err(place) => by_name.insert(place, position),
            }
        }
        let definitions = tools.iter().map(|tool| tool.get().definition().clone()).collect();
        Ok(Self(Arc::new(Shared { tools, by_name, definitions, has_strict_arguments: false })))
    }

    /// What `tools!` makes: that the names differ was checked when the list was compiled.
    pub(crate) fn of_distinct(tools: impl Iterator<Item = &'static FunctionTool>) -> Self {
        Self::of(tools.map(|tool| ToolRef::Static(tool)).collect())
            .expect("the names of a `tools!` list differ")
    }

    /// The same tools, but their arguments are taken as they come: nothing is mended, and what is not
    /// of the form that the schema asks for is an error.
    #[must_use]
    pub fn strict_arguments(self) -> Self {
        Self(Arc::new(Shared { has_strict_arguments: true, ..Shared::clone(&self.0) }))
    }

    /// The definitions of all tools, in order, for a [`ChatRequest`](crate::ChatRequest).
    #[must_use]
    pub fn definitions(&self) -> &ToolDefinitions {
        &self.0.definitions
    }

    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&dyn Tool> {
        let Shared { tools, by_name, .. } = &*self.0;
        let name_at = |position: &usize| tools[*position].get().definition().name();
        let found = by_name.binary_search_by_key(&name, name_at).ok()?;
        Some(tools[by_name[found]].get())
    }

    /// How many tools there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.tools.len()
    }

    /// There is no tool.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.tools.is_empty()
    }

    /// The tools, in order.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Tool> {
        self.0.tools.iter().map(ToolRef::get)
    }

    /// Makes one call.
    ///
    /// A tool that panics fails its call and nothing else.
    ///
    /// # Errors
    ///
    /// There is no such tool, the arguments are wrong, or the tool failed or panicked. The text of the
    /// error is meant for the model.
    pub async fn call(&self, call: &ToolCall, context: &ToolContext) -> Result<ToolOutput, ToolError> {
        self.call_with_repairs(call, context).await.0
    }

    async fn call_with_repairs(
        &self,
        call: &ToolCall,
        context: &ToolContext,
    ) -> (Result<ToolOutput, ToolError>, Vec<Repair>) {
        let Some(tool) = self.get(&call.name) else {
            let known = self.definitions().iter().map(|definition| definition.name());
            return (Err(ToolError::unknown_tool(&call.name, known)), Vec::new());
        };
        let strict;
        let context = if self.0.has_strict_arguments {
            strict = context.clone().with_strict_arguments();
            &strict
        } else {
            context
        };
        // A tool is not looked at again after it panicked other than through its own methods, and
        // what it shares with them it has to keep sound itself: hence the assertions.
        let started = catch_unwind(AssertUnwindSafe(|| tool.call(&call.arguments, context)));
        let (outcome, repairs) = match started {
            Ok(mut future) => {
                let repairs = future.take_repairs();
                (AssertUnwindSafe(future).catch_unwind().await, repairs)
            }
            Err(panic) => (Err(panic), Vec::new()),
        };
        let panicked =
            |panic: Box<dyn Any + Send>| Err(ToolError::panicked(&call.id, &text_of_panic(&*panic)));
        (outcome.unwrap_or_else(panicked), repairs)
    }

    /// Makes one call and records it, for [`Run::called`](crate::Run::called).
    pub async fn execute(&self, call: ToolCall, context: &ToolContext) -> ToolExecution {
        let started_at = SystemTime::now();
        let clock = Instant::now();
        let (outcome, repairs) = self.call_with_repairs(&call, context).await;
        ToolExecution::new(call, outcome).with_repairs(repairs).with_timing(started_at, clock.elapsed())
    }
}

fn text_of_panic(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("no text"))
}

/// Names the tools.
impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolSet").field(self.definitions()).finish()
    }
}

/// Why tools do not make a set.
#[derive(thiserror::Error)]
#[error("{message}")]
pub struct ToolSetError {
    message: String,
    kind: Kind,
}

#[derive(PartialEq)]
enum Kind {
    Duplicate,
    Unknown,
    NoObject,
}

impl ToolSetError {
    /// Two tools have one name.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        self.kind == Kind::Duplicate
    }

    /// There is no tool of a name.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.kind == Kind::Unknown
    }

    /// The arguments of a tool are no object by its schema, but models give arguments by name.
    #[must_use]
    pub fn is_no_object(&self) -> bool {
        self.kind == Kind::NoObject
    }

    fn no_object(tool: &dyn Tool) -> Self {
        let message = format!(
            "the arguments of the tool `{}`, {}, are not an object; let it take a struct, each field of which is one argument",
            tool.definition().name(),
            place(tool.declared_at()),
        );
        Self { message, kind: Kind::NoObject }
    }

    fn duplicate(first: &dyn Tool, second: &dyn Tool) -> Self {
        let message = format!(
            "two tools are named `{}`: one {}, one {}; give one of them another name, or leave it out",
            first.definition().name(),
            place(first.declared_at()),
            place(second.declared_at()),
        );
        Self { message, kind: Kind::Duplicate }
    }

    fn unknown(name: &str, known: &[&str]) -> Self {
        let mut message = format!("there is no tool `{name}` among the {} of this program", known.len());
        if let Some(nearest) = nearest(name, known.iter().copied()) {
            message.extend(["; did you mean `", nearest, "`?"]);
        }
        Self { message, kind: Kind::Unknown }
    }
}

/// The text, so that a `main` that returns the error shows it readably.
impl fmt::Debug for ToolSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn place(location: Option<&Location<'_>>) -> String {
    match location {
        Some(location) => format!("at {}:{}", location.file(), location.line()),
        None => "made at run time".to_owned(),
    }
}

#[expect(dead_code, reason = "the auto traits are what is asserted")]
fn assert_auto_traits(set: ToolSet, error: ToolSetError, future: ToolFuture<'_>) {
    fn is_send(_: impl Send) {}
    fn is_sync(_: impl Send + Sync + 'static) {}
    is_sync(set);
    is_sync(error);
    is_send(future);
}
