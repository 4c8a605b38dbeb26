//! A run in the hands of its agent.

mod keeping;
mod steps;
mod stopping;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use self::steps::next_step;
use super::observers::Observers;
use super::tools::RunTools;
use super::trace::RunTrace;
use crate::agent::{Approver, Event};
use crate::content::Content;
use crate::memory::OpenConversation;
use crate::model::{ChatResponse, ModelOptions, ToolCall, ToolChoice};
use crate::run::{Answer, Approval, Kind, Run, RunError, Step, StepError};
use crate::tool::{Attempt, CancelOnDrop, CancellationToken, ToolContext, ToolError, ToolExecution};
use crate::toolset::ToolSet;

/// A [`Run`] in the hands of its agent: beside the rules, which are the run's own, it has the model, the tools of each
/// turn, the memory, the handlers and the hooks of the agent. [`Agent::start`](crate::Agent::start) gives one to a
/// caller who drives it by hand; `ask(..).await` and `ask(..).stream()` drive one by themselves, so that all three
/// behave the same.
///
/// Step by step, with the caller's own way of asking and calling:
///
#[cfg_attr(feature = "testing", doc = "```")]
#[cfg_attr(not(feature = "testing"), doc = "```ignore")]
/// use tool_core::testing::ScriptedModel;
/// use tool_core::{Agent, Step, tool, tools};
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
/// let mut run = agent.start("What is 2 + 40?");
/// loop {
///     match run.next().await? {
///         Step::CallModel(request) => {
///             let response = agent.model().chat(&request).await?;
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
///     // Between any two steps the run can be kept, and resumed elsewhere.
///     let _state = serde_json::to_string(run.state())?;
/// }
/// assert_eq!(run.finish().await?.text(), "It is 42.");
/// # Ok(())
/// # }
/// ```
///
/// Or with the agent's: `while run.advance().await? {}`.
///
/// A state that was kept before a call was begun knows nothing of it: restored, the run makes the call again, as its first
/// attempt, even if its tool says `at_most_once`. So [`begin_call`](Self::begin_call) the call, keep the state, and then execute it; or give the
/// agent a [`run_store`](crate::AgentBuilder::run_store), which keeps the run before each call, also of a run that is driven by hand.
///
/// [`execute`](Self::execute) makes one call after the other; [`advance`](Self::advance) makes those of a turn side by side.
///
/// Dropping it cancels what is under way.
#[must_use = "nothing is asked until it is driven"]
pub struct RunDriver {
    run: Run,
    tools: RunTools,
    observers: Observers,
    trace: RunTrace,
    /// Tells the tools that nobody waits any more.
    cancellation: CancellationToken,
    /// Who may cancel the run from elsewhere.
    cancelled_by: Option<CancellationToken>,
    on_drop: CancelOnDrop,
    approver: Option<Arc<dyn Approver>>,
    /// Runs while the run is under way, and not while it waits for a person.
    clock: Option<Instant>,
    /// The turn that the observers were told of last.
    turn_told: u32,
    /// What the model is offered in this turn, and its calls are looked up in.
    offered: Offered,
    /// The conversation, until the run is over.
    conversation: Option<OpenConversation>,
    /// The calls that the caller began, and that are not made yet.
    begun: Vec<(String, Attempt)>,
    /// The run is other than it was kept.
    is_changed: bool,
}

/// What a turn has beside what the run says.
#[derive(Default)]
struct Offered {
    tools: ToolSet,
    options: Option<(ModelOptions, ToolChoice)>,
    /// The tools were put together for this turn.
    is_resolved: bool,
}

impl RunDriver {
    pub(super) fn new(
        run: Run,
        tools: RunTools,
        observers: Observers,
        cancelled_by: Option<CancellationToken>,
        approver: Option<Arc<dyn Approver>>,
    ) -> Self {
        let cancellation =
            cancelled_by.as_ref().map_or_else(CancellationToken::new, CancellationToken::child);
        Self {
            turn_told: 0,
            run,
            trace: RunTrace::new(tools.agent().0.trace),
            tools,
            observers,
            on_drop: CancelOnDrop::new(cancellation.clone()),
            cancellation,
            cancelled_by,
            approver,
            clock: None,
            offered: Offered::default(),
            conversation: None,
            begun: Vec::new(),
            is_changed: true,
        }
    }

    /// The run as it stands: what is to be kept between two steps.
    #[must_use]
    pub fn state(&self) -> &Run {
        &self.run
    }

    /// The run as it stands, to be kept and [resumed](crate::Agent::resume).
    #[must_use]
    pub fn into_state(mut self) -> Run {
        self.trace.laid_aside();
        self.run
    }

    /// What the tools of this run are handed: the values of the agent and of the question.
    #[must_use]
    pub fn context(&self) -> &ToolContext {
        self.tools.context()
    }

    /// The tools of this step: what the model is offered, and its calls are looked up in.
    #[must_use]
    pub fn tools(&self) -> &ToolSet {
        &self.offered.tools
    }

    /// What is to be done next; as [`Run::next`].
    ///
    /// # Errors
    ///
    /// The tools of the turn cannot be had, or lack something in the context.
    pub async fn next(&mut self) -> Result<Step<'_>, RunError> {
        let span = self.trace.goes_on(self.tools.agent(), &self.run);
        if let Err(kind) = span.holds(self.prepare()).await {
            return Err(self.failed(kind));
        }
        let step = next_step(&mut self.run, &self.offered);
        if let Step::CallModel(request) = &step {
            self.trace.asks(self.tools.agent(), request, false);
        }
        Ok(step)
    }

    /// Records what the model replied.
    ///
    /// # Errors
    ///
    /// The run had not asked for the model.
    pub async fn record_response(&mut self, response: ChatResponse) -> Result<(), RunError> {
        let told = match self.record_reply(response) {
            Ok(told) => told,
            Err(kind) => return Err(self.failed(kind)),
        };
        self.tell_all(told).await;
        Ok(())
    }

    /// Records that a call is about to be made, so that the [state](Self::state) can be kept in between: should the process end
    /// while the call is under way, the restored run knows. [`execute`](Self::execute) does it by itself, which is enough for
    /// an agent with a [store](crate::AgentBuilder::run_store); it then goes on with the attempt that was begun here.
    ///
    /// # Errors
    ///
    /// As those of [`execute`](Self::execute).
    pub async fn begin_call(&mut self, call: &ToolCall) -> Result<(), RunError> {
        match self.begin_and_store(call).await {
            Ok(attempt) => {
                self.begun.push((call.id.clone(), attempt));
                Ok(())
            }
            Err(kind) => Err(self.failed(kind)),
        }
    }

    /// Makes a call that the run asked for, by the tools of this turn. The outcome is to be handed to
    /// [`record_result`](Self::record_result). A call that was open when the run ended is not made.
    ///
    /// # Errors
    ///
    /// The run has not asked for such a call, a person has to approve it, or it was begun before and may be made once
    /// only. The run could not be kept, or the tools of the turn cannot be had.
    pub async fn execute(&mut self, call: ToolCall) -> Result<ToolExecution, RunError> {
        if self.run.has_given_up(&call.id) {
            return Ok(ToolExecution::new(call, Err(ToolError::not_executed("the run had ended"))));
        }
        let attempt = match self.begin_and_store(&call).await {
            Ok(attempt) => attempt,
            Err(kind) => return Err(self.failed(kind)),
        };
        let caller = self.caller();
        match self.unless_stopped(caller.make(call.clone(), attempt)).await {
            Ok(execution) => Ok(execution),
            Err(stop) => {
                self.stop(&stop);
                self.tell_of_interrupted(std::slice::from_ref(&call.id)).await;
                Ok(ToolExecution::new(call, Err(ToolError::interrupted())))
            }
        }
    }

    /// Records the outcome of a call. If a handler of the agent answers in the place of an error, its answer is
    /// recorded. What comes of a call that was open when the run ended is left aside: the run has told of it.
    ///
    /// # Errors
    ///
    /// The run has not asked for such a call, or has its outcome already.
    pub async fn record_result(&mut self, execution: ToolExecution) -> Result<(), RunError> {
        if self.run.has_given_up(&execution.call().id) {
            return Ok(());
        }
        let (_, event) = match self.record_call(execution) {
            Ok(recorded) => recorded,
            Err(kind) => return Err(self.failed(kind)),
        };
        self.tell_all(event).await;
        Ok(())
    }

    /// Records what a person says to a call that waits for it.
    ///
    /// # Errors
    ///
    /// There is no such call, it does not wait, or the changed arguments are no JSON object.
    pub fn resolve_approval(&mut self, call_id: &str, approval: Approval) -> Result<(), StepError> {
        self.is_changed = true;
        self.run.resolve_approval(call_id, approval)
    }

    /// Says the same to all calls that wait.
    pub fn resolve_all_approvals(&mut self, approval: &Approval) {
        self.is_changed = true;
        self.run.resolve_all_approvals(approval);
    }

    /// Adds what the user says while the run is under way; as [`Run::push_user_message`].
    ///
    /// # Errors
    ///
    /// The run is over.
    pub fn push_user_message(&mut self, message: impl Into<Content>) -> Result<(), StepError> {
        self.is_changed = true;
        self.run.push_user_message(message)
    }

    /// Says that the answer will not do: the model reads why and answers again; as [`Run::reject_answer`].
    ///
    /// # Errors
    ///
    /// The run has no answer.
    pub fn reject_answer(&mut self, why: &str) -> Result<(), StepError> {
        self.reject_answer_with(why, "")
    }

    pub(super) fn reject_answer_with(&mut self, why: &str, hint: &str) -> Result<(), StepError> {
        self.is_changed = true;
        self.run.reject_answer_with(why, hint)
    }

    /// Ends the run: what is open is not made any more, and what was done is undone by the tools that can, in the steps
    /// that follow.
    pub fn cancel(&mut self) {
        self.cancellation.cancel();
        self.is_changed = true;
        self.run.cancel();
    }

    /// Takes the next step by the agent's model and tools: asks the model, or makes all calls that can be made. `false`
    /// when there is nothing left to do.
    ///
    /// # Errors
    ///
    /// The model could not be asked, the tools of the turn cannot be had, or a person has to approve what is left. The
    /// run stands as it stood, and the step can be taken again.
    pub async fn advance(&mut self) -> Result<bool, RunError> {
        self.take_step().await.map_err(|kind| self.failed(kind))
    }

    /// The answer, when there is nothing left to do.
    ///
    /// # Errors
    ///
    /// The run ended without an answer, is not done yet, or its conversation could not be kept.
    pub async fn finish(mut self) -> Result<Answer, RunError> {
        let span = self.trace.goes_on(self.tools.agent(), &self.run);
        match span.holds(self.commit()).await {
            Ok(()) => self.into_answer(),
            Err(kind) => Err(self.into_failed(kind)),
        }
    }

    fn into_answer(mut self) -> Result<Answer, RunError> {
        self.on_drop.disarm();
        match self.run.finish() {
            Ok(answer) => {
                self.trace.answered(&answer);
                if !self.observers.hooks.is_empty() {
                    self.observers.tell_hooks(&Event::Done(answer.clone()));
                }
                Ok(answer)
            }
            Err(error) => {
                self.trace.failed(&error);
                tell_failure(&self.observers, &error);
                Err(error)
            }
        }
    }

    /// Drives the run to its end.
    pub(super) fn drive(self) -> impl Future<Output = Result<Answer, RunError>> + Send {
        // A future holds what it is given and what it moves that to, so a run is better held elsewhere.
        let mut live = Box::new(self);
        async move {
            let driven = match live.drive_on().await {
                Ok(()) => {
                    let span = live.trace.goes_on(live.tools.agent(), &live.run);
                    span.holds(live.commit()).await
                }
                Err(kind) => Err(kind),
            };
            match driven {
                Ok(()) => live.into_answer(),
                Err(kind) => Err(live.into_failed(kind)),
            }
        }
    }

    /// Drives the run until there is nothing left to do.
    pub(super) async fn drive_on(&mut self) -> Result<(), Kind> {
        loop {
            match self.take_step().await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(kind) => {
                    // Kept as it is, so that it can be resumed; why it stopped is what the caller hears of.
                    let _ = self.keep().await;
                    return Err(kind);
                }
            }
        }
    }

    /// The error of a run that is not driven on.
    pub(super) fn into_failed(mut self, kind: Kind) -> RunError {
        let error = RunError::new(kind, self.run);
        self.trace.failed(&error);
        tell_failure(&self.observers, &error);
        error
    }

    /// The error of a step; the caller keeps the run.
    fn failed(&mut self, kind: Kind) -> RunError {
        let error = RunError::new(kind, self.run.clone());
        self.trace.failed(&error);
        tell_failure(&self.observers, &error);
        error
    }
}

fn tell_failure(observers: &Observers, error: &RunError) {
    if !observers.hooks.is_empty() {
        observers.tell_hooks(&Event::Failed(error.to_string()));
    }
}

/// Tells where the run stands, not what is in it.
impl fmt::Debug for RunDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunDriver").field("run", &self.run).finish_non_exhaustive()
    }
}
