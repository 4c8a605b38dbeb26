//! Putting an agent together.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::Shared;
use super::tools::ask_providers;
use super::trace;
use crate::agent::Agent;
use crate::content::Content;
use crate::model::{ChatModel, ModelOptions, ToolChoice};
use crate::run::{ErrorPolicies, RunLimits};
use crate::tool::{Budget, Tool, ToolContext};
use crate::toolset::{ToolProvider, ToolSet, ToolSetError};

/// How many calls of one turn run at once unless it is set.
const DEFAULT_MAX_CONCURRENT_CALLS: usize = 8;

/// Puts an [`Agent`] together; made by [`Agent::builder`].
pub struct AgentBuilder {
    pub(super) agent: Shared,
    tools: Vec<ToolSet>,
    pub(super) undo_tools: Vec<ToolSet>,
    max_output_chars: Option<Budget>,
    refused: Option<ToolSetError>,
}

impl AgentBuilder {
    pub(super) fn new(model: Arc<dyn ChatModel>) -> Self {
        let agent = Shared {
            name: None,
            model,
            instructions: None,
            tools: ToolSet::default(),
            providers: Vec::new(),
            ask_providers: None,
            context: ToolContext::new(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: None,
            limits: RunLimits::default(),
            on_error: ErrorPolicies::default(),
            on_tool_error: None,
            needs_approval: None,
            approver: None,
            undo_tools: ToolSet::default(),
            hooks: Vec::new(),
            before_turn: None,
            options: ModelOptions::default(),
            memory: None,
            run_store: None,
            call_timeout: None,
            max_concurrent_calls: DEFAULT_MAX_CONCURRENT_CALLS,
            #[allow(
                clippy::default_constructed_unit_structs,
                reason = "it is none with the feature `tracing`"
            )]
            trace: trace::Settings::default(),
        };
        Self { agent, tools: Vec::new(), undo_tools: Vec::new(), max_output_chars: None, refused: None }
    }

    /// What the agent is called by people: traces tell it from others by its name. The model is not told.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.agent.name = Some(name.into());
        self
    }

    /// What the model is told before every conversation.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<Content>) -> Self {
        self.agent.instructions = Some(instructions.into());
        self
    }

    /// Offers tools to the model. Called again, it adds more.
    #[must_use]
    pub fn tools(mut self, tools: impl Into<ToolSet>) -> Self {
        self.tools.push(tools.into());
        self
    }

    /// Offers one more tool to the model: one made of a closure, or any other [`Tool`].
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, FunctionTool};
    ///
    /// # fn main() -> Result<(), tool_core::BuildError> {
    /// let now = FunctionTool::new("now", || "12:30").with_description("Tells the time");
    /// let agent = Agent::builder(ScriptedModel::new()).tool(now).build()?;
    /// assert_eq!(agent.tools().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn tool(mut self, tool: impl Tool + 'static) -> Self {
        match ToolSet::default().with(tool) {
            Ok(set) => self.tools.push(set),
            // Told of when the agent is built.
            Err(error) => self.refused = self.refused.or(Some(error)),
        }
        self
    }

    /// Offers the tools that the provider gives for a question, behind the agent's own. Called again, it
    /// adds one more.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, ToolProviderRequest, tool, tools};
    ///
    /// #[tool("Reads a file")]
    /// fn read_file(path: String) -> String {
    ///     path
    /// }
    ///
    /// #[tool("Deletes a file")]
    /// fn delete_file(path: String) {}
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().expects(|request| request.tools().len() == 1).says("It says: hello");
    /// let files = tools![read_file, delete_file];
    /// let agent = Agent::builder(model)
    ///     .tool_provider(move |request: &ToolProviderRequest<'_>| match request.question().contains("delete") {
    ///         true => Ok(files.clone()),
    ///         false => files.without(["delete_file"]),
    ///     })
    ///     .build()?;
    /// agent.ask("What is in notes.txt?").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn tool_provider(mut self, provider: impl ToolProvider + 'static) -> Self {
        self.agent.providers.push(Box::new(provider));
        self.agent.ask_providers = Some(ask_providers);
        self
    }

    /// Hands a value to the tools of every run, through their [`ToolContext`].
    #[must_use]
    pub fn context<T: Any + Send + Sync>(mut self, value: T) -> Self {
        self.agent.context = self.agent.context.with(value);
        self
    }

    /// Whether the model may, must or must not call a tool. What it must, it must until it did.
    #[must_use]
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.agent.tool_choice = choice;
        self
    }

    /// Whether the model may call several tools in one turn; unset, the provider decides.
    #[must_use]
    pub fn parallel_tool_calls(mut self, may: bool) -> Self {
        self.agent.parallel_tool_calls = Some(may);
        self
    }

    /// How many characters of what one call gives back the model reads at most; without a limit unless it is set.
    /// See [`ToolSet::max_output_chars`].
    #[must_use]
    pub fn max_output_chars(mut self, characters: usize) -> Self {
        self.max_output_chars = Some(Budget::new(characters));
        self
    }

    /// The agent.
    ///
    /// # Errors
    ///
    /// Two tools have one name, a tool cannot be offered as it is, or the model must call a tool that there is not.
    pub fn build(mut self) -> Result<Agent, BuildError> {
        if let Some(error) = self.refused {
            return Err(BuildError(Kind::Tools(error)));
        }
        for more in &self.tools {
            self.agent.tools =
                self.agent.tools.union(more).map_err(|error| BuildError(Kind::Tools(error)))?;
        }
        for more in &self.undo_tools {
            self.agent.undo_tools =
                self.agent.undo_tools.union(more).map_err(|error| BuildError(Kind::Tools(error)))?;
        }
        refuse_missing_undo(&self.agent.tools, &self.agent.undo_tools)?;
        if let Some(budget) = self.max_output_chars {
            self.agent.tools = self.agent.tools.with_budget(budget);
        }
        // What providers give is known when they are asked.
        if self.agent.providers.is_empty() {
            refuse_choice(&self.agent.tool_choice, &self.agent.tools)?;
        }
        Ok(Agent(Arc::new(self.agent)))
    }
}

/// Refuses what the model must call if there is no such tool.
pub(super) fn refuse_choice(choice: &ToolChoice, tools: &ToolSet) -> Result<(), BuildError> {
    match choice {
        ToolChoice::Required if tools.is_empty() => Err(BuildError(Kind::NothingToChoose)),
        ToolChoice::Tool(name) if tools.get(name).is_none() => {
            Err(BuildError(Kind::UnknownChoice(name.clone())))
        }
        _ => Ok(()),
    }
}

/// Refuses tools whose calls could not be undone as they say.
pub(super) fn refuse_missing_undo(tools: &ToolSet, undo_tools: &ToolSet) -> Result<(), BuildError> {
    for definition in tools.definitions().iter() {
        let Some(undo) = definition.undo() else { continue };
        let (tool, undo) = (definition.name().to_owned(), undo.to_owned());
        let Some(undoing) = tools.get(&undo).or(undo_tools.get(&undo)) else {
            return Err(BuildError(Kind::MissingUndo { tool, undo }));
        };
        let takes = |name: &str| definition.parameters()["properties"].get(name).is_some();
        let required = undoing.definition().parameters()["required"].as_array().into_iter().flatten();
        if let Some(name) = required.filter_map(|name| name.as_str()).find(|name| !takes(name)) {
            let parameter = name.to_owned();
            return Err(BuildError(Kind::UndoOfOther { tool, undo, parameter }));
        }
    }
    Ok(())
}

impl fmt::Debug for AgentBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentBuilder").field("tools", &self.tools).finish_non_exhaustive()
    }
}

/// Why there is no agent.
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct BuildError(Kind);

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error(transparent)]
    Tools(ToolSetError),
    #[error("the model must call a tool, but there is none; add some with `tools`")]
    NothingToChoose,
    #[error("the model must call the tool `{0}`, but there is none of that name")]
    UnknownChoice(String),
    #[error(
        "the tool `{tool}` is undone by `{undo}`, but there is none of that name; add it with `undo_tools`"
    )]
    MissingUndo { tool: String, undo: String },
    #[error(
        "the tool `{tool}` is undone by `{undo}`, which needs `{parameter}`, but gets the arguments of `{tool}`, \
         which has none of that name; take what the call gave back, as `#[inject] undone: &Undone`"
    )]
    UndoOfOther { tool: String, undo: String, parameter: String },
}

impl BuildError {
    /// Two tools have one name.
    #[must_use]
    pub fn is_duplicate(&self) -> bool {
        matches!(&self.0, Kind::Tools(error) if error.is_duplicate())
    }

    /// The model must call a tool that there is not.
    #[must_use]
    pub fn is_impossible_choice(&self) -> bool {
        matches!(self.0, Kind::NothingToChoose | Kind::UnknownChoice(_))
    }
}

/// The text, so that a `main` that returns the error shows it readably.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
