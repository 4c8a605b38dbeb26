//! The set of tools.

use std::fmt;
use std::sync::Arc;

use super::error::{MAX_NAME_LENGTH, ToolSetError};
use super::output_limit::OutputLimit;
use super::registry::registered;
use crate::arguments::Mode;
use crate::layer::Layer;
use crate::model::{ToolDefinition, ToolDefinitions};
use crate::tool::Tool;
use crate::tool::declared::DeclaredTool;

/// An ordered set of tools with unique names.
///
/// A set is reference-counted, so cloning it is cheap. Methods that return a selection borrow the set; those that return
/// another set take `self`, so call them on a clone to keep the original.
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
/// for tool in &set {
///     assert_eq!(tool.definition().name(), "sum");
/// }
/// # Ok::<_, tool_core::ToolError>(())
/// # });
/// # outcome.unwrap().unwrap();
/// ```
#[derive(Clone, Default)]
pub struct ToolSet(pub(super) Arc<Shared>);

#[derive(Clone, Default)]
pub(super) struct Shared {
    pub(super) tools: Vec<ToolRef>,
    /// The indices of the tools, sorted by their [sort key](sort_key).
    by_name: Vec<usize>,
    definitions: ToolDefinitions,
    pub(super) settings: Settings,
}

/// Settings that apply to all tools of a set.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct Settings {
    pub(super) reading: Mode,
    pub(super) output_limit: Option<OutputLimit>,
}

/// A tool of a set.
#[derive(Clone)]
pub(super) enum ToolRef {
    Static(&'static dyn Tool),
    Shared(Arc<dyn Tool>),
    Layered(Arc<Layered>),
}

/// A tool with the layers of its set, in their order.
pub(super) struct Layered {
    pub(super) tool: ToolRef,
    pub(super) layers: Vec<Arc<dyn Layer>>,
}

impl ToolRef {
    pub(super) fn get(&self) -> &dyn Tool {
        match self {
            Self::Static(tool) => *tool,
            Self::Shared(tool) => &**tool,
            Self::Layered(tool) => &**tool,
        }
    }
}

impl ToolSet {
    /// Creates a set of tools.
    ///
    /// # Errors
    ///
    /// Fails if two tools have the same name (the error names the locations of both), if a name is not 1 to 64 letters
    /// `a` to `z` or `A` to `Z`, digits, `_` and `-`, or if the arguments of a tool are not an object.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Result<Self, ToolSetError> {
        let tools: Vec<_> = tools.into_iter().map(ToolRef::Shared).collect();
        tools.iter().try_for_each(|tool| check_arguments(tool.get()))?;
        Self::from_refs(tools)
    }

    /// Returns the set of all `#[tool]` functions of the program, sorted by name. See [`registered`].
    ///
    /// # Errors
    ///
    /// Fails if two functions have the same name. The error names the locations of both.
    pub fn registered() -> Result<Self, ToolSetError> {
        Self::from_refs(registered().into_iter().map(ToolRef::Static).collect())
    }

    /// Selects tools by name among all `#[tool]` functions of the program, for example from a configuration.
    /// [`only`](Self::only) selects among the tools of a set. Methods of toolboxes are not registered, because they need a value;
    /// [`resolved`](Self::resolved) also finds those. A crate of which nothing is used is [not linked](registered), and its functions are unknown.
    ///
    /// # Errors
    ///
    /// Fails if there is no tool with a given name, if two functions have that name, or if a name is given twice.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, ToolSetError> {
        let all = registered();
        let mut tools = Vec::new();
        for name in names {
            let mut found = all.iter().filter(|tool| tool.definition().name() == name);
            let Some(tool) = found.next() else {
                let among = format!(
                    "among the {} of this program (methods of toolboxes are not registered: use `ToolSet::resolved`; \
                     a crate of which nothing is used is not linked: write `use team_tools as _;`)",
                    all.len()
                );
                let known = all.iter().map(|tool| tool.definition().name());
                return Err(ToolSetError::unknown_tool(name, &among, known));
            };
            if let Some(other) = found.next() {
                return Err(ToolSetError::duplicate_tool(*tool, *other));
            }
            tools.push(ToolRef::Static(*tool));
        }
        Self::from_refs(tools)
    }

    /// Adds a tool at the end of this set.
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
    /// Fails if the set already has a tool with that name (the error names the locations of both), if the name is not 1
    /// to 64 letters `a` to `z` or `A` to `Z`, digits, `_` and `-`, or if the arguments of the tool are not an object.
    pub fn with(self, tool: impl Tool + 'static) -> Result<Self, ToolSetError> {
        check_arguments(&tool)?;
        let Shared { mut tools, settings, .. } = Arc::unwrap_or_clone(self.0);
        tools.push(ToolRef::Shared(Arc::new(tool)));
        Ok(Self::from_refs(tools)?.with_settings(settings))
    }

    /// Adds the tools of another set or toolbox at the end of this set.
    ///
    /// ```
    /// use tool_core::{tool, toolbox, tools};
    ///
    /// struct Desk;
    ///
    /// #[toolbox]
    /// impl Desk {
    ///     #[tool("Books a room")]
    ///     fn book(&self, nights: u8) {}
    /// }
    ///
    /// #[tool("Sums two numbers")]
    /// fn sum(a: f64, b: f64) -> f64 {
    ///     a + b
    /// }
    ///
    /// let tools = tools![sum].union(Desk)?;
    /// assert_eq!(tools.len(), 2);
    /// # Ok::<_, tool_core::toolset::ToolSetError>(())
    /// ```
    ///
    /// Arguments are read in the same way for a whole set, so the stricter setting wins: the union has
    /// [`no_repair`](Self::no_repair) if either set has it, and
    /// [`ignore_unknown_arguments`](Self::ignore_unknown_arguments) only if both have it. A set without tools does not
    /// affect the latter. The smaller [`max_output_chars`](Self::max_output_chars) applies.
    ///
    /// # Errors
    ///
    /// Fails if both sets have a tool with the same name. The error names the locations of both.
    pub fn union(self, other: impl Into<Self>) -> Result<Self, ToolSetError> {
        self.union_with(other.into())
    }

    fn union_with(self, other: Self) -> Result<Self, ToolSetError> {
        let (left, right) = (self.0.settings, other.0.settings);
        // The tools of one set are not copied, so what providers cached for its definitions remains valid.
        let (union, ignores_unknown) = if self.is_empty() {
            (other.check_strict_forms()?, right.reading.ignores_unknown)
        } else if other.is_empty() {
            (self.check_strict_forms()?, left.reading.ignores_unknown)
        } else {
            let tools = self.0.tools.iter().chain(&other.0.tools).cloned().collect();
            (Self::from_refs(tools)?, left.reading.ignores_unknown && right.reading.ignores_unknown)
        };
        let forbids_repair = left.reading.forbids_repair || right.reading.forbids_repair;
        let reading = Mode { forbids_repair, ignores_unknown };
        let output_limit = OutputLimit::smallest(left.output_limit, right.output_limit);
        Ok(union.with_settings(Settings { reading, output_limit }))
    }

    pub(super) fn from_refs(tools: Vec<ToolRef>) -> Result<Self, ToolSetError> {
        Self::from_refs_unchecked(tools)?.check_strict_forms()
    }

    /// Fails if a tool is declared strict but has no strict form.
    fn check_strict_forms(self) -> Result<Self, ToolSetError> {
        match self.definitions().iter().find_map(ToolDefinition::strict_error) {
            Some(reason) => Err(ToolSetError::no_strict_form(reason)),
            None => Ok(self),
        }
    }

    /// Creates a set without [checking the strict forms](Self::check_strict_forms); building an agent checks them later.
    fn from_refs_unchecked(tools: Vec<ToolRef>) -> Result<Self, ToolSetError> {
        let mut by_name: Vec<usize> = Vec::with_capacity(tools.len());
        for (index, tool) in tools.iter().enumerate() {
            let name = tool.get().definition().name();
            if !is_valid_name(name) {
                return Err(ToolSetError::invalid_name(tool.get()));
            }
            match by_name.binary_search_by_key(&sort_key(name), |other| {
                sort_key(tools[*other].get().definition().name())
            }) {
                Ok(other) => {
                    return Err(ToolSetError::duplicate_tool(tools[by_name[other]].get(), tool.get()));
                }
                Err(position) => by_name.insert(position, index),
            }
        }
        let definitions = tools.iter().map(|tool| tool.get().definition().clone()).collect();
        Ok(Self(Arc::new(Shared { tools, by_name, definitions, settings: Settings::default() })))
    }

    /// Creates a set of tools whose names are known to be valid and unique.
    pub(super) fn from_unique(tools: Vec<ToolRef>) -> Self {
        Self::from_refs_unchecked(tools).expect("the names are valid and unique")
    }

    /// Creates the set of a `tools!` list, whose names were checked at compile time.
    pub(crate) fn from_declared(tools: impl Iterator<Item = &'static DeclaredTool>) -> Self {
        Self::from_unique(tools.map(|tool| ToolRef::Static(tool)).collect())
    }

    /// Creates the set of a toolbox, whose names were checked at compile time.
    pub(crate) fn from_methods(tools: impl Iterator<Item = Arc<dyn Tool>>) -> Self {
        Self::from_unique(tools.map(ToolRef::Shared).collect())
    }

    /// Replaces the tools of this set and keeps its settings.
    pub(super) fn map_tools(
        &self,
        replace: impl FnMut(&ToolRef) -> Result<ToolRef, ToolSetError>,
    ) -> Result<Self, ToolSetError> {
        let tools = self.0.tools.iter().map(replace).collect::<Result<_, _>>()?;
        Ok(Self::from_refs(tools)?.with_settings(self.0.settings))
    }

    /// Disables the repair of arguments: arguments that do not have the form that the schema requires are an error.
    #[must_use]
    pub fn no_repair(self) -> Self {
        let mut settings = self.0.settings;
        settings.reading.forbids_repair = true;
        self.with_settings(settings)
    }

    /// Ignores arguments that a tool does not have and executes the call without them. They are recorded on the
    /// [`ToolExecution`](crate::tool::ToolExecution).
    ///
    /// By default, such a call is refused with the names of the tool's arguments, because a model that writes `dry_run`
    /// means something by it. The same applies to members of nested structs that their types ignore, unless serde buffers
    /// them: in structs with `#[serde(flatten)]` and in tagged or untagged enums, only `deny_unknown_fields` refuses them. Use
    /// this setting for models that invent arguments again and again. It applies to all tools of this crate, but a
    /// type with `deny_unknown_fields` refuses unknown members all the same, also as the arguments of a closure; a
    /// hand-written [`Tool`] receives the arguments unchanged.
    #[must_use]
    pub fn ignore_unknown_arguments(self) -> Self {
        let mut settings = self.0.settings;
        settings.reading.ignores_unknown = true;
        self.with_settings(settings)
    }

    /// Limits the number of characters that the model reads of the output or error of one call: see
    /// [`ToolOutput::truncated`](crate::ToolOutput::truncated). The smallest of several limits applies.
    ///
    /// ```
    /// use tool_core::{ToolCall, ToolContext, tool, tools};
    ///
    /// /// Reads the log.
    /// #[tool]
    /// fn log() -> String {
    ///     "all is well\n".repeat(10_000)
    /// }
    ///
    /// # let outcome = futures_util::FutureExt::now_or_never(async {
    /// let set = tools![log].max_output_chars(4000);
    /// let output = set.call(&ToolCall::new("call_1", "log", "{}"), &ToolContext::new()).await?;
    /// assert!(output.to_string().chars().count() <= 4000);
    /// # Ok::<_, tool_core::ToolError>(())
    /// # });
    /// # outcome.unwrap().unwrap();
    /// ```
    #[must_use]
    pub fn max_output_chars(self, characters: usize) -> Self {
        let limit = OutputLimit::new(characters);
        let output_limit = OutputLimit::smallest(self.0.settings.output_limit, Some(limit));
        let settings = Settings { output_limit, ..self.0.settings };
        self.with_settings(settings)
    }

    /// Returns the limit on the characters of one output.
    pub(crate) fn output_limit(&self) -> Option<usize> {
        self.0.settings.output_limit.map(OutputLimit::chars)
    }

    /// Returns the same set if it has these settings.
    pub(super) fn with_settings(self, settings: Settings) -> Self {
        if settings == self.0.settings {
            return self;
        }
        Self(Arc::new(Shared { settings, ..Arc::unwrap_or_clone(self.0) }))
    }

    /// Returns the definitions of all tools, in order. A [`ChatRequest`](crate::model::ChatRequest::with_tools) also takes the set.
    #[must_use]
    pub fn definitions(&self) -> &ToolDefinitions {
        &self.0.definitions
    }

    /// Returns the tool with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&dyn Tool> {
        let Shared { tools, by_name, definitions, .. } = &*self.0;
        let key_at = |index: &usize| sort_key(definitions[*index].name());
        let position = by_name.binary_search_by_key(&sort_key(name), key_at).ok()?;
        Some(tools[by_name[position]].get())
    }

    /// Returns the number of tools.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.tools.len()
    }

    /// Returns `true` if the set has no tools.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.tools.is_empty()
    }

    /// Returns an iterator over the tools, in order.
    pub fn iter(&self) -> impl Iterator<Item = &dyn Tool> {
        self.0.tools.iter().map(ToolRef::get)
    }

    /// Returns `true` if both are clones of the same set.
    pub(crate) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// Checks that the arguments of a tool are an object. Models pass arguments by name. Tools from macros always pass.
fn check_arguments(tool: &dyn Tool) -> Result<(), ToolSetError> {
    let parameters = tool.definition().parameters();
    let is_object = match parameters.get("type") {
        Some(kind) => kind == "object",
        None => parameters.get("properties").is_some(),
    };
    if is_object { Ok(()) } else { Err(ToolSetError::not_an_object(tool)) }
}

/// Returns the key that names are compared by. The length comes first, because it is the fastest to compare.
fn sort_key(name: &str) -> (usize, &str) {
    (name.len(), name)
}

/// Returns `true` if providers accept the name.
pub(crate) const fn is_valid_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut is_valid = !bytes.is_empty() && bytes.len() <= MAX_NAME_LENGTH;
    let mut i = 0;
    while i < bytes.len() {
        is_valid &= bytes[i].is_ascii_alphanumeric() || matches!(bytes[i], b'_' | b'-');
        i += 1;
    }
    is_valid
}

impl<'a> IntoIterator for &'a ToolSet {
    type Item = &'a dyn Tool;
    type IntoIter = Box<dyn Iterator<Item = &'a dyn Tool> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        Box::new(self.iter())
    }
}

impl From<&ToolSet> for ToolDefinitions {
    fn from(tools: &ToolSet) -> Self {
        tools.definitions().clone()
    }
}

impl From<&ToolSet> for ToolSet {
    fn from(set: &ToolSet) -> Self {
        set.clone()
    }
}

/// Prints the names of the tools.
impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolSet").field(self.definitions()).finish()
    }
}

/// What can be offered to a model as tools: a [`ToolSet`], also by reference; a [toolbox](crate::toolset::Toolbox), also in an `Arc`; or a single
/// [`Tool`], such as a [`FunctionTool`](crate::FunctionTool) or an agent. `Kind` distinguishes sets from tools, and is always inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a set of tools nor a tool",
    label = "no `ToolSet`, no toolbox and no `Tool`",
    note = "`#[tool]` functions are passed in a list: `tools![sum, square_root]`",
    note = "a toolbox has `#[toolbox]` above an `impl` block and `#[tool]` above its methods, and is passed by value or in an `Arc`",
    note = "a provider such as the tools of an MCP server is passed with `.tool_provider(…)`, and an agent as `agent.as_tool(\"name\", \"description\")`",
    note = "a closure becomes a tool with `FunctionTool::new(\"name\", closure)`, and a definition whose calls the caller executes with `ExternalTool::new(definition)`",
    note = "methods such as `union` return a `Result` of a set: write `?` behind them"
)]
pub trait IntoToolSet<Kind: ?Sized> {
    /// Converts the value into a set.
    ///
    /// # Errors
    ///
    /// Fails if a single tool is invalid, like [`ToolSet::with`].
    fn into_tool_set(self) -> Result<ToolSet, ToolSetError>;
}

#[diagnostic::do_not_recommend]
impl<T: Into<ToolSet>> IntoToolSet<ToolSet> for T {
    fn into_tool_set(self) -> Result<ToolSet, ToolSetError> {
        Ok(self.into())
    }
}

#[diagnostic::do_not_recommend]
impl<T: Tool + 'static> IntoToolSet<dyn Tool> for T {
    fn into_tool_set(self) -> Result<ToolSet, ToolSetError> {
        ToolSet::default().with(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{ToolContext, ToolFuture};

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
    fn a_union_with_no_tools_is_the_same_set() {
        let set = set("a").no_repair().max_output_chars(100);
        for union in [set.clone().union(ToolSet::default()), ToolSet::default().union(&set)] {
            assert!(union.unwrap().is_shared_with(&set));
        }
    }

    #[test]
    fn union_takes_the_stricter_settings() {
        let (plain, other, none) = (|| set("plain"), || set("other"), ToolSet::default);
        let union = |left: ToolSet, right: ToolSet| left.union(right).unwrap();
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
            (ignoring(plain()).no_repair(), true),
        ];
        for (position, (set, expected)) in table.iter().enumerate() {
            assert_eq!(ignores(set), *expected, "{position}");
        }
        let both = union(plain().no_repair(), ignoring(other()));
        assert_eq!(both.0.settings.reading, Mode { forbids_repair: true, ignores_unknown: false });
        assert!(union(none().no_repair(), other()).0.settings.reading.forbids_repair);
        assert!(union(other(), none().no_repair()).0.settings.reading.forbids_repair);
    }
}
