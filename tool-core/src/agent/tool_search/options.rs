//! The options of tool search.

use crate::agent::{BuildError, BuildErrorKind};
use crate::model::ChatModel;
use crate::toolset::{ToolSet, ToolSetError};

/// The name of the tool that searches.
pub(super) const SEARCH_TOOLS: &str = "search_tools";

/// The name of the tool that calls the tools that were found, if they are [called through](ToolSearch::call_through).
pub(super) const CALL_TOOL: &str = "call_tool";

/// The names that other tools cannot have.
pub(in crate::agent) const RESERVED_NAMES: [&str; 2] = [SEARCH_TOOLS, CALL_TOOL];

/// The default of [`ToolSearch::min_tools`].
///
/// OpenAI suggests fewer: <https://platform.openai.com/docs/guides/function-calling#best-practices-for-defining-functions>.
const DEFAULT_MIN_TOOLS: usize = 21;

/// The default of [`ToolSearch::max_results`].
const DEFAULT_MAX_RESULTS: usize = 5;

/// The way in which a model finds tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agent) enum Mode {
    /// Found definitions are appended to those that are offered.
    Append,
    /// Found definitions are in the results of the search, and another tool calls them.
    CallThrough,
    /// All definitions are offered, and the provider searches those that are deferred.
    ByProvider,
}

/// The search by which a model finds tools, instead of reading the definitions of all of them in every turn; see
/// [`AgentBuilder::tool_search`](crate::agent::AgentBuilder::tool_search) and the [guide](crate::guide::tool_search).
///
/// ```
/// use tool_core::agent::ToolSearch;
///
/// let search = ToolSearch::bm25().min_tools(41).always_offer(["sum"]).max_results(8);
/// # let _ = search;
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ToolSearch {
    pub(super) min_tools: usize,
    pub(super) always: Vec<String>,
    is_by_provider: bool,
    pub(super) calls_through: bool,
    pub(super) max_results: usize,
}

impl ToolSearch {
    /// Searches by the words of names, descriptions and parameters, like [`ToolSet::search`], without a model or a network.
    ///
    /// The model is offered `search_tools`, and the definitions of the tools that it finds are appended to those that it was
    /// offered before. They stay for the rest of the run, also if it is resumed elsewhere.
    pub fn bm25() -> Self {
        Self {
            min_tools: DEFAULT_MIN_TOOLS,
            always: Vec::new(),
            is_by_provider: false,
            calls_through: false,
            max_results: DEFAULT_MAX_RESULTS,
        }
    }

    /// Leaves the search to the provider of the model, if it [has one](ChatModel::supports_tool_search).
    ///
    /// The provider receives the definitions of all tools and shows the model those that it finds, in the same turn. They stay in the
    /// conversation, and the model calls them by their names. Nothing that was sent before changes.
    ///
    /// A model whose provider has no search, or none for so many tools, finds them as with [`bm25`](Self::bm25), to which
    /// [`call_through`](Self::call_through) and [`max_results`](Self::max_results) then apply.
    pub fn by_provider() -> Self {
        Self { is_by_provider: true, ..Self::bm25() }
    }

    /// Sets the number of tools from which on all are searched except those that are [always offered](Self::always_offer); 21 by
    /// default. With fewer tools, only [deferred](crate::model::ToolDefinition::with_deferred) ones are searched.
    pub fn min_tools(mut self, tools: usize) -> Self {
        self.min_tools = tools;
        self
    }

    /// Offers these tools from the first turn on: `tools![sum]`, any other set of tools of the agent, or names.
    pub fn always_offer(mut self, tools: impl IntoToolNames) -> Self {
        self.always.extend(tools.into_tool_names());
        self
    }

    /// Leaves the offered tools as they are when others are found, so that no byte of the request changes that the provider may
    /// have cached: `search_tools` returns the definitions in its result, and the model calls the tools by `call_tool`, with a name and
    /// the arguments.
    ///
    /// The run sees calls of the tools themselves: approval, limits, events, executions and stored conversations are the same as
    /// without search.
    pub fn call_through(mut self) -> Self {
        self.calls_through = true;
        self
    }

    /// Limits the number of tools that one search finds; 5 by default.
    pub fn max_results(mut self, tools: usize) -> Self {
        self.max_results = tools;
        self
    }

    /// Returns the way in which this model finds some of this number of tools.
    pub(super) fn mode(&self, model: &dyn ChatModel, tools: usize) -> Mode {
        match (self.is_by_provider, self.calls_through) {
            (true, _) if model.supports_tool_search(tools) => Mode::ByProvider,
            (_, true) => Mode::CallThrough,
            (_, false) => Mode::Append,
        }
    }

    /// Fails if a tool has the name of one of those that search.
    pub(in crate::agent) fn check_names(&self, tools: &ToolSet) -> Result<(), BuildError> {
        match RESERVED_NAMES.into_iter().find(|name| tools.get(name).is_some()) {
            Some(name) => Err(BuildErrorKind::SearchToolName(name.to_owned()).into()),
            None => Ok(()),
        }
    }

    /// Fails if a tool that is always offered does not exist.
    pub(in crate::agent) fn check_always(&self, tools: &ToolSet) -> Result<(), ToolSetError> {
        tools.only(self.always.iter().map(String::as_str)).map(drop)
    }
}

/// Tools that are given by their names: a [`ToolSet`], or a list of strings.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name tools",
    label = "neither a set of tools nor a list of names",
    note = "write `tools![sum]` for `#[tool]` functions, or `[\"sum\"]`"
)]
pub trait IntoToolNames {
    /// Returns the names.
    fn into_tool_names(self) -> Vec<String>;
}

impl IntoToolNames for ToolSet {
    fn into_tool_names(self) -> Vec<String> {
        (&self).into_tool_names()
    }
}

impl IntoToolNames for &ToolSet {
    fn into_tool_names(self) -> Vec<String> {
        self.definitions().names().map(str::to_owned).collect()
    }
}

impl<S: Into<String>, const N: usize> IntoToolNames for [S; N] {
    fn into_tool_names(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<S: Into<String>> IntoToolNames for Vec<S> {
    fn into_tool_names(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}
