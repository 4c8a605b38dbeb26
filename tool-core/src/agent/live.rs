//! A run in the hands of its agent.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{self, Either};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::caller::Caller;
use super::observers::Observers;
use super::tools::RunTools;
use super::trace::RunTrace;
use super::turn::Turn;
use super::{Approver, Event};
use crate::memory::OpenConversation;
use crate::run::{Attempt, Kind, OutOfStep, Run, RunError, Step};
use crate::tool::CancelOnDrop;
use crate::{
    Answer, Approval, Cancellation, ChatModel, ChatRequest, ChatResponse, Content, ConversationId, Delta,
    ModelError, ModelOptions, ToolCall, ToolChoice, ToolContext, ToolError, ToolExecution, ToolSet,
};

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
///             run.replied(response).await?;
///         }
///         Step::CallTools(calls) => {
///             for call in calls {
///                 let execution = run.execute(call).await?;
///                 run.called(execution).await?;
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
/// Dropping it cancels what is under way.
pub struct LiveRun {
    run: Run,
    tools: RunTools,
    observers: Observers,
    trace: RunTrace,
    /// Tells the tools that nobody waits any more.
    cancellation: Cancellation,
    /// Who may cancel the run from elsewhere.
    cancelled_by: Option<Cancellation>,
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

/// Why what was under way is given up.
enum Stop {
    OutOfTime,
    Cancelled,
}

impl LiveRun {
    pub(super) fn new(
        run: Run,
        tools: RunTools,
        observers: Observers,
        cancelled_by: Option<Cancellation>,
        approver: Option<Arc<dyn Approver>>,
    ) -> Self {
        let cancellation = cancelled_by.as_ref().map_or_else(Cancellation::new, Cancellation::child);
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
    pub async fn replied(&mut self, response: ChatResponse) -> Result<(), RunError> {
        let told = match self.record_reply(response) {
            Ok(told) => told,
            Err(kind) => return Err(self.failed(kind)),
        };
        self.tell_all(told).await;
        Ok(())
    }

    /// Makes a call that the run asked for, by the tools of this turn. The outcome is to be handed to
    /// [`called`](Self::called). A call that was open when the run ended is not made.
    ///
    /// # Errors
    ///
    /// The run has not asked for such a call.
    pub async fn execute(&mut self, call: ToolCall) -> Result<ToolExecution, RunError> {
        if self.run.has_given_up(&call.id) {
            return Ok(ToolExecution::new(call, Err(ToolError::not_made("the run had ended"))));
        }
        let attempt = match self.begin(&call) {
            Ok(attempt) => attempt,
            Err(kind) => return Err(self.failed(kind)),
        };
        let span = self.trace.goes_on(self.tools.agent(), &self.run);
        if let Err(kind) = span.holds(self.keep()).await {
            return Err(self.failed(kind));
        }
        let caller = self.caller();
        match self.unless_stopped(caller.make(call.clone(), attempt)).await {
            Ok(execution) => Ok(execution),
            Err(stop) => {
                self.stop(&stop);
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
    pub async fn called(&mut self, execution: ToolExecution) -> Result<(), RunError> {
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
    /// There is no such call, or it does not wait.
    pub fn decide(&mut self, call_id: &str, approval: Approval) -> Result<(), OutOfStep> {
        self.is_changed = true;
        self.run.decide(call_id, approval)
    }

    /// Says the same to all calls that wait.
    pub fn decide_all(&mut self, approval: &Approval) {
        self.is_changed = true;
        self.run.decide_all(approval);
    }

    /// Adds what the user says while the run is under way; as [`Run::say`].
    ///
    /// # Errors
    ///
    /// The run is over.
    pub fn say(&mut self, message: impl Into<Content>) -> Result<(), OutOfStep> {
        self.is_changed = true;
        self.run.say(message)
    }

    /// Says that the answer will not do: the model reads why and answers again; as [`Run::reject_answer`].
    ///
    /// # Errors
    ///
    /// The run has no answer.
    pub fn reject_answer(&mut self, why: &str) -> Result<(), OutOfStep> {
        self.is_changed = true;
        self.run.reject_answer(why)
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

    async fn take_step(&mut self) -> Result<bool, Kind> {
        let span = self.trace.goes_on(self.tools.agent(), &self.run);
        span.holds(self.take_step_inside()).await
    }

    async fn take_step_inside(&mut self) -> Result<bool, Kind> {
        self.prepare().await?;
        let time_left = self.time_left();
        match next_step(&mut self.run, &self.offered) {
            Step::CallModel(request) => {
                let model = &*self.tools.agent().0.model;
                let streams = self.observers.stream.is_some();
                let span = self.trace.asks(self.tools.agent(), &request, streams);
                let asked = span.holds(ask(model, &request, &mut self.observers));
                let stopping = unless_stopped(asked, self.cancelled_by.as_ref(), time_left);
                let told = match stopping.await {
                    Ok(Ok(response)) => self.record_reply(response)?,
                    Ok(Err(error)) => {
                        self.trace.not_replied(&error);
                        return Err(Kind::Model(error));
                    }
                    Err(stop) => {
                        self.stop(&stop);
                        Vec::new()
                    }
                };
                self.tell_all(told).await;
                Ok(true)
            }
            Step::CallTools(calls) => self.make(calls).await.map(|()| true),
            Step::NeedsApproval(_) => Err(Kind::ApprovalNeeded),
            Step::Done => Ok(false),
        }
    }

    /// Makes ready what the next step needs.
    async fn prepare(&mut self) -> Result<(), Kind> {
        self.count_time();
        if self.cancelled_by.as_ref().is_some_and(Cancellation::is_cancelled) {
            self.is_changed |= !self.run.is_done();
            self.run.cancel();
        }
        self.remember().await?;
        loop {
            // Calls are looked up in the very set that the model was offered.
            if self.run.is_asking() || !self.offered.is_resolved {
                let (cancelled_by, time_left) = (self.cancelled_by.clone(), self.time_left());
                match unless_stopped(self.offer(), cancelled_by.as_ref(), time_left).await {
                    Ok(offered) => offered?,
                    Err(stop) => {
                        self.stop(&stop);
                        break;
                    }
                }
            }
            if self.run.is_asking() {
                break;
            }
            self.run.settle(self.offered.tools.definitions());
            if self.run.is_undoing() {
                self.run.settle(self.tools.agent().0.undo_tools.definitions());
            }
            if self.run.is_asking() {
                continue;
            }
            if !self.run.only_waits() {
                break;
            }
            if let Some(approver) = self.approver.clone() {
                self.ask_person(&*approver).await?;
                continue;
            }
            self.clock = None;
            self.trace.laid_aside();
            let waiting: Vec<_> = self.run.waiting().cloned().collect();
            self.observers.tell(|| Event::ApprovalNeeded(waiting)).await;
            break;
        }
        self.keep().await?;
        if !self.run.is_done() {
            self.trace.takes_turn(self.run.turns() + u32::from(self.run.is_asking()));
        }
        let turn = self.run.turns() + 1;
        if self.run.is_asking() && self.turn_told != turn {
            self.turn_told = turn;
            let messages = self.run.messages().len();
            self.observers.tell(|| Event::TurnStarted { turn, messages }).await;
        }
        Ok(())
    }

    /// Asks a person about the calls that wait, one by one.
    async fn ask_person(&mut self, approver: &dyn Approver) -> Result<(), Kind> {
        self.count_time();
        let waiting: Vec<_> = self.run.waiting().cloned().collect();
        for call in waiting {
            match unless_stopped(approver.approve(&call), self.cancelled_by.as_ref(), None).await {
                Ok(approval) => self.decide(&call.id, approval).map_err(Kind::OutOfStep)?,
                Err(stop) => {
                    self.stop(&stop);
                    break;
                }
            }
        }
        // The time in which a person is waited for does not count.
        self.clock = Some(Instant::now());
        Ok(())
    }

    /// Puts together what the model is offered in this turn.
    async fn offer(&mut self) -> Result<(), Kind> {
        self.offered.is_resolved = false;
        let tools = self.tools.resolve(&self.run).await?;
        self.offered = Offered { tools, options: None, is_resolved: true };
        let agent = self.tools.agent().clone();
        if let Some(before_turn) = agent.0.before_turn.as_ref().filter(|_| self.run.is_asking()) {
            let mut turn = Turn::new(&self.run, self.tools.context(), self.offered.tools.clone());
            before_turn(&mut turn);
            let (tools, options) = turn.into_parts();
            self.offered = Offered { tools, options: Some(options), is_resolved: true };
        }
        Ok(())
    }

    /// Waits for the conversation, if the agent has a memory, and puts what was said before in front of the question.
    async fn remember(&mut self) -> Result<(), Kind> {
        let agent = self.tools.agent().clone();
        let Some(memory) = &agent.0.memory else { return Ok(()) };
        if !self.run.is_asking() || self.run.remembers() {
            return Ok(());
        }
        let id = self.run.conversation().cloned().unwrap_or_else(ConversationId::unique);
        let conversation = match self.unless_stopped(memory.open(&id)).await {
            Ok(opened) => opened.map_err(|error| Kind::NotKept(error.into()))?,
            Err(stop) => {
                self.stop(&stop);
                return Ok(());
            }
        };
        self.run.remember(conversation.messages(), conversation.kept());
        self.conversation = Some(conversation);
        self.is_changed = true;
        Ok(())
    }

    /// Adds what the run added to its conversation, if it has an answer.
    async fn commit(&mut self) -> Result<(), Kind> {
        let agent = self.tools.agent().clone();
        let (Some(memory), Some(id)) = (&agent.0.memory, self.run.conversation()) else {
            return self.forget().await;
        };
        if self.run.answer_text().is_some() {
            let committed = match self.conversation.take() {
                Some(conversation) => conversation.commit(self.run.added()).await,
                None => memory.commit_once(id, self.run.added(), self.run.conversation_had()).await,
            };
            committed.map_err(|error| Kind::NotKept(error.into()))?;
        }
        self.forget().await
    }

    /// Keeps the run as it stands, if the agent keeps its runs.
    async fn keep(&mut self) -> Result<(), Kind> {
        if self.is_changed
            && let Some(store) = &self.tools.agent().0.run_store
        {
            store.save_run(self.run.id().as_str(), &self.run).await.map_err(Kind::NotKept)?;
        }
        self.is_changed = false;
        Ok(())
    }

    /// The run is over, and need not be kept any more.
    async fn forget(&mut self) -> Result<(), Kind> {
        match &self.tools.agent().0.run_store {
            Some(store) if self.run.is_done() => {
                store.remove_run(self.run.id().as_str()).await.map_err(Kind::NotKept)
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, call: &ToolCall) -> Result<Attempt, Kind> {
        self.is_changed = true;
        self.run.begin(&call.id).map_err(Kind::OutOfStep)
    }

    /// Records what the model replied; gives what is to be told of it.
    fn record_reply(&mut self, response: ChatResponse) -> Result<Vec<Event>, Kind> {
        self.trace.replied(&response);
        let told = self.observers.are_there().then(|| response.clone());
        self.is_changed = true;
        self.run.replied(response).map_err(Kind::OutOfStep)?;
        self.count_time();
        let agent = self.tools.agent().clone();
        if let Some(needs_approval) = &agent.0.needs_approval {
            for call in self.run.open_calls() {
                if needs_approval(&call) {
                    self.run.require_approval(&call.id).map_err(Kind::OutOfStep)?;
                }
            }
        }
        let Some(mut response) = told else { return Ok(Vec::new()) };
        // With the ids that the run gave the calls.
        let mut replies = self.run.messages().iter().rev().filter_map(crate::Message::as_assistant);
        response.message = replies.next().cloned().unwrap_or_default();
        let mut events: Vec<_> = self.run.open_calls().into_iter().map(Event::CallReady).collect();
        events.push(Event::TurnFinished { turn: self.run.turns(), response });
        Ok(events)
    }

    /// Tells how the calls ended that were under way when the run was stopped.
    async fn tell_of_interrupted(&mut self) {
        if self.observers.are_there() {
            let last = self.run.tool_executions().iter().rev();
            let interrupted = last.take_while(|one| one.outcome().is_err_and(ToolError::is_outcome_unknown));
            let events: Vec<_> = interrupted.cloned().map(Event::CallFinished).collect();
            self.tell_all(events.into_iter().rev()).await;
        }
    }

    async fn tell_all(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.observers.tell(|| event).await;
        }
    }

    /// Makes the calls side by side, as many at once as may be, and records each as it is over.
    async fn make(&mut self, calls: Vec<ToolCall>) -> Result<(), Kind> {
        let caller = self.caller();
        let most = self.tools.agent().0.max_concurrent_calls;
        let mut queue = VecDeque::from(calls);
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < most
                && let Some(call) = queue.pop_front()
            {
                let attempt = self.begin(&call)?;
                // Boxed, as the queue has room for one future more than are in it.
                under_way.push(caller.make(call, attempt).boxed());
            }
            self.keep().await?;
            let execution = match self.unless_stopped(under_way.next()).await {
                Ok(Some(execution)) => execution,
                Ok(None) => return Ok(()),
                Err(stop) => {
                    self.stop(&stop);
                    drop(under_way);
                    self.tell_of_interrupted().await;
                    return Ok(());
                }
            };
            let is_undoing = self.run.is_undoing();
            let (again, event) = self.record_call(execution)?;
            queue.extend(again);
            if let Some(event) = event {
                self.observers.tell(|| event).await;
            }
            // A call may have ended the run: what else is under way is given up.
            if self.run.is_done() || self.run.is_undoing() != is_undoing {
                return Ok(());
            }
        }
    }

    /// Records the outcome of a call; gives the call if it is made again, and what is to be told of it.
    fn record_call(
        &mut self,
        mut execution: ToolExecution,
    ) -> Result<(Option<ToolCall>, Option<Event>), Kind> {
        self.is_changed = true;
        let again = self.run.would_try_again(&execution).then(|| execution.call().clone());
        let handler = self.tools.agent().0.error_handler.as_ref().filter(|_| again.is_none());
        if let (Some(handler), Err(error)) = (handler, execution.outcome())
            && let Some(outcome) = handler(execution.call(), error)
        {
            execution = execution.with_outcome(outcome);
        }
        let told = self.observers.are_there().then(|| execution.clone());
        self.run.called(execution).map_err(Kind::OutOfStep)?;
        self.count_time();
        let event = told.map(if again.is_some() { Event::CallTriedAgain } else { Event::CallFinished });
        Ok((again, event))
    }

    fn caller(&mut self) -> Caller {
        if self.run.is_undoing() {
            // What undoes is not cancelled with what it undoes.
            self.cancellation = Cancellation::new();
            self.on_drop = CancelOnDrop::new(self.cancellation.clone());
        }
        let agent = self.tools.agent();
        Caller {
            tools: self.offered.tools.clone(),
            undo_tools: agent.0.undo_tools.clone(),
            context: self.tools.context().clone(),
            observers: self.observers.clone(),
            trace: self.trace.of_calls(),
            cancellation: self.cancellation.clone(),
            timeout: agent.0.call_timeout,
            undone: self.run.to_undo(),
        }
    }

    fn time_left(&self) -> Option<Duration> {
        let since = self.clock.map_or(Duration::ZERO, |clock| clock.elapsed());
        self.run.time_left().map(|left| left.saturating_sub(since))
    }

    fn count_time(&mut self) {
        let now = Instant::now();
        if let Some(clock) = self.clock.replace(now) {
            self.run.spend(now - clock);
        }
    }

    /// What is undone is undone to its end.
    fn unless_stopped<'a, F>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Stop>> + Send + use<'a, F>
    where
        F: Future<Output: Send> + Send + 'a,
    {
        let cancelled_by = self.cancelled_by.as_ref().filter(|_| !self.run.is_undoing());
        unless_stopped(future, cancelled_by, self.time_left())
    }

    fn stop(&mut self, stop: &Stop) {
        self.is_changed = true;
        self.trace.stopped();
        match stop {
            Stop::OutOfTime => self.run.spend(self.run.limits().time.unwrap_or_default()),
            Stop::Cancelled => self.run.cancel(),
        }
    }
}

/// The run's step, with what the turn has beside.
fn next_step<'a>(run: &'a mut Run, offered: &Offered) -> Step<'a> {
    match (run.next(offered.tools.definitions()), &offered.options) {
        (Step::CallModel(request), Some((options, choice))) => {
            Step::CallModel(request.with_options(options.clone()).with_tool_choice(choice.clone()))
        }
        (step, _) => step,
    }
}

/// What nothing can stop takes no room for it: a run that waits is as large as what it awaits.
fn unless_stopped<'a, F>(
    future: F,
    cancelled_by: Option<&Cancellation>,
    time_left: Option<Duration>,
) -> impl Future<Output = Result<F::Output, Stop>> + Send + use<'a, F>
where
    F: Future<Output: Send> + Send + 'a,
{
    if cancelled_by.is_none() && time_left.is_none() {
        return future.map(Ok).left_future();
    }
    let cancelled = cancelled_by.map(Cancellation::cancelled);
    let stop = async move {
        let cancelled = match cancelled {
            Some(cancelled) => cancelled.left_future(),
            None => future::pending().right_future(),
        };
        let out_of_time = async {
            match time_left {
                // Without timers the limit is looked at between two steps.
                Some(left) if tokio::runtime::Handle::try_current().is_ok() => tokio::time::sleep(left).await,
                _ => future::pending().await,
            }
        };
        match future::select(cancelled, pin!(out_of_time)).await {
            Either::Left(_) => Stop::Cancelled,
            Either::Right(_) => Stop::OutOfTime,
        }
    };
    let first = future::select(future.boxed(), stop.boxed()).map(|first| match first {
        Either::Left((value, _)) => Ok(value),
        Either::Right((stop, _)) => Err(stop),
    });
    first.right_future()
}

fn tell_failure(observers: &Observers, error: &RunError) {
    if !observers.hooks.is_empty() {
        observers.tell_hooks(&Event::Failed(error.to_string()));
    }
}

/// Asks the model; streamed if somebody reads along.
async fn ask(
    model: &dyn ChatModel,
    request: &ChatRequest<'_>,
    observers: &mut Observers,
) -> Result<ChatResponse, ModelError> {
    if observers.stream.is_none() {
        return model.chat(request).await;
    }
    let mut deltas = model.stream(request);
    while let Some(delta) = deltas.next().await {
        match delta? {
            Delta::Text(text) => observers.tell(|| Event::Text(text)).await,
            Delta::Reasoning(text) => observers.tell(|| Event::Reasoning(text)).await,
            Delta::ToolCall { index, id, name } => {
                observers.tell(|| Event::CallAnnounced { index, id, name }).await;
            }
            Delta::Arguments { index, text } => observers.tell(|| Event::Arguments { index, text }).await,
            Delta::Done(response) => return Ok(response),
        }
    }
    Err(ModelError::new("the stream ended before the response was whole"))
}

/// Tells where the run stands, not what is in it.
impl fmt::Debug for LiveRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveRun").field("run", &self.run).finish_non_exhaustive()
    }
}
