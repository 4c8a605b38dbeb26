//! Putting an agent together.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{Agent, Shared};
use crate::tool::Budget;
use crate::{ChatModel, Content, ToolChoice, ToolContext, ToolSet, ToolSetError};

/// How many calls of one turn run at once unless it is set.
const DEFAULT_MAX_CONCURRENT_CALLS: usize = 8;

/// Puts an [`Agent`] together; made by [`Agent::builder`].
pub struct AgentBuilder {
    agent: Shared,
    tools: Vec<ToolSet>,
    max_output: Option<Budget>,
}

impl AgentBuilder {
    pub(super) fn new(model: Arc<dyn ChatModel>) -> Self {
        let agent = Shared {
            model,
            instructions: None,
            tools: ToolSet::default(),
            context: ToolContext::new(),
            tool_choice: ToolChoice::Auto,
            parallel_tool_calls: None,
            max_turns: None,
            max_concurrent_calls: DEFAULT_MAX_CONCURRENT_CALLS,
        };
        Self { agent, tools: Vec::new(), max_output: None }
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

    /// How often the model is asked in one run at most; 10 unless it is set, and at least 1.
    #[must_use]
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.agent.max_turns = Some(turns);
        self
    }

    /// How many calls of one turn run at once; 8 unless it is set, and at least 1.
    #[must_use]
    pub fn max_concurrent_calls(mut self, calls: usize) -> Self {
        self.agent.max_concurrent_calls = calls.max(1);
        self
    }

    /// How many characters of what one call gives back the model reads at most; without a limit unless it is set.
    /// See [`ToolSet::max_output`].
    #[must_use]
    pub fn max_output(mut self, characters: usize) -> Self {
        self.max_output = Some(Budget::new(characters));
        self
    }

    /// The agent.
    ///
    /// # Errors
    ///
    /// Two tools have one name, or the model must call a tool that there is not.
    pub fn build(mut self) -> Result<Agent, BuildError> {
        for more in &self.tools {
            self.agent.tools =
                self.agent.tools.union(more).map_err(|error| BuildError(Kind::Tools(error)))?;
        }
        if let Some(budget) = self.max_output {
            self.agent.tools = self.agent.tools.with_budget(budget);
        }
        match &self.agent.tool_choice {
            ToolChoice::Required if self.agent.tools.is_empty() => {
                return Err(BuildError(Kind::NothingToChoose));
            }
            ToolChoice::Tool(name) if self.agent.tools.get(name).is_none() => {
                return Err(BuildError(Kind::UnknownChoice(name.clone())));
            }
            _ => {}
        }
        Ok(Agent(Arc::new(self.agent)))
    }
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
