//! The agent: a model with instructions and tools, and the drivers of its runs.

mod agent_tool;
mod answerer;
mod approver;
mod ask;
pub(crate) mod assistant;
mod builder;
mod build_error;
mod call_rules;
mod gate;
mod proposed;
mod delegation;
mod driver;
mod emitter;
mod event;
#[cfg(feature = "unstable-internals")]
mod execute_request;
mod executor;
mod handoff;
mod lock;
mod outcome;
mod run_options;
mod run_tools;
mod stored_run_options;
mod tool_search;
mod trace;
mod turn;
mod typed;
mod undo_tools;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

pub use self::agent_tool::AgentTool;
pub use self::answerer::{Answerer, AnswererFuture};
pub use self::approver::{Approver, ApproverFuture};
pub use self::ask::Ask;
pub use self::build_error::{BuildError, BuildErrorKind};
pub use self::builder::AgentBuilder;
pub use self::driver::RunDriver;
use self::emitter::Hook;
pub use self::event::{Event, EventStream};
pub use self::outcome::Outcome;
use self::proposed::{ExecuteCallsIf, NeedsApproval};
pub use self::proposed::{ProposedCall, ProposedReply};
use self::stored_run_options::StoredRunOptions;
pub use self::stored_run_options::{OnDrop, WhileWaiting};
use self::tool_search::Divided;
pub use self::tool_search::{IntoToolNames, ToolSearch};
pub use self::turn::Turn;
pub use self::typed::{AnswerType, TypedAsk};
use self::undo_tools::UndoTools;
use crate::content::{Content, Part};
use crate::memory::{
    ChatMemory, MemoryError, PostOutcome, RunCommand, RunStore, StoredRun, StoredRuns, post,
};
use crate::model::{ChatModel, Message, ModelOptions, ToolCall, ToolChoice};
use crate::run::{AgentSettings, ErrorPolicies, QuestionSettings, Run, RunError, RunErrorKind, RunLimits};
use crate::tool::{ToolContext, ToolError, ToolOutput};
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
pub struct Agent(Arc<Shared>);

struct Shared {
    name: Option<String>,
    model: Arc<dyn ChatModel>,
    instructions: Option<Content>,
    tools: ToolSet,
    providers: Vec<Box<dyn ToolProvider>>,
    context: ToolContext,
    tool_choice: ToolChoice,
    parallel_tool_calls: Option<bool>,
    limits: RunLimits,
    error_policies: ErrorPolicies,
    on_tool_error: Option<Box<ErrorHandler>>,
    needs_approval: Option<Box<NeedsApproval>>,
    execute_calls_if: Option<Arc<ExecuteCallsIf>>,
    approver: Option<Arc<dyn Approver>>,
    answerer: Option<Arc<dyn Answerer>>,
    undo_tools: ToolSet,
    /// The agents that runs are handed off to, by the names of the tools.
    handoffs: Vec<(String, Agent)>,
    /// All tools that undo those of the agent, offered or not.
    bound_undo_tools: UndoTools,
    /// The search, and the division of the agent's own tools.
    tool_search: Option<(ToolSearch, Mutex<Option<Arc<Divided>>>)>,
    hooks: Vec<Hook>,
    watchers: RwLock<Vec<Box<Watcher>>>,
    before_turn: Option<Box<BeforeTurn>>,
    sends_earlier_turns: bool,
    options: ModelOptions,
    memory: Option<ChatMemory>,
    run_store: Option<Arc<dyn RunStore>>,
    stored_runs: StoredRunOptions,
    call_timeout: Option<Duration>,
    max_concurrent_calls: usize,
    trace: trace::Settings,
}

/// Replaces the outcome of a failed call.
type ErrorHandler = dyn Fn(&ToolCall, &ToolError) -> Option<Result<ToolOutput, ToolError>> + Send + Sync;

/// Returns the hook of a run that starts or is resumed.
type Watcher = dyn Fn(&Run) -> Hook + Send + Sync;

/// Changes the next request to the model.
type BeforeTurn = dyn Fn(&mut Turn<'_>) + Send + Sync;

impl Agent {
    /// Returns a builder for an agent with this model.
    pub fn builder(model: impl ChatModel + 'static) -> AgentBuilder {
        AgentBuilder::new(Arc::new(model))
    }

    /// Asks a question. Await the result for the [`Answer`](crate::Answer), or call [`stream`](Ask::stream) on it for the
    /// events on the way. No request is sent before that.
    pub fn ask(&self, question: impl Into<Content>) -> Ask {
        Ask::new(self.clone(), question.into())
    }

    /// Starts a run that the caller drives step by step; no request is sent yet. Short for
    /// [`ask(..).start()`](Ask::start).
    pub fn start(&self, question: impl Into<Content>) -> RunDriver {
        self.ask(question).start()
    }

    /// Resumes a stored run with this agent's model and tools. Work that the run has recorded is not repeated. Await the
    /// result or stream it, as with [`ask`](Self::ask).
    ///
    /// ```
    /// use tool_core::Agent;
    /// use tool_core::testing::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new().fails("the line is dead").says("Good morning!")).build()?;
    /// let error = agent.ask("Hello").await.unwrap_err();
    /// let answer = agent.resume(error.into_run()).await?;
    /// assert_eq!(answer.text(), "Good morning!");
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume(&self, run: Run) -> Ask {
        Ask::resume(self.clone(), run)
    }

    /// Returns the agent's [name](AgentBuilder::name), if it has one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Returns the agent's model.
    #[must_use]
    pub fn model(&self) -> &dyn ChatModel {
        &*self.0.model
    }

    /// Returns the agent's own tools. The model is also offered those of the [question](Ask::tools) and of the
    /// [providers](AgentBuilder::tool_provider).
    #[must_use]
    pub fn tools(&self) -> &ToolSet {
        &self.0.tools
    }

    /// Returns the tools that [undo](AgentBuilder::undo_tools) others and are not offered to the model.
    #[must_use]
    pub fn undo_tools(&self) -> &ToolSet {
        &self.0.undo_tools
    }

    /// Returns the stored runs, ordered by id, each with its [status](crate::memory::RunStatus): those that were interrupted, wait
    /// for approvals or results, have failed, were cancelled, or are running elsewhere. Empty for an agent without a
    /// [run store](AgentBuilder::run_store).
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::memory::{InMemoryStore, RunStatus};
    /// use tool_core::{Agent, Approval, RunErrorKind, tool, tools};
    ///
    /// #[tool("Pays a bill", needs_approval)]
    /// fn pay(cents: u32) {}
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("pay", r#"{"cents": 700}"#).says("Paid.");
    /// let agent = Agent::builder(model).tools(tools![pay]).run_store(InMemoryStore::new()).build()?;
    /// let error = agent.ask("Pay the bill").await.unwrap_err();
    /// assert!(matches!(error.kind(), RunErrorKind::Waiting));
    ///
    /// // Later; with a store on disk, this can be another process:
    /// for mut stored in agent.stored_runs().await?.runs {
    ///     assert_eq!(stored.status, RunStatus::Waiting);
    ///     stored.run.resolve_all_approvals(&Approval::Approve);
    ///     assert_eq!(agent.resume(stored.run).await?.text(), "Paid.");
    /// }
    /// assert!(agent.stored_runs().await?.runs.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If a run is resumed twice, even by two processes at once, one of them continues. The other one executes nothing and fails
    /// with [`RunErrorKind::RunningElsewhere`], or with
    /// [`RunErrorKind::Conflict`] if its copy of the run is outdated. A driver holds a
    /// [lease](AgentBuilder::run_lease) of its run. After a crash, the run is free when the lease has expired; it is then
    /// taken over, and its calls in flight count as interrupted. A process that was only suspended fails at its next step, but an
    /// effect that it had started before can still happen.
    ///
    /// # Errors
    ///
    /// Fails if the runs cannot be listed. A run that cannot be read is among the [`unreadable`](StoredRuns::unreadable).
    pub async fn stored_runs(&self) -> Result<StoredRuns, MemoryError> {
        match &self.0.run_store {
            Some(store) => StoredRuns::load(&**store, self.0.stored_runs.max_age).await,
            None => Ok(StoredRuns::default()),
        }
    }

    /// Returns the stored run with this id and its status, or `None` if there is none, for example because it has ended.
    ///
    /// # Errors
    ///
    /// Fails if the run cannot be read.
    pub async fn stored_run(&self, id: &str) -> Result<Option<StoredRun>, MemoryError> {
        match &self.0.run_store {
            Some(store) => StoredRun::load(&**store, id, self.0.stored_runs.max_age).await,
            None => Ok(None),
        }
    }

    /// Posts a command to a stored run, whether another process drives it or nobody does: a driver that works on it, or the one
    /// that resumes it, takes the command before its next step. A cancellation interrupts a driver within a tenth of its
    /// [lease](AgentBuilder::run_lease).
    ///
    /// The store takes every command, so check before that the caller may decide, and post only ids that were among the calls
    /// that [await approval](Run::awaiting_approval).
    ///
    /// ```
    /// use tool_core::memory::{InMemoryStore, RunCommand, RunStatus};
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, Approval, tool, tools};
    ///
    /// #[tool("Pays a bill", needs_approval)]
    /// fn pay(cents: u32) {}
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("pay", r#"{"cents": 700}"#).says("Paid.");
    /// let agent = Agent::builder(model).tools(tools![pay]).run_store(InMemoryStore::new()).build()?;
    /// let waiting = agent.ask("Pay the bill").await.unwrap_err().into_run();
    ///
    /// // A click on "approve", in any process:
    /// let call = waiting.awaiting_approval().next().ok_or("no call")?;
    /// let _ = agent.post(waiting.id().as_str(), RunCommand::resolve_approval(&call.id, Approval::Approve)).await?;
    /// if let Some(stored) = agent.stored_run(waiting.id().as_str()).await?
    ///     && stored.status != RunStatus::RunningElsewhere
    /// {
    ///     assert_eq!(agent.resume(stored.run).await?.text(), "Paid.");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be stored.
    pub async fn post(&self, run: &str, command: RunCommand) -> Result<PostOutcome, MemoryError> {
        match &self.0.run_store {
            Some(store) => post(&**store, run, command).await,
            None => Ok(PostOutcome::Unsupported),
        }
    }

    /// Ends a run that nobody wants to continue: its calls are undone if their tools support it, and it leaves the store. To
    /// leave everything as it is, [remove](RunStore::remove_run) it from the store instead. A run that has an answer already
    /// keeps it.
    ///
    /// # Errors
    ///
    /// Fails if another driver works on the run, which a posted [`RunCommand::Cancel`] ends, or if the run cannot be driven to
    /// its end.
    pub async fn discard(&self, mut run: Run) -> Result<(), RunError> {
        run.cancel();
        match self.resume(run).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), RunErrorKind::Stopped(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the [limits](AgentBuilder::limits) of the agent's runs. A question can [change](Ask::limits) some of them.
    pub fn limits(&self) -> &RunLimits {
        &self.0.limits
    }

    /// Returns the agent's [memory](AgentBuilder::memory), for example to show a conversation.
    #[must_use]
    pub fn memory(&self) -> Option<&ChatMemory> {
        self.0.memory.as_ref()
    }

    /// Returns `true` if the agent has an [approver](AgentBuilder::approver).
    #[must_use]
    pub fn has_approver(&self) -> bool {
        self.0.approver.is_some()
    }

    /// Returns the agent's [answerer](AgentBuilder::answerer), for example to call it from the answerer of a question.
    #[must_use]
    pub fn answerer(&self) -> Option<Arc<dyn Answerer>> {
        self.0.answerer.clone()
    }

    /// Returns the agent's [approver](AgentBuilder::approver), for example to call it from the approver of a question.
    #[must_use]
    pub fn approver(&self) -> Option<Arc<dyn Approver>> {
        self.0.approver.clone()
    }

    /// Returns the agent's [run store](AgentBuilder::run_store), for example to show its runs.
    #[must_use]
    pub fn run_store(&self) -> Option<&Arc<dyn RunStore>> {
        self.0.run_store.as_ref()
    }

    /// Registers a watcher of all later runs of this agent and its clones, for as long as they live. It is called with each run that
    /// starts or is resumed, and returns a [hook](AgentBuilder::on_event) that receives the events of that run, with those of the
    /// agents that its calls ask. The hook is dropped with the driver of the run.
    ///
    /// ```
    /// use std::sync::{Arc, Mutex};
    ///
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, Event};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new().says("Good morning!")).build()?;
    /// let done = Arc::new(Mutex::new(Vec::new()));
    /// let ids = Arc::clone(&done);
    /// agent.watch(move |run| {
    ///     let (id, ids) = (run.id().clone(), Arc::clone(&ids));
    ///     move |event: &Event| {
    ///         if let Event::Done(_) = event {
    ///             ids.lock().unwrap().push(id.clone());
    ///         }
    ///     }
    /// });
    /// agent.ask("Hello").await?;
    /// assert_eq!(done.lock().unwrap().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn watch<H>(&self, watcher: impl Fn(&Run) -> H + Send + Sync + 'static)
    where
        H: Fn(&Event) + Send + Sync + 'static,
    {
        let mut watchers = self.0.watchers.write().unwrap_or_else(PoisonError::into_inner);
        watchers.push(Box::new(move |run| Arc::new(watcher(run))));
    }

    /// Returns the hooks of the watchers for a run.
    fn watch_run(&self, run: &Run) -> Vec<Hook> {
        let watchers = self.0.watchers.read().unwrap_or_else(PoisonError::into_inner);
        watchers.iter().map(|watcher| watcher(run)).collect()
    }

    /// Returns `true` if the agent has a [run store](AgentBuilder::run_store).
    #[cfg(feature = "unstable-internals")]
    #[must_use]
    pub fn has_run_store(&self) -> bool {
        self.0.run_store.is_some()
    }

    /// Returns `true` if the agent's model [searches for tools](AgentBuilder::tool_search).
    #[cfg(feature = "unstable-internals")]
    #[must_use]
    pub fn has_tool_search(&self) -> bool {
        self.0.tool_search.is_some()
    }

    /// Returns `true` if the agent [hands runs over](AgentBuilder::handoff_to) to other agents.
    #[cfg(feature = "unstable-internals")]
    #[must_use]
    pub fn has_handoffs(&self) -> bool {
        !self.0.handoffs.is_empty()
    }

    /// Returns `true` if the agent decides per response [whether it executes the calls](AgentBuilder::execute_calls_if).
    #[cfg(feature = "unstable-internals")]
    #[must_use]
    pub fn has_execute_calls_if(&self) -> bool {
        self.0.execute_calls_if.is_some()
    }

    /// Returns the number of calls of one turn that run [at the same time](AgentBuilder::max_concurrent_calls).
    #[must_use]
    pub fn max_concurrent_calls(&self) -> usize {
        self.0.max_concurrent_calls
    }

    /// Creates a run with the instructions, the history and the question.
    fn new_run(&self, settings: QuestionSettings, history: Vec<Message>, question: Content) -> Run {
        let mut settings = self.run_settings(settings);
        let instructions = settings.instructions.take().map(Message::System);
        let messages: Vec<_> =
            instructions.into_iter().chain(history).chain([Message::User(question)]).collect();
        let mut run = Run::new(messages).with_limits(self.0.limits.clone());
        run.set_agent_settings(settings);
        run
    }

    /// Returns the settings of this agent's part of a run, with those of the question.
    fn run_settings(&self, question: QuestionSettings) -> AgentSettings {
        AgentSettings {
            instructions: join_instructions(question.instructions, self.0.instructions.clone()),
            error_policies: self.0.error_policies.clone(),
            tool_choice: self.0.tool_choice.clone(),
            parallel_tool_calls: self.0.parallel_tool_calls,
            options: question.options.or(&self.0.options),
        }
    }
}

/// Joins the instructions of a question with those of an agent. The result is one message, because some models accept no second
/// system message.
fn join_instructions(question: Option<Content>, agent: Option<Content>) -> Option<Content> {
    match (question, agent) {
        (Some(first), Some(second)) if first.images().chain(second.images()).next().is_none() => {
            Some(Content::from(format!("{first}\n\n{second}")))
        }
        (Some(first), Some(second)) => {
            let parts = first.into_parts().into_iter().chain([Part::from("\n\n")]);
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
