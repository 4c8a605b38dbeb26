//! The error of building an agent.

use std::fmt;

use crate::run::RunErrorKind;
use crate::toolset::ToolSetError;

/// Why a user is refused where a value for tools is expected.
pub(super) const USER_IN_CONTEXT: &str =
    "a `RunUser` is no value for tools; say whose run it is with `Ask::user`";

/// The reason that an agent could not be built.
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct BuildError(#[from] BuildErrorKind);

/// The kind of a [`BuildError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildErrorKind {
    /// Two tools have the same name, or a tool is invalid.
    #[error(transparent)]
    Tools(ToolSetError),
    /// The model must call a tool, but there is none.
    #[error("the model must call a tool, but there is none; add one with `tools`")]
    NoToolToCall,
    /// The model must call the tool with this name, which does not exist.
    #[error("the model must call the tool `{0}`, which does not exist")]
    UnknownToolChoice(String),
    /// A tool of a question or of a provider has the name of a tool that undoes others.
    #[error(
        "the tool `{name}` has the name of {}; give it another name with `rename` or `prefix`",
        undoes.as_ref().map_or("a tool that undoes others".into(), |tool| format!("the tool that undoes `{tool}`"))
    )]
    ReservedName {
        /// The name of both tools.
        name: String,
        /// The tool that is undone by the tool of this name, if one is known.
        undoes: Option<String>,
    },
    /// A tool has the name of one by which the model [searches](crate::agent::AgentBuilder::tool_search) for tools.
    #[error(
        "the tool `{0}` uses a name reserved by tool search; give it another name with `rename` or `prefix`"
    )]
    SearchToolName(String),
    /// The tool that undoes another does not exist.
    #[error("the tool `{tool}` is undone by `{undo}`, which does not exist; add it with `undo_tools`")]
    MissingUndoTool {
        /// The tool to undo.
        tool: String,
        /// The name of the missing tool.
        undo: String,
    },
    /// The tool that undoes another requires an argument that the other tool does not have.
    #[error(
        "the tool `{tool}` is undone by `{undo}`, which requires `{parameter}` but receives the arguments of `{tool}`; \
         read the output of the undone call instead, with `#[inject] undone: &CallToUndo`"
    )]
    MissingUndoArgument {
        /// The tool to undo.
        tool: String,
        /// The tool that undoes it.
        undo: String,
        /// The required parameter.
        parameter: String,
    },
    /// The agent limits the cost of its runs, but has no prices.
    #[error("a cost limit needs prices; set `AgentBuilder::prices`")]
    NoPrices,
    /// The agent has an [output store](crate::agent::AgentBuilder::output_store), but no limit beyond which outputs are stored.
    #[error("an output store needs a limit, or nothing is stored; set `AgentBuilder::max_output_chars`")]
    NoOutputLimit,
    /// The agent has a [`RunUser`](crate::model::RunUser) for all of its runs.
    #[error("{USER_IN_CONTEXT}")]
    UserInContext,
    /// The agent [keeps finished runs](crate::agent::AgentBuilder::keep_finished), but stores none.
    #[error("finished runs are kept in a run store; set `AgentBuilder::run_store`")]
    NoRunStore,
    /// The agent limits the cost of its runs or has a budget, and its model does not report how long its answers are at most.
    #[error("{}", RunErrorKind::describe_unknown_answer_length(model))]
    #[non_exhaustive]
    UnknownAnswerLength {
        /// The name of the model; empty if it has none.
        model: String,
    },
    /// Two layers have this name.
    #[error("two layers are named `{0}`; give one another name, with `named` for a closure")]
    SameLayerName(String),
    /// A layer is invalid.
    #[error("the layer `{name}` is invalid: {reason}")]
    #[non_exhaustive]
    InvalidLayer {
        /// The name of the layer.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Allows `?` where a function assembles tools and builds the agent.
impl From<ToolSetError> for BuildError {
    fn from(error: ToolSetError) -> Self {
        Self(BuildErrorKind::Tools(error))
    }
}

impl BuildError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &BuildErrorKind {
        &self.0
    }
}

/// The message, so that a `main` that returns the error prints it readably.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
