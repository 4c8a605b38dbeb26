//! Sets of tools: what a model is offered and what its calls are looked up in.

mod budget;
mod call;
mod error;
mod extra_parameters;
mod missing;
mod provider;
mod registry;
mod rename;
mod report;
mod select;
mod strict;
mod toolbox;

use std::fmt;
use std::sync::Arc;

pub use self::error::ToolSetError;
pub use self::extra_parameters::ExtraParameters;
pub use self::missing::MissingContext;
pub use self::provider::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
pub use self::registry::{Registration, registered};
pub use self::report::{Finding, FindingKind, ToolCost, ToolReport};
pub use self::toolbox::{Method, Toolbox, tool_set_of};
use crate::model::{ToolDefinition, ToolDefinitions};
use crate::tool::declared::DeclaredTool;
use crate::tool::{Budget, ReadMode, Tool, ToolFuture};

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
    /// The positions of the tools, sorted as they are [looked up](look_up_key).
    by_name: Vec<usize>,
    definitions: ToolDefinitions,
    settings: Settings,
}

/// What goes for all tools of a set.
#[derive(Clone, Copy, Default)]
struct Settings {
    reading: ReadMode,
    budget: Option<Budget>,
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
    /// Two tools have one name: the error names both places. Or a name is not 1 to 64 letters from a to z
    /// or A to Z, digits, `_` and `-`. Or the arguments of a tool are no object.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self, ToolSetError> {
        let tools: Vec<_> = tools.into_iter().map(ToolRef::Shared).collect();
        tools.iter().try_for_each(|tool| refuse_no_object(tool.get()))?;
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
    /// would choose them. [`only`](Self::only) chooses among the tools of a set.
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
                let among = format!("among the {} of this program", all.len());
                let known = all.iter().map(|tool| tool.definition().name());
                return Err(ToolSetError::unknown(name, &among, known));
            };
            if let Some(other) = found.next() {
                return Err(ToolSetError::duplicate(*tool, *other));
            }
            tools.push(ToolRef::Static(*tool));
        }
        Self::of(tools)
    }

    /// This set and one tool more, behind the others.
    ///
    /// ```
    /// use tool_core::model::ToolDefinition;
    /// use tool_core::tool::ToolFuture;
    /// use tool_core::{Tool, ToolContext, ToolOutput, ToolSet};
    ///
    /// struct Dice(ToolDefinition);
    ///
    /// impl Tool for Dice {
    ///     fn definition(&self) -> &ToolDefinition {
    ///         &self.0
    ///     }
    ///
    ///     fn call<'a>(&'a self, _arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
    ///         ToolFuture::ready(Ok(ToolOutput::text("4")))
    ///     }
    /// }
    ///
    /// let tools = ToolSet::default().with(Dice(ToolDefinition::new("roll").with_description("Rolls a die")))?;
    /// assert_eq!(tools.len(), 1);
    /// # Ok::<_, tool_core::toolset::ToolSetError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The set has a tool of that name: the error names both places. Or the name is not 1 to 64 letters
    /// from a to z or A to Z, digits, `_` and `-`.
    pub fn with(&self, tool: impl Tool + 'static) -> Result<Self, ToolSetError> {
        refuse_no_object(&tool)?;
        let mut tools = self.0.tools.clone();
        tools.push(ToolRef::Shared(Arc::new(tool)));
        Ok(Self::of(tools)?.with_settings(self.0.settings))
    }

    /// This set and another, as one: first the tools of this set.
    ///
    /// How arguments are read goes for the whole of a set, so the stricter of both ways is taken: the union
    /// has [`strict_arguments`](Self::strict_arguments) if one of them has, and
    /// [`ignore_unknown_arguments`](Self::ignore_unknown_arguments) only if both have. A set without tools
    /// has no say in the latter.
    ///
    /// # Errors
    ///
    /// Both have a tool of one name: the error names both places.
    pub fn union(&self, other: &Self) -> Result<Self, ToolSetError> {
        let (left, right) = (self.0.settings, other.0.settings);
        // Nothing to put together: what a provider made of the definitions stays with them.
        let (union, ignores_unknown) = if self.is_empty() {
            (other.clone().without_refusals()?, right.reading.ignores_unknown)
        } else if other.is_empty() {
            (self.clone().without_refusals()?, left.reading.ignores_unknown)
        } else {
            let tools = self.0.tools.iter().chain(&other.0.tools).cloned().collect();
            (Self::of(tools)?, left.reading.ignores_unknown && right.reading.ignores_unknown)
        };
        let is_strict = left.reading.is_strict || right.reading.is_strict;
        let reading = ReadMode { is_strict, ignores_unknown };
        let budget = Budget::tighter(left.budget, right.budget);
        Ok(union.with_settings(Settings { reading, budget }))
    }

    fn of(tools: Vec<ToolRef>) -> Result<Self, ToolSetError> {
        Self::in_order(tools)?.without_refusals()
    }

    /// The set, unless a tool has no strict form and asks for it.
    fn without_refusals(self) -> Result<Self, ToolSetError> {
        match self.definitions().iter().find_map(ToolDefinition::strict_error) {
            Some(refusal) => Err(ToolSetError::no_strict_form(refusal)),
            None => Ok(self),
        }
    }

    /// A set of tools whose definitions may have been refused: that is told when an agent is built with it.
    fn in_order(tools: Vec<ToolRef>) -> Result<Self, ToolSetError> {
        let mut by_name: Vec<usize> = Vec::with_capacity(tools.len());
        for (position, tool) in tools.iter().enumerate() {
            let name = tool.get().definition().name();
            if !is_name(name) {
                return Err(ToolSetError::invalid_name(tool.get()));
            }
            match by_name.binary_search_by_key(&look_up_key(name), |other| {
                look_up_key(tools[*other].get().definition().name())
            }) {
                Ok(other) => return Err(ToolSetError::duplicate(tools[by_name[other]].get(), tool.get())),
                Err(place) => by_name.insert(place, position),
            }
        }
        Ok(Self::sorted(tools, by_name, Settings::default()))
    }

    fn sorted(tools: Vec<ToolRef>, by_name: Vec<usize>, settings: Settings) -> Self {
        let definitions = tools.iter().map(|tool| tool.get().definition().clone()).collect();
        Self(Arc::new(Shared { tools, by_name, definitions, settings }))
    }

    /// What `tools!` makes: that the names differ, and are such, was checked when the list was compiled.
    pub(crate) fn of_distinct(tools: impl Iterator<Item = &'static DeclaredTool>) -> Self {
        Self::in_order(tools.map(|tool| ToolRef::Static(tool)).collect())
            .expect("the names of a `tools!` list differ")
    }

    /// The tools of a toolbox: that the names differ was checked when it was compiled.
    pub(crate) fn of_distinct_shared(tools: impl Iterator<Item = Arc<dyn Tool>>) -> Self {
        Self::in_order(tools.map(ToolRef::Shared).collect()).expect("the names of a toolbox differ")
    }

    /// The same set with something else in the place of its tools.
    fn map(
        &self,
        change: impl FnMut(&ToolRef) -> Result<ToolRef, ToolSetError>,
    ) -> Result<Self, ToolSetError> {
        let tools = self.0.tools.iter().map(change).collect::<Result<_, _>>()?;
        Ok(Self::of(tools)?.with_settings(self.0.settings))
    }

    /// The same tools, but their arguments are taken as they come: nothing is mended, and what is not
    /// of the form that the schema asks for is an error.
    #[must_use]
    pub fn strict_arguments(self) -> Self {
        let reading = ReadMode { is_strict: true, ..self.0.settings.reading };
        self.with_reading(reading)
    }

    /// The same tools, but arguments that a tool does not have are left out and told of on the
    /// [`ToolExecution`](crate::tool::ToolExecution), and the call is made all the same.
    ///
    /// Without this such a call is refused, and the refusal names the arguments that the tool has: a model
    /// that writes `dry_run` means to say something with it. The switch is for models which invent
    /// arguments again and again. It goes for all tools of this crate; a hand-written [`Tool`] gets the arguments
    /// as the model wrote them.
    #[must_use]
    pub fn ignore_unknown_arguments(self) -> Self {
        let reading = ReadMode { ignores_unknown: true, ..self.0.settings.reading };
        self.with_reading(reading)
    }

    fn with_reading(self, reading: ReadMode) -> Self {
        let settings = Settings { reading, ..self.0.settings };
        self.with_settings(settings)
    }

    fn with_settings(self, settings: Settings) -> Self {
        Self(Arc::new(Shared { settings, ..Arc::unwrap_or_clone(self.0) }))
    }

    /// The definitions of all tools, in order, for a [`ChatRequest`](crate::model::ChatRequest).
    #[must_use]
    pub fn definitions(&self) -> &ToolDefinitions {
        &self.0.definitions
    }

    /// The tool of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&dyn Tool> {
        let Shared { tools, by_name, definitions, .. } = &*self.0;
        let key_at = |position: &usize| look_up_key(definitions[*position].name());
        let found = by_name.binary_search_by_key(&look_up_key(name), key_at).ok()?;
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

    /// Both are clones of one set.
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Models give arguments by name. What the macro makes takes them so.
fn refuse_no_object(tool: &dyn Tool) -> Result<(), ToolSetError> {
    let parameters = tool.definition().parameters();
    let is_object = match parameters.get("type") {
        Some(kind) => kind == "object",
        None => parameters.get("properties").is_some(),
    };
    if is_object { Ok(()) } else { Err(ToolSetError::no_object(tool)) }
}

/// What names are compared by: their lengths first, as that is done at once.
fn look_up_key(name: &str) -> (usize, &str) {
    (name.len(), name)
}

/// A name that providers take.
fn is_name(name: &str) -> bool {
    (1..=error::LONGEST_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

impl From<&ToolSet> for ToolSet {
    fn from(set: &ToolSet) -> Self {
        set.clone()
    }
}

/// Names the tools.
impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolSet").field(self.definitions()).finish()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::ToolContext;

    struct Named(ToolDefinition);

    impl Tool for Named {
        fn definition(&self) -> &ToolDefinition {
            &self.0
        }

        fn call<'a>(&'a self, _: &'a str, _: &'a ToolContext) -> ToolFuture<'a> {
            ToolFuture::ready(Ok("".into()))
        }
    }

    fn set(name: &str) -> ToolSet {
        ToolSet::default().with(Named(ToolDefinition::new(name))).unwrap()
    }

    #[test]
    fn the_stricter_way_of_reading_wins() {
        let (plain, other, none) = (|| set("plain"), || set("other"), ToolSet::default);
        let union = |left: ToolSet, right: ToolSet| left.union(&right).unwrap();
        let (ignoring, ignores) = (
            |set: ToolSet| set.ignore_unknown_arguments(),
            |set: &ToolSet| set.0.settings.reading.ignores_unknown,
        );
        let table = [
            (ignoring(plain()), true),
            (plain(), false),
            (union(ignoring(plain()), other()), false),
            (union(plain(), ignoring(other())), false),
            (union(ignoring(plain()), ignoring(other())), true),
            (union(none(), ignoring(other())), true),
            (union(ignoring(other()), none()), true),
            (union(ignoring(none()), other()), false),
            (union(other(), ignoring(none())), false),
            (union(none(), none()), false),
            (union(none(), none()).with(Named(ToolDefinition::new("a"))).unwrap(), false),
            (ignoring(plain()).with(Named(ToolDefinition::new("a"))).unwrap(), true),
            (ignoring(plain()).rename("plain", "a").unwrap(), true),
            (ignoring(plain()).prefix("a").unwrap(), true),
            (ignoring(union(plain(), other())).without(["plain"]).unwrap(), true),
            (ignoring(plain()).strict_arguments(), true),
        ];
        for (position, (set, expected)) in table.iter().enumerate() {
            assert_eq!(ignores(set), *expected, "{position}");
        }
        let both = union(plain().strict_arguments(), ignoring(other()));
        assert_eq!(both.0.settings.reading, ReadMode { is_strict: true, ignores_unknown: false });
        assert!(union(none().strict_arguments(), other()).0.settings.reading.is_strict);
        assert!(union(other(), none().strict_arguments()).0.settings.reading.is_strict);
    }
}
