//! Drives a run with its agent's model, tools, memory and hooks.
//!
//! All three ways of driving (awaited, streamed, step by step) use one `RunDriver`, because a rule must hold in all of them.
//!
//! The driver passes tool definitions into each step, because a state must not contain them.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::lease::RunLease;
use super::offer::{Offer, next_step};
use super::parts::{Compacting, Conversation, News, Requested, Storage};
use super::sent::Sent;
use crate::agent::emitter::EventEmitter;
use crate::agent::performer::Performer;
use crate::agent::question::Begun;
use crate::agent::question_rules::QuestionRules;
use crate::agent::trace::{RunTrace, Scope};
use crate::agent::{Agent, Event};
use crate::layer::LayerPhase;
use crate::model::{ChatResponse, FinishReason, ToolCall};
use crate::run::{
    Answer, Decision, EmittedCalls, ResolveError, Run, RunError, RunErrorKind, Step, StepError, UserMessage,
    WaitReason,
};
use crate::tool::{Attempt, Timestamp, ToolContext, ToolError, ToolExecution, WaitId};
use crate::toolset::ToolSet;

/// Drives a [`Run`] with its agent. The run has the rules; the driver adds the agent's model, memory, handlers and hooks, and
/// the tools of each turn. [`Ask::start`](crate::agent::Ask::start) returns one to callers that drive a run step by step;
/// `ask(..).await` and `ask(..).stream()` use one internally, so that all three behave the same.
///
/// Step by step, with the caller's own model requests and calls:
///
/// ```
/// use tool_core::testing::ScriptedModel;
/// use tool_core::run::Step;
/// use tool_core::{Agent, tool, tools};
///
/// #[tool("Sums two numbers")]
/// fn sum(a: f64, b: f64) -> f64 {
///     a + b
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().calls("sum", r#"{"a": 2, "b": 40}"#).says("It is 42.");
/// let agent = Agent::builder(model).tools(tools![sum]).build()?;
/// let mut run = agent.ask("What is 2 + 40?").start();
/// loop {
///     match run.next().await? {
///         Step::CallModel(_) => {
///             let response = run.call_model().await?;
///             run.record_response(response).await?;
///         }
///         Step::CallTools(calls) => {
///             for call in calls {
///                 let execution = run.execute(call).await?;
///                 run.record_result(execution).await?;
///             }
///         }
///         _ => break,
///     }
///     // Between any two steps, the run can be stored and resumed elsewhere.
///     let _state = serde_json::to_string(run.run())?;
/// }
/// assert_eq!(run.finish().await?.text(), "It is 42.");
/// # Ok(())
/// # }
/// ```
///
/// Or with the agent's: `while run.advance().await? {}`.
///
/// [`execute`](Self::execute) executes one call after the other; [`advance`](Self::advance) executes the calls of a turn
/// concurrently.
///
/// A state that was stored before a call was started does not contain the start: once restored, the run executes the call
/// again, as its first attempt, even if its tool is `at_most_once`. So call [`begin_call`](Self::begin_call), store the state, and then
/// execute the call; or give the agent a [`run_store`](crate::agent::AgentBuilder::run_store), which stores the run before each
/// call, also of a run that is driven step by step.
///
/// Dropping the driver cancels the work in flight, and a stored run as [`OnDrop`](crate::agent::OnDrop) says.
///
/// In traces (feature `tracing`), the span of a request lasts from [`next`](Self::next) to [`record_response`](Self::record_response), and
/// only calls that [`execute`](Self::execute) executes have a span. A driver that is dropped without [`finish`](Self::finish) or
/// [`into_run`](Self::into_run) leaves the span of its run `cancelled`.
#[must_use = "no request is sent until it is driven"]
pub struct RunDriver {
    /// The run, or a placeholder while a run inside stands in the outermost one.
    pub(in crate::agent) run: Box<Run>,
    pub(in crate::agent) performer: Performer,
    pub(super) trace: RunTrace,
    /// Cancelled when the run is no longer awaited; parent of the tokens of the calls.
    pub(super) cancellation: CancellationToken,
    pub(super) cancel_on_drop: Option<DropGuard>,
    pub(super) question: QuestionRules,
    /// When the time of the tree was counted last. None before the first step, while the run waits, and in a run inside.
    pub(super) clock: Option<Instant>,
    pub(in crate::agent) offer: Arc<Offer>,
    /// The messages to send, if they differ from the messages of the run.
    pub(in crate::agent) sent: Arc<Sent>,
    pub(super) request: Requested,
    pub(super) news: News,
    pub(super) compacting: Compacting,
    pub(super) conversation: Conversation,
    pub(in crate::agent) storage: Storage,
    /// The application has said what the run has.
    pub(super) is_open: bool,
}

impl RunDriver {
    /// Creates a driver of the agent that the run was handed off to last.
    pub(in crate::agent) fn new(begun: Begun) -> Self {
        let Begun { mut run, performer, rules: question } = begun;
        run.forget_in_flight();
        if !question.budgets.is_empty() {
            run.set_own_budget();
        }
        let external = question.cancellation.as_ref();
        let cancellation = external.map_or_else(CancellationToken::new, CancellationToken::child_token);
        let mut driver = Self {
            news: News {
                events: Vec::new(),
                turn_events: Vec::new(),
                announced_turn: 0,
                reported: EmittedCalls::all_of(&run),
            },
            run: Box::new(run),
            trace: RunTrace::new(performer.origin.0.trace),
            performer,
            cancel_on_drop: Some(cancellation.clone().drop_guard()),
            cancellation,
            question,
            clock: None,
            offer: Arc::default(),
            sent: Arc::default(),
            request: Requested::default(),
            compacting: Compacting::default(),
            conversation: Conversation::default(),
            storage: Storage {
                lease: RunLease::NotTaken,
                applied_commands: Vec::new(),
                has_unsaved_changes: true,
            },
            is_open: false,
        };
        // A step returns the error if there is no such agent.
        if driver.run.handoffs().iter().all(|handoff| handoff.is_entered) {
            let _ = driver.follow_handoffs();
        }
        driver.news.reported =
            EmittedCalls::before(&driver.run, driver.performer.layers.see(LayerPhase::Answer));
        if !driver.question.is_remote {
            driver.run.forget_judgements();
        }
        driver
    }

    /// Returns the run in its current state, for example to store it between two steps.
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Converts the driver into the run in its current state, which can be stored and [resumed](crate::Agent::resume).
    pub fn into_run(mut self) -> Run {
        self.charge_unrecorded();
        self.record_layer_usage();
        self.set_in_progress(false);
        self.trace.pause();
        self.run.forget_in_flight();
        *self.run
    }

    /// Returns the agent that the next step belongs to: the one that was asked, or one that the run was
    /// [handed off](crate::agent::AgentBuilder::handoff_to) to.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.performer.tools.agent
    }

    /// Returns the context of the tools, with the values of the agent and of the question.
    #[must_use]
    pub fn context(&self) -> &ToolContext {
        &self.performer.tools.context
    }

    /// Returns the tools of this step, in which the model's calls are looked up. The model is offered all of them unless the agent has a
    /// [tool search](crate::agent::AgentBuilder::tool_search); the [request](Step::CallModel) contains those that it is offered.
    #[must_use]
    pub fn tools(&self) -> &ToolSet {
        &self.offer.tools
    }

    /// Returns the next step, like [`Run::next`].
    ///
    /// # Errors
    ///
    /// Fails if the tools of the turn cannot be resolved, or if values that they take from the context are missing.
    pub async fn next(&mut self) -> Result<Step<'_>, RunError> {
        let span = self.enter_span();
        if let Err(kind) = span.instrument(self.prepare()).await {
            self.store_failure(&kind).await;
            return Err(self.error(kind));
        }
        self.charge_unrecorded();
        self.request.reply = None;
        let meter = self.new_meter();
        let (sent, earlier) = (&self.sent, &*self.performer.earlier_tools);
        Ok(match next_step(&mut self.run, &self.offer, sent, &self.performer.tools, earlier) {
            Step::CallModel(request) => {
                self.trace.enter_chat(self.performer.tools.agent.model(), &request, false);
                self.request.meter = meter;
                Step::CallModel(request.metered(self.request.meter.as_deref().map(|meter| meter as _)))
            }
            step => step,
        })
    }

    /// Sends the request of this step to the agent's model, through its [layers](crate::agent::AgentBuilder::layer). Pass the response to
    /// [`record_response`](Self::record_response).
    ///
    /// ```
    /// use tool_core::run::Step;
    /// use tool_core::testing::ScriptedModel;
    /// use tool_core::Agent;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = Agent::builder(ScriptedModel::new().says("Good morning!")).build()?;
    /// let mut run = agent.ask("Hello").start();
    /// while let Step::CallModel(_) = run.next().await? {
    ///     let response = run.call_model().await?;
    ///     run.record_response(response).await?;
    /// }
    /// assert_eq!(run.finish().await?.text(), "Good morning!");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the request fails, if a layer fails or ends the run, if the run is interrupted, or if it did not ask for a model request.
    pub async fn call_model(&mut self) -> Result<ChatResponse, RunError> {
        let span = self.enter_span();
        match span.instrument(self.ask_model_for_caller()).await {
            Ok(response) => Ok(response),
            Err(kind) => {
                self.store_failure(&kind).await;
                Err(self.error(kind))
            }
        }
    }

    /// Records the response of the model.
    ///
    /// # Errors
    ///
    /// Fails if the run did not ask for a model request, or if a layer fails; also if the agent has layers that see its requests, and
    /// the response does not come from [`call_model`](Self::call_model).
    pub async fn record_response(&mut self, mut response: ChatResponse) -> Result<(), RunError> {
        self.start_clock();
        self.open().await.map_err(|kind| self.error(kind))?;
        let hold = self.request.reply.take();
        let is_open = |is_beside| !self.performer.layers.open_questions(&self.run, is_beside).is_empty();
        let must_pass = self.performer.layers.see(LayerPhase::Model) || is_open(false) || is_open(true);
        if must_pass && hold.is_none() && self.run.is_asking() {
            let error =
                StepError("the agent has layers that see its requests; ask the model with `call_model`");
            return Err(self.error(RunErrorKind::Step(error)));
        }
        if hold.is_none() {
            self.charge_for(&mut response);
        }
        let hold = hold.unwrap_or_default();
        let recording = self.record_reply((response, hold));
        let recorded = match recording {
            Ok(work) => self.carry_out(work).await.map(drop),
            Err(kind) => Err(kind),
        };
        recorded.map_err(|kind| self.error(kind))
    }

    /// Records the start of a call, so that the [run](Self::run) can be stored before the call is executed: if the process
    /// then ends, the start is known when the run is restored. [`execute`](Self::execute) records the start by itself, which is enough
    /// for an agent with a [run store](crate::agent::AgentBuilder::run_store); after this method it continues the same attempt.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`execute`](Self::execute).
    pub async fn begin_call(&mut self, call: &ToolCall) -> Result<Attempt, RunError> {
        self.begin_and_store(call).await.map_err(|kind| self.error(kind))
    }

    /// Executes a call that the run asked for, with the tools of this turn. Pass the outcome to
    /// [`record_result`](Self::record_result). A call that was open when the run ended is not executed. A call of an
    /// [agent](crate::Agent::as_tool) that awaits approvals is [waiting](ToolExecution::is_waiting).
    ///
    /// # Errors
    ///
    /// Fails if the run did not ask for the call with these arguments, if the call awaits approval, or if it was started before
    /// and its tool is `at_most_once`; also if the run cannot be stored or the tools of the turn cannot be resolved.
    pub async fn execute(&mut self, call: ToolCall) -> Result<ToolExecution, RunError> {
        if self.run.is_abandoned(&call.id) {
            return Ok(ToolExecution::new(call, Err(ToolError::not_executed("the run had ended"))));
        }
        let attempt = self.begin_and_store(&call).await.map_err(|kind| self.error(kind))?;
        match self.execute_one(call.clone(), attempt).await {
            Ok(Some(execution)) => Ok(execution),
            Err(RunErrorKind::Waiting) => Ok(ToolExecution::waiting(call, None)),
            Err(why) => Err(self.error(why)),
            Ok(None) => {
                self.emit_finished().await.map_err(|kind| self.error(kind))?;
                Ok(ToolExecution::new(call, Err(ToolError::interrupted())))
            }
        }
    }

    /// Records the outcome of a call. [Layers](crate::agent::AgentBuilder::layer) can replace it. The outcome of a call that was open when the run ended is ignored, and a call that is
    /// [waiting](ToolExecution::is_waiting) stays open.
    ///
    /// # Errors
    ///
    /// Fails if the run did not ask for the call, or if the call awaits approval or already has an outcome.
    pub async fn record_result(&mut self, execution: ToolExecution) -> Result<(), RunError> {
        if self.run.is_abandoned(&execution.call().id) {
            return Ok(());
        }
        self.start_clock();
        self.open().await.map_err(|kind| self.error(kind))?;
        if execution.is_waiting() {
            let recorded = self.change_run().record_result(execution);
            return recorded.map_err(|error| self.error(RunErrorKind::Step(error)));
        }
        let event = self.apply_result(execution).await.map_err(|kind| self.error(kind))?;
        self.emit_all(event).await.map_err(|kind| self.error(kind))?;
        let events = self.follow_handoffs().map_err(|kind| self.error(kind))?;
        self.emit_all(events).await.map_err(|kind| self.error(kind))?;
        Ok(())
    }

    /// Records a decision about something that the run waits for, like [`Run::resolve`].
    ///
    /// # Errors
    ///
    /// Fails if the run does not wait for this, if it was decided before, or if the decision does not fit, also if new arguments do
    /// not match the tool.
    pub fn resolve(&mut self, wait: impl Into<WaitId>, mut decision: Decision) -> Result<(), ResolveError> {
        let wait = &wait.into();
        self.count_time();
        self.change_run().tick(Timestamp::now());
        if let Some(arguments) = decision.edited_arguments() {
            decision.has_checked_arguments = self.check_new_arguments(wait, arguments)?;
        }
        self.change_run().resolve(wait, decision)
    }

    /// Checks arguments that a person writes for a call of this run. An agent inside checks the arguments of its own calls: then `false` is
    /// returned.
    fn check_new_arguments(&self, wait: &WaitId, arguments: &str) -> Result<bool, ResolveError> {
        let waits = self.run.waits();
        let own = waits.iter().find_map(|one| match &one.reason {
            WaitReason::Approval(call) if one.id == *wait && one.path == call.id => Some(call),
            _ => None,
        });
        let Some(call) = own else { return Ok(false) };
        let call = ToolCall { arguments: arguments.to_owned(), ..call.clone() };
        let checked = self.offer.tools.check_arguments(&call);
        checked.map(|()| true).map_err(|error| ResolveError::invalid_arguments(error.to_string()))
    }

    /// Adds a message of the user to a run that is not done, like [`Run::deny_and_say`].
    ///
    /// # Errors
    ///
    /// Fails if the run has ended, if the message is too long, or if the run has [too many](crate::store::MessageVolume).
    pub fn deny_and_say(&mut self, message: impl Into<UserMessage>) -> Result<(), StepError> {
        self.count_time();
        self.change_run().deny_and_say(message)
    }

    /// Rejects the answer: the model reads the reason and answers again, like [`Run::reject_answer`].
    ///
    /// # Errors
    ///
    /// Fails if the run has no answer.
    pub fn reject_answer(&mut self, why: &str) -> Result<(), StepError> {
        self.change_run().reject_answer(why)
    }

    /// Cancels the run: open calls are not executed any more, and the following steps undo finished calls if their tools
    /// support it.
    pub fn cancel(&mut self) {
        self.cancellation.cancel();
        self.count_time();
        self.change_run().cancel();
    }

    /// Takes the next step with the agent's model and tools: calls the model, or executes all calls that are ready. Returns
    /// `false` if nothing is left to do.
    ///
    /// # Errors
    ///
    /// Fails if the request to the model fails, if the tools of the turn cannot be resolved, or if all remaining calls await
    /// approval. The run is unchanged then, and the step can be repeated.
    pub async fn advance(&mut self) -> Result<bool, RunError> {
        self.take_step().await.map_err(|kind| self.error(kind))
    }

    /// Returns the answer, once nothing is left to do.
    ///
    /// # Errors
    ///
    /// Fails if the run stopped without an answer or is not done yet, or if its conversation cannot be stored.
    pub async fn finish(mut self) -> Result<Answer, RunError> {
        let committed = self.commit().await;
        self.release_lease().await;
        match committed {
            Ok(()) => self.into_answer(),
            Err(kind) => Err(self.into_error(kind)),
        }
    }

    /// Emits the end of the run, and returns its answer or its error.
    pub(in crate::agent) fn into_answer(mut self) -> Result<Answer, RunError> {
        if let Some(guard) = self.cancel_on_drop.take() {
            guard.disarm();
        }
        match self.run.finish() {
            Ok(mut answer) => {
                answer.set_agent_name(self.performer.origin.name());
                self.trace.record_answer(answer.finish_reason(), answer.text());
                if !self.performer.emitter.hooks.is_empty() {
                    self.performer.emitter.call_hooks(&Event::Done(answer.clone()));
                }
                Ok(answer)
            }
            Err(error) => Err(report(error, &mut self.trace, &self.performer.emitter)),
        }
    }

    /// Emits the end of a run inside, and returns how its answer ended and its text, or its error.
    pub(super) fn end_inside(&mut self) -> Result<(FinishReason, String), RunError> {
        if let Some(guard) = self.cancel_on_drop.take() {
            guard.disarm();
        }
        let answer = self.run.answer().filter(|_| self.performer.emitter.hooks.is_empty());
        if let Some((finish_reason, text)) = answer {
            self.trace.record_answer(&finish_reason, &text);
            return Ok((finish_reason, text));
        }
        // Listeners get all of the answer.
        match Run::clone(&self.run).finish() {
            Ok(mut answer) => {
                answer.set_agent_name(self.performer.origin.name());
                let ended = (answer.finish_reason().clone(), answer.text().to_owned());
                self.trace.record_answer(&ended.0, &ended.1);
                self.performer.emitter.call_hooks(&Event::Done(answer));
                Ok(ended)
            }
            Err(error) => Err(report(error, &mut self.trace, &self.performer.emitter)),
        }
    }

    /// Drives the run to its end and returns its outcome.
    pub(in crate::agent) fn drive(self) -> impl Future<Output = Result<Answer, RunError>> + Send {
        // Boxed, because the future would hold the driver twice: as its argument and where it is moved to.
        let mut driver = Box::new(self);
        async move {
            let driven = match driver.drive_to_end().await {
                Ok(()) => driver.commit().await,
                Err(kind) => Err(kind),
            };
            driver.release_lease().await;
            match driven {
                Ok(()) => driver.into_answer(),
                Err(kind) => Err(driver.into_error(kind)),
            }
        }
    }

    pub(in crate::agent) fn into_error(mut self, kind: RunErrorKind) -> RunError {
        self.record_layer_usage();
        let error = RunError::new(kind, *self.run).with_approval_reasons(self.offer.tools.definitions());
        report(error, &mut self.trace, &self.performer.emitter)
    }

    /// Enters the span of the run.
    pub(super) fn enter_span(&mut self) -> Scope {
        self.trace.enter_run(self.performer.tools.agent.name(), self.performer.tools.agent.model(), &self.run)
    }

    /// Returns the span of the run, if it has started.
    pub(super) fn scope(&self) -> Option<Scope> {
        self.trace.run_scope()
    }

    /// Returns the run to be changed; it is stored again.
    pub(in crate::agent) fn change_run(&mut self) -> &mut Run {
        self.storage.has_unsaved_changes = true;
        self.record_layer_usage();
        &mut self.run
    }

    /// Returns the error of a step, with a copy of the run.
    pub(super) fn error(&mut self, kind: RunErrorKind) -> RunError {
        self.record_layer_usage();
        let error = RunError::new(kind, Run::clone(&self.run));
        let error = error.with_approval_reasons(self.offer.tools.definitions());
        report(error, &mut self.trace, &self.performer.emitter)
    }
}

/// Records an error in the trace and emits it to the hooks.
fn report(error: RunError, trace: &mut RunTrace, emitter: &EventEmitter) -> RunError {
    trace.record_error(&error);
    if !emitter.hooks.is_empty() {
        emitter.call_hooks(&Event::Failed(error.to_string()));
    }
    error
}

/// Omits messages, because conversations are private.
impl fmt::Debug for RunDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunDriver").field("run", &self.run).finish_non_exhaustive()
    }
}
