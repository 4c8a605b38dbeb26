//! The error of driving a run.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;

use crate::layer::LayerFailure;
use crate::model::{Cost, Message, ModelError, ToolDefinition};
use crate::run::{ResolveError, Run, StepError, StopReason};
use crate::tool::{Timestamp, ToolExecution};
use crate::toolset::MissingContext;
use crate::transcript::Transcript;

/// The error of driving a run that returned without an answer. It carries the run, so no work is lost.
///
/// `Display` is for the operator of the program and can contain the text of a tool's error. The text for a
/// user depends on what can be done about the error:
///
/// ```
/// use tool_core::run::StopReason;
/// use tool_core::{RunError, RunErrorKind};
///
/// fn user_message(error: &RunError) -> &'static str {
///     match error.kind() {
///         RunErrorKind::Waiting => "Somebody has to decide about this first.", // resolve, then resume
///         RunErrorKind::Model(_) => "The service is busy. Please try again.", // is_resumable() holds
///         RunErrorKind::Stopped(StopReason::Refused(_)) => "I cannot help with that.",
///         RunErrorKind::Stopped(StopReason::Cancelled) => "Stopped.",
///         RunErrorKind::Stopped(StopReason::MaxTime(_)) => "This took too long.",
///         RunErrorKind::Stopped(StopReason::ToolFailed { .. }) => "A service that I depend on failed.",
///         RunErrorKind::Stopped(reason) if reason.is_limit() => {
///             "This was too much at once. Please ask for less."
///         }
///         _ => "Something went wrong.",
///     }
/// }
/// ```
///
/// A conversation can continue after a run that is not [resumable](Self::is_resumable): pass the run's
/// [`new_messages`](Self::new_messages), after the earlier ones, as the [`history`](crate::agent::Ask::history) of the next question. A
/// [memory](crate::agent::AgentBuilder::memory) does not do this by itself, because it stores only runs that have an answer.
pub struct RunError {
    kind: RunErrorKind,
    run: Box<Run>,
    /// The reasons why calls need approval, and the ways to avoid that.
    approval_reasons: Vec<String>,
}

/// The kind of a [`RunError`], with the underlying error.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunErrorKind {
    /// The run ended for good.
    Stopped(StopReason),
    /// Every open call [waits](Run::waits), for an approval, an answer, a result of the caller or a point in time. Store the
    /// [run](RunError::into_run), [resolve](Run::resolve) each wait, and [resume](crate::Agent::resume) the run.
    Waiting,
    /// The request to the model failed.
    Model(ModelError),
    /// The next request can cost more than [`max_cost`](crate::run::RunLimits::max_cost) leaves. It was not sent, or its answer was cut
    /// off in the middle of calls, and none of them was executed. The run can be [resumed](crate::Agent::resume) with a [higher
    /// limit](crate::agent::Ask::limits).
    #[non_exhaustive]
    MaxCost {
        /// What the run has spent, with the agents that it asked.
        spent: Cost,
        /// The limit.
        limit: Cost,
        /// The least that the next request can cost at worst.
        needed: Cost,
    },
    /// A [budget](crate::memory::Budget) of the question is used up, or the next request is too long for what is left of it. It was not
    /// sent, or its answer was cut off in the middle of calls, and none of them was executed. The run can be resumed later.
    #[non_exhaustive]
    Budget {
        /// The key of the budget.
        key: String,
        /// What is left, in tokens or millionths of a unit of the currency: 0 if the budget is used up.
        left: u64,
        /// The time at which its period ends, and the next one begins.
        ends: Timestamp,
    },
    /// All that is left of a [budget](crate::memory::Budget) of the question is reserved for another request, whose cost is only
    /// estimated, and the run's [time](crate::run::RunLimits::max_time), or a minute without a limit of it, was up before that was settled. No
    /// request was sent to the model. The run can be resumed, and then waits again as long.
    #[non_exhaustive]
    BudgetInUse {
        /// The key of the budget.
        key: String,
    },
    /// A limit of cost or a [budget](crate::memory::Budget) is set for the question, and nobody knows how long answers of the model are at
    /// most. No request was sent to the model.
    #[non_exhaustive]
    UnknownAnswerLength {
        /// The name of the model; empty if it has none.
        model: String,
    },
    /// The run or its conversation could not be stored or loaded.
    Store(Box<dyn Error + Send + Sync>),
    /// The run was continued or removed elsewhere since this copy of it was loaded, for example by another process that
    /// resumed it at the same time. No call was executed whose start is not in the store. This copy cannot be resumed: load
    /// the current state, if there is one, with [`Agent::stored_run`](crate::Agent::stored_run).
    Conflict,
    /// Another driver works on the stored run, in this process or in another one. Nothing was done.
    /// [Messages](crate::Agent::say), [decisions](crate::Agent::decide) and a [cancellation](crate::Agent::cancel) reach the run, and when it
    /// is free, its [current state](crate::Agent::stored_run) can be resumed.
    RunningElsewhere,
    /// Nobody has continued the stored run for the [maximal age](crate::agent::AgentBuilder::max_run_age), and its calls may have had
    /// effects, so a person has to decide what becomes of it. Nothing was done. To go on, resume it with
    /// [`ignore_expiry`](crate::agent::Ask::ignore_expiry); to undo its calls, [`undo_and_end`](crate::Agent::undo_and_end) it; to keep what they have
    /// done, [`end`](crate::Agent::end) it.
    Expired,
    /// The run is of an agent of another [name](Run::agent_name), which can resume it. Nothing was done, and a stored run stays as
    /// it is.
    #[non_exhaustive]
    OtherAgent {
        /// The name of the agent that was to resume the run, if it has one.
        name: Option<String>,
    },
    /// Another run of the conversation waits for an approval or a result, has expired after its calls had effects, or has a driver, and
    /// the agent [refuses questions meanwhile](crate::agent::WhileWaiting). No request was sent to the model, and the question was not
    /// stored.
    #[non_exhaustive]
    ConversationWaits {
        /// The id of the other run. [Load](crate::Agent::stored_run) it to resolve its calls, or to
        /// [undo and end](crate::Agent::undo_and_end) it.
        run: String,
    },
    /// The application did not say what the run has: its [`RunSetup`](crate::agent::RunSetup) failed, panicked or took too long. Nothing was
    /// done, and a stored run can be resumed.
    RunSetup(Box<dyn Error + Send + Sync>),
    /// The question cannot be asked: a value of its [template](macro@crate::assistant) could not be written, a
    /// [`RunUser`](crate::model::RunUser) was given as a value, or the run belongs to [another user](crate::agent::Ask::user). No request was sent to the model.
    Question(Box<dyn Error + Send + Sync>),
    /// The tools of a turn could not be assembled: a [provider](crate::toolset::ToolProvider) failed, or two tools have the same
    /// name. No request was sent to the model in this turn.
    #[non_exhaustive]
    Tools {
        /// A description of the failure, such as "the tool provider `files` failed".
        context: String,
        /// The error of the provider, a [`ToolSetError`](crate::toolset::ToolSetError) or a [`BuildError`](crate::agent::BuildError).
        error: Box<dyn Error + Send + Sync>,
    },
    /// Values that the tools take from their context are missing. No request was sent to the model in this turn.
    MissingContext(MissingContext),
    /// A [layer](crate::layer::Layer) failed or panicked, so nothing passed that it did not judge. The run can be resumed.
    #[non_exhaustive]
    Layer {
        /// The name of the layer.
        layer: String,
        /// The error of the layer.
        error: Box<dyn Error + Send + Sync>,
    },
    /// A [decider](crate::agent::Decider) gave an answer that is not valid, or a call was approved with arguments that do not match
    /// its tool. The run still waits for the decision.
    Decision(ResolveError),
    /// The caller recorded an event that the run does not expect.
    Step(StepError),
}

impl RunErrorKind {
    /// Returns `true` if the run of the error can be driven further, unless it is done.
    pub(crate) fn keeps_run(&self) -> bool {
        !matches!(
            self,
            Self::Conflict
                | Self::Question(_)
                | Self::RunningElsewhere
                | Self::Expired
                | Self::OtherAgent { .. }
                | Self::ConversationWaits { .. }
        )
    }

    pub(crate) fn describe_budget(key: &str, left: u64) -> String {
        let key = key.escape_debug();
        match left {
            0 => format!("the budget of `{key}` is used up"),
            _ => format!("the request is too long for what is left of the budget of `{key}`"),
        }
    }

    pub(crate) fn describe_budget_in_use(key: &str) -> String {
        let key = key.escape_debug();
        format!("all that is left of the budget of `{key}` is reserved for another request")
    }

    pub(crate) fn describe_unknown_answer_length(model: &str) -> String {
        let name = if model.is_empty() { String::new() } else { format!(" `{}`", model.escape_debug()) };
        format!(
            "a limit of cost or a budget needs the longest answer of the model{name}, which is not known; set `max_output_tokens` in its \
             options or in the table of prices"
        )
    }

    #[cold]
    pub(crate) fn tools(context: String, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Tools { context, error: error.into() }
    }
}

impl RunError {
    pub(crate) fn new(kind: RunErrorKind, run: Run) -> Self {
        Self { kind, run: Box::new(run), approval_reasons: Vec::new() }
    }

    /// Adds the reasons of the definitions whose calls await approval.
    pub(crate) fn with_approval_reasons(mut self, tools: &[ToolDefinition]) -> Self {
        if matches!(self.kind, RunErrorKind::Waiting) {
            // The definitions do not include tools of agents that the run asked.
            let calls = self.run.calls_with_records().filter(|(_, record)| record.awaits_approval());
            let names: Vec<_> = calls.map(|(call, _)| &*call.name).collect();
            let awaits = |tool: &&ToolDefinition| names.contains(&tool.name());
            let reasons = tools.iter().filter(awaits).filter_map(ToolDefinition::approval_reason);
            self.approval_reasons = reasons.map(str::to_owned).collect();
        }
        self
    }

    /// Returns the kind of the error, with the underlying error.
    #[must_use]
    pub fn kind(&self) -> &RunErrorKind {
        &self.kind
    }

    pub(crate) fn into_kind(self) -> RunErrorKind {
        self.kind
    }

    /// Returns `true` if the [run](Self::into_run) can be driven further: it retries what failed, waits for approvals or results,
    /// or has an answer that is not [stored](RunErrorKind::Store) yet. After a [conflict](RunErrorKind::Conflict), only the stored
    /// run can be driven further.
    #[must_use]
    pub fn is_resumable(&self) -> bool {
        // The run of an error that was converted from a model's is empty.
        let is_unfinished = !self.run.is_done() && !self.run.messages().is_empty();
        self.kind.keeps_run() && (is_unfinished || matches!(self.kind, RunErrorKind::Store(_)))
    }

    /// Returns the records of the finished calls.
    #[must_use]
    pub fn tool_executions(&self) -> &[ToolExecution] {
        self.run.tool_executions()
    }

    /// Returns the messages that the run added to the conversation, like [`Run::new_messages`].
    #[must_use]
    pub fn new_messages(&self) -> &[Message] {
        self.run.new_messages()
    }

    /// Returns a readable view of the conversation; see [`Answer::transcript`](crate::Answer::transcript).
    pub fn transcript(&self) -> Transcript<'_> {
        self.run.transcript()
    }

    /// Returns the run in its current state.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Converts the error into the run, which can be driven further if it [`is_resumable`](Self::is_resumable).
    pub fn into_run(self) -> Run {
        *self.run
    }
}

/// Converts the error of a model that the caller asked itself, so that `?` works in a loop of its own. The error carries an empty
/// run and is not [resumable](RunError::is_resumable): the caller still has the run that needed the response.
///
/// ```
/// use tool_core::run::Step;
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, Answer, RunError, RunErrorKind};
///
/// async fn drive(agent: &Agent, question: &str) -> Result<Answer, RunError> {
///     let mut run = agent.ask(question).start();
///     while let Step::CallModel(request) = run.next().await? {
///         let response = agent.model().chat(&request).await?;
///         run.record_response(response).await?;
///     }
///     run.finish().await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let agent = Agent::builder(ScriptedModel::new().fails("the line is dead").says("Good morning!")).build()?;
/// let error = drive(&agent, "Hello").await.unwrap_err();
/// assert!(matches!(error.kind(), RunErrorKind::Model(_)) && !error.is_resumable());
/// assert_eq!(drive(&agent, "Hello").await?.text(), "Good morning!");
/// # Ok(())
/// # }
/// ```
impl From<LayerFailure> for RunErrorKind {
    fn from(failure: LayerFailure) -> Self {
        Self::Layer { layer: failure.layer, error: failure.error }
    }
}

impl From<ModelError> for RunError {
    fn from(error: ModelError) -> Self {
        Self::new(RunErrorKind::Model(error), Run::new([]))
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Described { kind: &self.kind, run: &self.run, approval_reasons: &self.approval_reasons }.fmt(f)
    }
}

impl RunErrorKind {
    /// Returns the text of the error of a run.
    pub(crate) fn describe(&self, run: &Run) -> String {
        Described { kind: self, run, approval_reasons: &[] }.to_string()
    }
}

/// The text of the error of a run.
struct Described<'a> {
    kind: &'a RunErrorKind,
    run: &'a Run,
    approval_reasons: &'a [String],
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RunErrorKind::Stopped(reason) => fmt::Display::fmt(reason, f),
            RunErrorKind::Waiting => {
                let mut tools: BTreeMap<&str, Vec<String>> = BTreeMap::new();
                for wait in self.run.waits() {
                    tools.entry(wait.reason.describe()).or_default().push(format!("`{}`", wait.tool));
                }
                tools.iter().try_for_each(|(why, tools)| write!(f, "{why}: {}; ", tools.join(", ")))?;
                match self.run.revision() {
                    Some(_) => write!(
                        f,
                        "the run `{}` is stored: call `resolve` for each of `waits()` and `resume` it, here or from \
                         `stored_run`, or `decide`",
                        self.run.id()
                    )?,
                    None => f.write_str(
                        "store `into_run()`, call `resolve` for each of `waits()`, and `resume` the run",
                    )?,
                }
                self.approval_reasons.iter().try_for_each(|reason| write!(f, "; {reason}"))
            }
            RunErrorKind::Model(error) => write!(f, "the request to the model failed: {error}"),
            RunErrorKind::MaxCost { spent, limit, needed } => write!(
                f,
                "the run has spent {spent} of {limit}, and the next request can cost {needed}; `resume` it with a higher `max_cost`"
            ),
            RunErrorKind::Budget { key, left, ends } => {
                let seconds = ends.since(Timestamp::now()).as_secs();
                let why = RunErrorKind::describe_budget(key, *left);
                write!(f, "{why}; its period ends in {seconds} seconds; `resume` the run then")?;
                // The way out before that.
                if *left > 0 { f.write_str(", or compact it with `Agent::compact`") } else { Ok(()) }
            }
            RunErrorKind::BudgetInUse { key } => {
                write!(f, "{}; `resume` the run later", RunErrorKind::describe_budget_in_use(key))
            }
            RunErrorKind::UnknownAnswerLength { model } => {
                f.write_str(&RunErrorKind::describe_unknown_answer_length(model))
            }
            RunErrorKind::Store(error) => write!(f, "the store failed: {error}"),
            RunErrorKind::Conflict => write!(
                f,
                "the run `{}` was continued or removed elsewhere since this copy was loaded; \
                 load its current state with `stored_run`, if there is one, and resume that",
                self.run.id()
            ),
            RunErrorKind::RunningElsewhere => write!(
                f,
                "another driver works on the run `{}`; `say`, `decide` or `cancel` reaches it, or resume its current state later",
                self.run.id()
            ),
            RunErrorKind::Expired => write!(
                f,
                "the run `{}` has expired, and its calls may have had effects: `resume` it with `ignore_expiry`, call `undo_and_end` to undo \
                 them, or `end` it to keep them",
                self.run.id()
            ),
            RunErrorKind::OtherAgent { name } => {
                let (id, asked) = (self.run.id(), self.run.agent_name().unwrap_or_default().escape_debug());
                write!(f, "the run `{id}` is of the agent `{asked}`, ")?;
                match name {
                    Some(name) => write!(f, "not of `{}`; ", name.escape_debug())?,
                    None => f.write_str("and this agent has no name; ")?,
                }
                write!(f, "resume it with the agent `{asked}`")
            }
            RunErrorKind::ConversationWaits { run } => write!(
                f,
                "the run `{}` of this conversation waits or is being driven; ask again when it has ended, resolve what it waits for \
                 and resume it, end it with `undo_and_end`, or add questions to it with `while_waiting(WhileWaiting::GoOn)`",
                run.escape_debug()
            ),
            RunErrorKind::RunSetup(error) => write!(f, "the run cannot be opened: {error}"),
            RunErrorKind::Question(error) => write!(f, "the question cannot be asked: {error}"),
            RunErrorKind::Tools { context, error } => write!(f, "{context}: {error}"),
            RunErrorKind::MissingContext(missing) => fmt::Display::fmt(missing, f),
            RunErrorKind::Layer { layer, error } => write!(f, "the layer `{layer}` failed: {error}"),
            RunErrorKind::Decision(error) => fmt::Display::fmt(error, f),
            RunErrorKind::Step(error) => fmt::Display::fmt(error, f),
        }
    }
}

/// The message and its sources, so that a `main` that returns the error prints it readably. The message of a run that a tool
/// ended contains them already.
impl fmt::Debug for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = self.source().filter(|_| !matches!(self.kind, RunErrorKind::Stopped(_)));
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl Error for RunError {
    /// Returns the source of the underlying error, which `Display` includes; if a [tool](StopReason::ToolFailed) ended the run,
    /// the error that the tool returned.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            RunErrorKind::Model(error) => error.source(),
            RunErrorKind::Tools { error, .. }
            | RunErrorKind::Layer { error, .. }
            | RunErrorKind::Store(error)
            | RunErrorKind::RunSetup(error)
            | RunErrorKind::Question(error) => error.source(),
            RunErrorKind::Stopped(StopReason::ToolFailed { error, .. }) => {
                error.failure().map(|failure| failure as _)
            }
            _ => None,
        }
    }
}
