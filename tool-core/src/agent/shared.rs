//! An agent: its model, instructions, tools and options, which its clones share.
//!
//! The page and the servers watch an agent and give it a store by hidden methods, and clones of the agent share both, because a program
//! that asks its own clone expects to see that run on the page.

use std::any::type_name;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use super::compaction::{Compaction, LongOutputs};
use super::emitter::Hook;
use super::replay::StandIn;
use super::run_setup::OpenRun;
use super::spending::ModelInfos;
use super::stored_run_options::StoredRunOptions;
use super::tool_search::Divided;
use super::trace;
use super::undo_tools::UndoTools;
use crate::agent::{Decider, ToolSearch};
use crate::content::{self, Content};
use crate::layer::Layer;
use crate::memory::{ChatMemory, KeyedBudget, RunStore};
use crate::model::{ChatModel, ChatRequest, Message, ModelOptions, Prices, RunUser, ToolChoice};
use crate::run::{AgentSettings, ErrorPolicies, QuestionSettings, Run, RunId, RunLimits};
use crate::tool::ToolContext;
use crate::toolset::{ToolProvider, ToolSet};

/// A model with instructions and tools that answers questions. Clones share the same agent.
///
/// ```
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, tool, tools};
///
/// /// Sums two numbers.
/// #[tool]
/// fn sum(a: f64, b: f64) -> f64 {
///     a + b
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("sum", r#"{"a": 2, "b": 40}"#).says("It is 42.");
/// let agent = Agent::builder(model)
///     .instructions("Use the tools for arithmetic.")
///     .tools(tools![sum])
///     .build()?;
/// let answer = agent.ask("What is 2 + 40?").await?;
/// assert_eq!(answer.text(), "It is 42.");
/// let output = answer.tool_executions()[0].output().map(ToString::to_string);
/// assert_eq!(output.as_deref(), Some("42.0"));
/// # Ok(())
/// # }
/// ```
///
/// [`as_tool`](Self::as_tool) makes it a tool of another agent.
#[derive(Clone)]
pub struct Agent(pub(super) Arc<Shared>);

pub(super) struct Shared {
    pub(super) name: Option<String>,
    pub(super) model: Arc<dyn ChatModel>,
    pub(super) instructions: Option<Content>,
    pub(super) tools: ToolSet,
    pub(super) providers: Vec<Box<dyn ToolProvider>>,
    pub(super) context: ToolContext,
    pub(super) tool_choice: ToolChoice,
    pub(super) parallel_tool_calls: Option<bool>,
    pub(super) limits: RunLimits,
    pub(super) error_policies: ErrorPolicies,
    pub(super) layers: Vec<Arc<dyn Layer>>,
    pub(super) deciders: Vec<Arc<dyn Decider>>,
    pub(super) undo_tools: ToolSet,
    /// The agents that runs are handed off to, by the names of the tools.
    pub(super) handoffs: Vec<(String, Agent)>,
    /// All tools that undo the agent's tools, offered or not.
    pub(super) bound_undo_tools: UndoTools,
    /// The search, and the division of the agent's own tools.
    pub(super) tool_search: Option<(ToolSearch, Mutex<Option<Arc<Divided>>>)>,
    pub(super) hooks: Vec<Hook>,
    pub(super) watchers: RwLock<Vec<Box<Watcher>>>,
    pub(super) request_watchers: RwLock<Vec<Box<RequestWatcher>>>,
    pub(super) sends_earlier_turns: bool,
    pub(super) compaction: Option<Compaction>,
    pub(super) tracks_cache: bool,
    pub(super) outputs: Option<LongOutputs>,
    pub(super) options: ModelOptions,
    pub(super) memory: Option<ChatMemory>,
    pub(super) run_store: OnceLock<Arc<dyn RunStore>>,
    pub(super) stored_runs: StoredRunOptions,
    pub(super) call_timeout: Option<Duration>,
    pub(super) max_concurrent_calls: usize,
    pub(super) trace: trace::Settings,
    pub(super) prices: Option<Prices>,
    pub(super) budgets: Vec<KeyedBudget>,
    pub(super) run_setup: Option<Arc<dyn OpenRun>>,
    /// It was said that runs lose values.
    pub(super) has_warned: OnceLock<()>,
    /// What the agent's models are known to allow.
    pub(super) model_infos: Arc<ModelInfos>,
    /// What stands in for models and tools, if runs are repeated.
    pub(super) stand_in: Option<Arc<StandIn>>,
}

/// Returns the hook of a run that starts or is resumed.
type Watcher = dyn Fn(&Run) -> Hook + Send + Sync;

/// Receives each request to the model, with the id of the run and the number of the turn.
type RequestWatcher = dyn Fn(&RunId, u32, &ChatRequest<'_>) + Send + Sync;

impl Shared {
    /// Returns `true` if the model can be offered the tool that reads what it does not read in full.
    pub(super) fn reads_back(&self) -> bool {
        self.compaction.is_some() || self.outputs.is_some()
    }
}

impl Agent {
    /// Returns the agent's [name](crate::agent::AgentBuilder::name), if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Returns the agent's model.
    #[must_use]
    pub fn model(&self) -> &dyn ChatModel {
        &*self.0.model
    }

    /// Returns the agent's own tools. The model is also offered the tools of the [question](crate::agent::Ask::tools) and of the
    /// [providers](crate::agent::AgentBuilder::tool_provider).
    #[must_use]
    pub fn tools(&self) -> &ToolSet {
        &self.0.tools
    }

    /// Returns the [providers](crate::agent::AgentBuilder::tool_provider), which add tools to each question.
    pub fn tool_providers(&self) -> impl ExactSizeIterator<Item = &dyn ToolProvider> {
        self.0.providers.iter().map(|provider| &**provider)
    }

    /// Returns the tools that [undo](crate::agent::AgentBuilder::undo_tools) others and are not offered to the model.
    #[must_use]
    pub fn undo_tools(&self) -> &ToolSet {
        &self.0.undo_tools
    }

    /// Returns the [limits](crate::agent::AgentBuilder::limits) of the agent's runs. A question can [change](crate::agent::Ask::limits) some of them.
    pub fn limits(&self) -> &RunLimits {
        &self.0.limits
    }

    /// Returns the agent's [memory](crate::agent::AgentBuilder::memory), for example to show a conversation.
    #[must_use]
    pub fn memory(&self) -> Option<&ChatMemory> {
        self.0.memory.as_ref()
    }

    /// Returns the agent's [run store](crate::agent::AgentBuilder::run_store), for example to show its runs.
    #[must_use]
    pub fn run_store(&self) -> Option<&Arc<dyn RunStore>> {
        self.0.run_store.get()
    }

    pub(super) fn watch_request(&self, run: &RunId, turn: u32, request: &ChatRequest<'_>) {
        let watchers = self.0.request_watchers.read().unwrap_or_else(PoisonError::into_inner);
        watchers.iter().for_each(|watcher| watcher(run, turn, request));
    }

    /// Returns the hooks of the watchers for a run.
    pub(super) fn watch_run(&self, run: &Run) -> Vec<Hook> {
        let watchers = self.0.watchers.read().unwrap_or_else(PoisonError::into_inner);
        watchers.iter().map(|watcher| watcher(run)).collect()
    }

    /// Says once that stored runs lose the values that only their questions have: neither this agent nor the application gives them.
    pub(super) fn warn_of_lost_values(&self, context: &ToolContext, given: &ToolContext) {
        let known = given.clone().with_defaults(&self.0.context).type_names();
        let lost = context
            .type_names()
            .into_iter()
            .filter(|name| !known.contains(name) && *name != type_name::<RunUser>());
        let lost: Vec<_> = lost.collect();
        if !lost.is_empty() && self.0.has_warned.set(()).is_ok() {
            trace::warn_of_lost_values(&lost.join(", "));
        }
    }

    /// Creates a run with the instructions, the history and the question.
    pub(super) fn new_run(
        &self,
        settings: QuestionSettings,
        history: Vec<Message>,
        question: Content,
    ) -> Run {
        let mut settings = self.run_settings(settings);
        let instructions = settings.instructions.take().map(Message::System);
        let messages: Vec<_> =
            instructions.into_iter().chain(history).chain([Message::User(question)]).collect();
        let mut run = Run::new(messages).with_limits(self.0.limits.clone());
        run.set_agent_settings(settings);
        run
    }

    /// Returns the settings of this agent's part of a run, with the settings of the question.
    pub(super) fn run_settings(&self, question: QuestionSettings) -> AgentSettings {
        AgentSettings {
            instructions: join_instructions(question.instructions, self.0.instructions.clone()),
            error_policies: self.0.error_policies.clone(),
            tool_choice: self.0.tool_choice.clone(),
            parallel_tool_calls: self.0.parallel_tool_calls,
            options: question.options.or(&self.0.options),
        }
    }
}

/// Joins instructions. The result is one message, because some models accept no second system message.
pub(super) fn join_instructions(first: Option<Content>, second: Option<Content>) -> Option<Content> {
    match (first, second) {
        (Some(first), Some(second)) if first.images().chain(second.images()).next().is_none() => {
            Some(Content::from(format!("{first}\n\n{second}")))
        }
        (Some(first), Some(second)) => {
            let parts = first.into_parts().into_iter().chain([content::Part::from("\n\n")]);
            Some(parts.chain(second.into_parts()).collect())
        }
        (first, second) => first.or(second),
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("tools", &self.0.tools).finish_non_exhaustive()
    }
}
