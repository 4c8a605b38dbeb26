//! One question to an agent.

use std::any::TypeId;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::build_error::USER_IN_CONTEXT;
use super::driver::HeldLease;
use super::question::{AskedQuestion, Start};
use super::question_rules::QuestionError;
use crate::agent::{Agent, Decider, Event, EventStream, OnDrop, RunDriver};
use crate::content::Content;
use crate::memory::IntoKeyedBudget;
use crate::model::{ConversationId, Message, ModelOptions, ResponseFormat, RunUser, ToolChoice};
use crate::run::{Answer, Run, RunError, RunId, RunLimits, StepError, UserMessage};
use crate::tool::Injectable;
use crate::toolset::{IntoToolSet, ToolSet};

/// One question to an agent. Await it or [`stream`](Self::stream) it. Dropping the future or the stream cancels the run, unless it is
/// [stored](crate::agent::OnDrop).
#[must_use = "no request is sent until it is awaited or streamed: write `.await` behind it"]
pub struct Ask {
    pub(super) question: AskedQuestion,
    /// The lease of the run, if a decision has taken it.
    lease: Option<HeldLease>,
}

impl Agent {
    /// Asks a question. Await the result for the [`Answer`](crate::Answer), or call [`stream`](Ask::stream) on it for the
    /// events on the way. No request is sent before that.
    pub fn ask(&self, question: impl Into<Content>) -> Ask {
        AskedQuestion::new(self.clone(), question.into()).into()
    }

    /// Resumes a stored run with this agent's model and tools. Work that the run has recorded is not repeated. Await the
    /// result or stream it, as with [`ask`](Self::ask). A run of an agent of another [name](crate::agent::AgentBuilder::name) is
    /// [refused](crate::run::RunErrorKind::OtherAgent).
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
        AskedQuestion::resume(self.clone(), run).into()
    }

    /// Starts another run that begins with the first messages of an earlier one, as many as `position` states, and asks the model next. Await
    /// or stream it, as with [`ask`](Self::ask).
    ///
    /// The calls before the position are never executed again, and not undone if the new run fails: they belong to the earlier run, which
    /// stays as it is. A call that the model requests afterwards is a new one, with keys of its own; it is judged and approved anew, and so is
    /// the question. Usage, cost and time start at zero, while [turns](Run::turns) are counted from the question. The new run belongs to no
    /// conversation.
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Books a room", at_most_once)]
    /// fn book(nights: u32) -> String {
    ///     format!("booked {nights} nights")
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().calls("book", r#"{"nights": 2}"#).fails("down").says("Two nights are booked.");
    /// let agent = Agent::builder(model).tools(tools![book]).build()?;
    /// let failed = agent.ask("A room, please").await.unwrap_err().into_run();
    /// // Behind the question, the call and its result:
    /// assert_eq!(agent.fork(&failed, 3)?.await?.text(), "Two nights are booked.");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the position is inside a turn, behind an answer, before the question or before a handoff, or if calls of the run were undone.
    pub fn fork(&self, run: &Run, position: usize) -> Result<Ask, StepError> {
        Ok(self.resume(run.fork(position)?))
    }
}

impl Ask {
    /// Adds earlier messages of the conversation, oldest first, by value or by reference. Has no effect on a resumed run, which has its own.
    pub fn history(mut self, messages: impl IntoIterator<Item = impl Into<Message>>) -> Self {
        if let Start::Question { history, .. } = &mut self.question.start {
            history.extend(messages.into_iter().map(Into::into));
        }
        self
    }

    /// Sets instructions that precede the [agent's](crate::agent::AgentBuilder::instructions). Has no effect on a resumed run,
    /// which has its own. Questions of one conversation need the same instructions, or no prompt cache is hit.
    ///
    /// ```
    /// use tool_core::Agent;
    /// use tool_core::testing::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new()
    ///     .expects(|request| request.messages()[0].text() == "You plan trips.\n\nAnswer in French.")
    ///     .says("La tour Eiffel.");
    /// let agent = Agent::builder(model).instructions("Answer in French.").build()?;
    /// agent.ask("One sight in Paris?").instructions("You plan trips.").await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn instructions(mut self, text: impl Into<Content>) -> Self {
        if let Start::Question { instructions, .. } = &mut self.question.start {
            *instructions = Some(text.into());
        }
        self
    }

    /// Passes a value to the tools of this run: the value itself, not a [`ToolContext`](crate::ToolContext). It takes precedence over the
    /// agent's value of the same type. A [`RunUser`] is refused: see [`user`](Self::user).
    pub fn context<T: Injectable>(mut self, value: T) -> Self {
        if TypeId::of::<T>() == TypeId::of::<RunUser>() {
            self.question.rules.error.get_or_insert_with(|| QuestionError(USER_IN_CONTEXT.to_owned()));
            return self;
        }
        self.question.tools.context = self.question.tools.context.with(value);
        self
    }

    /// Offers more tools to the model for this question, in addition to the agent's own. A resumed run needs them again.
    ///
    /// If one of them has the name of another tool of the agent, or of a tool that undoes others, the run returns at once with
    /// [`RunErrorKind::Tools`](crate::RunErrorKind::Tools).
    pub fn tools<K: ?Sized>(mut self, tools: impl IntoToolSet<K>) -> Self {
        self.question.tools.offered =
            self.question.tools.offered.and_then(|earlier| earlier.union(tools.into_tool_set()?));
        self
    }

    /// Offers only these tools to the model for this question, in place of the agent's own, its providers' and
    /// the question's earlier ones. Further calls of [`tools`](Self::tools) add more. A resumed run needs them again. The agent's
    /// settings for its tools remain, such as [`max_output_chars`](crate::agent::AgentBuilder::max_output_chars).
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::{Agent, tool, tools};
    ///
    /// #[tool("Searches the web")]
    /// fn search(query: String) {}
    ///
    /// #[tool("Sums two numbers")]
    /// fn sum(a: f64, b: f64) -> f64 {
    ///     a + b
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new()
    ///     .expects(|request| request.tools().len() == 1 && request.tools()[0].name() == "sum")
    ///     .says("It is 42.");
    /// let agent = Agent::builder(model).tools(tools![search]).build()?;
    /// agent.ask("What is 2 + 40?").only_tools(tools![sum]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The run returns at once with [`RunErrorKind::Tools`](crate::RunErrorKind::Tools) if the agent's
    /// [tool choice](crate::agent::AgentBuilder::tool_choice) requires a tool that is not among them.
    ///
    /// If the agent [hands the run over](crate::agent::AgentBuilder::handoff_to), the other agent has its own tools and none of
    /// these.
    pub fn only_tools<K: ?Sized>(mut self, tools: impl IntoToolSet<K>) -> Self {
        self.question.tools.offered = tools.into_tool_set().and_then(|tools| ToolSet::default().union(tools));
        self.question.tools.replaces = true;
        self
    }

    /// Sets the conversation that the question belongs to. Tools can inject the id, and tool providers can choose tools by it.
    /// By default, a question has a conversation of its own, and a resumed run keeps its conversation.
    pub fn conversation(self, id: impl Into<ConversationId>) -> Self {
        self.context(id.into())
    }

    /// States whose run it is, by the application's own identifier, such as the principal of an authentication. The run stores the user:
    /// [lists](crate::memory::RunFilter::user) contain it, and tools inject it as [`RunUser`], at any depth of agents and after a resume. A run
    /// of another user is not continued.
    pub fn user(mut self, id: impl Into<RunUser>) -> Self {
        self.question.tools.context = self.question.tools.context.with(id.into());
        self
    }

    /// Sets the form of the answer. Only a model that [supports it](crate::ChatModel::supports_response_format) is
    /// constrained to it; [`answer_as`](Self::answer_as) works with every model and parses the answer.
    pub fn response_format(mut self, format: ResponseFormat) -> Self {
        self.question.response_format = Some(format);
        self
    }

    /// Sets options of the model. Options that are unset here have the agent's value.
    pub fn options(mut self, options: ModelOptions) -> Self {
        self.question.options = options;
        self
    }

    /// Sets whether the model may, must or must not call tools for this question, in place of the agent's
    /// [choice](crate::agent::AgentBuilder::tool_choice).
    ///
    /// The run returns at once with [`RunErrorKind::Tools`](crate::RunErrorKind::Tools) if there is no tool that it requires.
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.question.tool_choice = Some(choice);
        self
    }

    /// Changes the limits of the run: the agent's, or those that a resumed run has.
    ///
    /// ```
    /// use tool_core::Agent;
    /// use tool_core::testing::ScriptedModel;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let model = ScriptedModel::new().says("Good morning!");
    /// let agent = Agent::builder(model).limits(|l| l.max_calls(20).max_turns(5)).build()?;
    /// let driver = agent.ask("Hello").limits(|l| l.max_total_tokens(1000).max_turns(3)).start();
    /// assert_eq!(*driver.run().limits(), agent.limits().clone().max_total_tokens(1000).max_turns(3));
    /// # Ok(())
    /// # }
    /// ```
    pub fn limits(mut self, change: impl FnOnce(RunLimits) -> RunLimits) -> Self {
        self.question.change_limits(change);
        self
    }

    /// Continues the run under a lease that was taken.
    pub(super) fn under_lease(self, lease: Option<HeldLease>) -> Self {
        Self { lease, ..self }
    }

    /// Continues a stored run although it has [expired](crate::memory::RunStatus::Expired), because a person has decided that.
    pub fn ignore_expiry(mut self) -> Self {
        self.question.rules.ignores_expiry = true;
        self
    }

    /// Charges the run, with all agents that it asks, to a [budget](crate::memory::Budget), in addition to earlier ones. A resumed run
    /// needs it again.
    pub fn budget(mut self, budget: impl IntoKeyedBudget) -> Self {
        self.question.rules.budgets.push(budget.into());
        self
    }

    /// Registers a hook that receives every event of this run. It is called immediately, on the thread of the run, so it
    /// must not block. The deltas of a reply are emitted only if the run is streamed.
    pub fn on_event(mut self, hook: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.question.emitter.hooks.push(Arc::new(hook));
        self
    }

    /// Adds a decider for this run, which is asked before the [agent's](crate::agent::AgentBuilder::decider), also after a
    /// [handoff](crate::agent::AgentBuilder::handoff_to).
    pub fn decider(mut self, decider: impl Decider + 'static) -> Self {
        self.question.rules.deciders.push(Arc::new(decider));
        self
    }

    /// Sets what dropping the future, the stream or the driver of this run means if it is stored, in place of the
    /// [agent's](crate::agent::AgentBuilder::on_drop) setting.
    pub fn on_drop(mut self, on_drop: OnDrop) -> Self {
        self.question.rules.on_drop = Some(on_drop);
        self
    }

    /// Cancels the run once this token is cancelled. The run ends with an error that carries the work done so far, and its
    /// calls are undone if their tools support it.
    ///
    /// ```
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::run::StopReason;
    /// use tool_core::{Agent, CancellationToken, RunErrorKind};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new().says("Good morning!")).build()?;
    /// let cancellation = CancellationToken::new();
    /// let ask = agent.ask("Hello").cancellation_token(cancellation.clone());
    /// cancellation.cancel(); // from any thread
    /// let error = ask.await.unwrap_err();
    /// assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Cancelled)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancellation_token(mut self, token: CancellationToken) -> Self {
        self.question.rules.cancellation = Some(token);
        self
    }

    /// Returns a stream of the events on the way to the answer. The model's replies are streamed, too.
    #[must_use]
    pub fn stream(mut self) -> EventStream {
        EventStream::new(|events| {
            self.question.emitter.stream_into(events);
            self.start().drive()
        })
    }

    /// Starts the run for a caller that drives it step by step; no request is sent yet. All settings of the agent and the
    /// question apply.
    pub fn start(self) -> RunDriver {
        RunDriver::new(self.question.begin(true)).with_lease(self.lease)
    }
}

/// What a world sets for a question or a run that goes on, beyond what programs with agents do.
pub trait AskExt: Sized {
    /// Sets the id of the run, by which the application finds it again. It must be unique. Has no effect on a resumed run.
    fn run_id(self, run: impl Into<RunId>) -> Self;

    /// Adds a message of the user to the stored run that the question continues, behind the results of the open calls, like [`Run::say`]. It is
    /// stored with what is decided in the same request.
    ///
    /// # Errors
    ///
    /// Fails if the run has ended, if the message is too long, or if the run has [too many](crate::store::MessageVolume).
    fn with_message(self, message: impl Into<UserMessage>) -> Result<Self, StepError>;

    /// Sets the decider that is asked last, about what the agent's defer.
    fn last_decider(self, decider: impl Decider + 'static) -> Self;

    /// Makes a run whose calls are all [parked](crate::tool::Asker::park) wait, instead of being held until they are due.
    fn return_when_parked(self) -> Self;

    /// Starts the run for a caller that drives it step by step, and returns its events, which the driver waits to be read.
    fn start_streamed(self) -> (RunDriver, impl futures_util::Stream<Item = Event> + Send + 'static);

    /// Drives the run for a caller that records each step of the whole tree, and sets its time. What layers have judged in an earlier step
    /// is not judged again, and nothing is waited for.
    fn remote(self) -> Self;
}

impl AskExt for Ask {
    fn run_id(mut self, run: impl Into<RunId>) -> Self {
        if let Start::Question { id, .. } = &mut self.question.start {
            *id = Some(run.into());
        }
        self
    }

    fn with_message(mut self, message: impl Into<UserMessage>) -> Result<Self, StepError> {
        match &mut self.question.start {
            Start::Run(run) => run.say(message)?,
            Start::Question { .. } => {
                return Err(StepError("a new question has no run yet that a message is added to"));
            }
        }
        Ok(self)
    }

    fn last_decider(mut self, decider: impl Decider + 'static) -> Self {
        self.question.rules.last_decider = Some(Arc::new(decider));
        self
    }

    fn return_when_parked(mut self) -> Self {
        self.question.rules.returns_when_parked = true;
        self
    }

    fn start_streamed(mut self) -> (RunDriver, impl futures_util::Stream<Item = Event> + Send + 'static) {
        let (sender, events) = futures_channel::mpsc::channel(16);
        self.question.emitter.stream_into(sender);
        let events = futures_util::StreamExt::filter_map(events, |event| std::future::ready(event.ok()));
        (self.start(), events)
    }

    fn remote(mut self) -> Self {
        self.question.rules.is_remote = true;
        self
    }
}

impl From<AskedQuestion> for Ask {
    fn from(question: AskedQuestion) -> Self {
        Self { question, lease: None }
    }
}

impl IntoFuture for Ask {
    type Output = Result<Answer, RunError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.start().drive())
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ask").field("agent", &self.question.agent).finish_non_exhaustive()
    }
}
