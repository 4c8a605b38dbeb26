//! An agent: a model, its instructions and its tools; and the drivers of its runs.

mod approver;
mod ask;
mod builder;
mod caller;
mod control;
mod event;
mod live;
mod observers;
mod tools;
mod trace;
mod turn;
mod typed;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::approver::{Approver, ApproverFuture};
pub use self::ask::Ask;
pub use self::builder::{AgentBuilder, BuildError};
pub use self::event::{Event, EventStream};
pub use self::live::RunDriver;
use self::observers::Hook;
use self::tools::AskProviders;
pub use self::turn::Turn;
pub use self::typed::{AnswerType, TypedAsk};
use crate::content::Content;
use crate::memory::{ChatMemory, MemoryError, RunStore};
use crate::model::{ChatModel, Message, ModelOptions, ToolCall, ToolChoice};
use crate::run::{ErrorPolicies, Run, RunLimits};
use crate::tool::{ToolContext, ToolError, ToolOutput};
use crate::toolset::{ToolProvider, ToolSet};

/// A model with instructions and tools, which can be asked. Cloning shares it.
///
#[cfg_attr(feature = "testing", doc = "```")]
#[cfg_attr(not(feature = "testing"), doc = "```ignore")]
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
/// # An agent as a tool of another
///
/// A tool that asks: the inner run is a run of its own, with its own limits, tokens, conversation and record, and is dropped with the
/// call. It has to come to an end in that call, so an inner agent whose tools need approval has an
/// [`approver`](AgentBuilder::approver): nobody could decide later. What its errors say is for the program, and not for the outer
/// model.
///
#[cfg_attr(feature = "testing", doc = "```")]
#[cfg_attr(not(feature = "testing"), doc = "```ignore")]
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, tool, tools};
///
/// struct Librarian(Agent); // a type of its own, as there may be several agents in a context
///
/// /// Answers questions about books.
/// #[tool(timeout = "1m")]
/// async fn ask_librarian(question: String, #[inject] librarian: &Librarian) -> Result<String, &'static str> {
///     let answer = librarian.0.ask(question).await.map_err(|_| "the librarian has no answer")?;
///     Ok(answer.text().to_owned())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let librarian = Agent::builder(ScriptedModel::new().says("Melville.")).max_turns(5).build()?;
/// let model = ScriptedModel::new()
///     .calls("ask_librarian", r#"{"question": "Who wrote Moby-Dick?"}"#)
///     .says("It was Melville.");
/// let agent = Agent::builder(model).tools(tools![ask_librarian]).context(Librarian(librarian)).build()?;
/// assert_eq!(agent.ask("Who wrote Moby-Dick?").await?.messages()[2].text(), "Melville.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Agent(Arc<Shared>);

struct Shared {
    name: Option<String>,
    model: Arc<dyn ChatModel>,
    instructions: Option<Content>,
    tools: ToolSet,
    providers: Vec<Box<dyn ToolProvider>>,
    ask_providers: Option<AskProviders>,
    context: ToolContext,
    tool_choice: ToolChoice,
    parallel_tool_calls: Option<bool>,
    limits: RunLimits,
    on_error: ErrorPolicies,
    on_tool_error: Option<Box<ErrorHandler>>,
    needs_approval: Option<Box<NeedsApproval>>,
    approver: Option<Arc<dyn Approver>>,
    undo_tools: ToolSet,
    hooks: Vec<Hook>,
    before_turn: Option<Box<BeforeTurn>>,
    options: ModelOptions,
    memory: Option<ChatMemory>,
    run_store: Option<Box<dyn RunStore>>,
    call_timeout: Option<Duration>,
    max_concurrent_calls: usize,
    trace: trace::Settings,
}

/// Answers in the place of a call that failed.
type ErrorHandler = dyn Fn(&ToolCall, &ToolError) -> Option<Result<ToolOutput, ToolError>> + Send + Sync;

/// Changes what the model is about to be asked.
type BeforeTurn = dyn Fn(&mut Turn<'_>) + Send + Sync;

/// Whether a person has to approve a call.
type NeedsApproval = dyn Fn(&ToolCall) -> bool + Send + Sync;

impl Agent {
    /// An agent on this model.
    pub fn builder(model: impl ChatModel + 'static) -> AgentBuilder {
        AgentBuilder::new(Arc::new(model))
    }

    /// Asks; await it for the [`Answer`](crate::Answer), or call [`stream`](Ask::stream) on it for what
    /// happens on the way. Nothing happens before that.
    pub fn ask(&self, question: impl Into<Content>) -> Ask {
        Ask::new(self.clone(), question.into())
    }

    /// Starts a run that the caller drives by hand, step by step; nothing is asked yet. The same as
    /// [`ask(..).start()`](Ask::start).
    pub fn start(&self, question: impl Into<Content>) -> RunDriver {
        self.ask(question).start()
    }

    /// Drives on a run that was kept, by this agent's model and tools: it asks for what has no record yet.
    /// Await it or stream it, as a question.
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
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

    /// The agent's [name](AgentBuilder::name), if it was given one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// The model.
    #[must_use]
    pub fn model(&self) -> &dyn ChatModel {
        &*self.0.model
    }

    /// The agent's own tools. The model is offered them, beside those of the
    /// [question](Ask::tools) and of the [providers](AgentBuilder::tool_provider).
    #[must_use]
    pub fn tools(&self) -> &ToolSet {
        &self.0.tools
    }

    /// The runs that are kept, in the order of their ids: those that were interrupted, and those that wait for a person. None if
    /// the agent keeps [none](AgentBuilder::run_store).
    ///
    #[cfg_attr(feature = "testing", doc = "```")]
    #[cfg_attr(not(feature = "testing"), doc = "```ignore")]
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, Approval, InMemoryStore, tool, tools};
    ///
    /// #[tool("Pays a bill", needs_approval)]
    /// fn pay(cents: u32) {}
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("pay", r#"{"cents": 700}"#).says("Paid.");
    /// let agent = Agent::builder(model).tools(tools![pay]).run_store(InMemoryStore::new()).build()?;
    /// assert!(agent.ask("Pay the bill").await.unwrap_err().is_approval_needed());
    ///
    /// // Later, with a store on disk also in another process:
    /// for mut run in agent.kept_runs().await? {
    ///     run.resolve_all_approvals(&Approval::Approve);
    ///     assert_eq!(agent.resume(run).await?.text(), "Paid.");
    /// }
    /// assert!(agent.kept_runs().await?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Nothing keeps two processes from resuming one run: whoever has several decides which of them does.
    ///
    /// # Errors
    ///
    /// The store cannot be read.
    pub async fn kept_runs(&self) -> Result<Vec<Run>, MemoryError> {
        let mut runs = Vec::new();
        let Some(store) = &self.0.run_store else { return Ok(runs) };
        for id in store.runs().await.map_err(MemoryError::stored_runs)? {
            // One may be over by now.
            runs.extend(store.load_run(&id).await.map_err(MemoryError::stored_runs)?);
        }
        Ok(runs)
    }

    /// The agent has an [approver](AgentBuilder::approver), so no run of it waits for a person.
    #[must_use]
    pub fn has_approver(&self) -> bool {
        self.0.approver.is_some()
    }

    /// The agent's [approver](AgentBuilder::approver), for one of a question that asks it, too.
    #[must_use]
    pub fn approver(&self) -> Option<Arc<dyn Approver>> {
        self.0.approver.clone()
    }

    /// A run of this agent: its instructions, what was said before, and the question.
    fn run(&self, history: Vec<Message>, question: Content) -> Run {
        let instructions = self.0.instructions.clone().map(Message::System);
        let messages: Vec<_> =
            instructions.into_iter().chain(history).chain([Message::User(question)]).collect();
        Run::new(messages)
            .with_limits(self.0.limits.clone())
            .with_error_policy(self.0.on_error.clone())
            .with_tool_choice(self.0.tool_choice.clone())
            .with_parallel_tool_calls(self.0.parallel_tool_calls)
            .with_options(self.0.options.clone())
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("tools", &self.0.tools).finish_non_exhaustive()
    }
}
