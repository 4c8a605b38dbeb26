//! Drives a run inside its invocation. Everything here follows from the journal, so that a replay takes the same way: the rules
//! are those of [`Run`], and what depends on the agent, its worker or the time is in the recorded steps.

use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, OptionFuture, ready, select};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use restate_sdk::context::{DurableFuture, RequestTarget};
use restate_sdk::prelude::*;
use tool_core::content::Content;
use tool_core::model::{ConversationId, ModelError, ToolDefinition, ToolDefinitions, ToolPolicy};
use tool_core::run::{Decision, InFlight, Run, RunErrorKind, Step, StopReason, Wait, WaitReason};
use tool_core::tool::{self, Timestamp, ToolError, ToolErrorKind, ToolExecution, WaitId};
use tool_core::{CancellationToken, Message, ToolCall};

use crate::calls::is_first_execution;
use crate::clock::{Clock, micros, now};
use crate::events::{EventTarget, RunEvent, Unfinished, events_service};
use crate::limit;
use crate::names::{
    Added, CallInput, Claim, Ended, HoldRequest, JsonContext, Question, RunFailure, Sent, Stop, Waiting,
    calls_service, conversations_service, tool_service,
};
use crate::runs::{
    FIRST_STOP, INVOCATION, QUESTION, Runs, WAITING, decision_signal, message_signal, part_key,
    resume_signal, stop,
};
use crate::turn::{CalledTool, Started, Tools, TurnOutcome, TurnRecord};

/// The code of the error with which the engine reports a cancellation.
const CANCELLED: u16 = 409;

/// The longest delay between two requests to a model that fails.
const MODEL_DELAY: Duration = Duration::from_secs(60);

fn is_cancellation(error: &TerminalError) -> bool {
    error.code() == CANCELLED
}

/// A run in progress.
pub(crate) struct Drive<'c> {
    service: &'c Runs,
    ctx: &'c WorkflowContext<'c>,
    run: Run,
    /// The tools of the run's calls so far, by name.
    called: BTreeMap<String, CalledTool>,
    /// The tools that undo the run's calls, by name, with the hashes of their definitions.
    undoing: BTreeMap<String, (ToolPolicy, Option<String>)>,
    /// The names of all tools of the last turn, if it called another one.
    offered: Vec<String>,
    definitions: ToolDefinitions,
    /// The agent's tools when the run started.
    started_with: BTreeMap<String, String>,
    context: JsonContext,
    conversation: Option<ConversationId>,
    clock: Clock,
    /// The object that stores the events of the run and its steps, if there may be readers.
    events: Option<EventTarget>,
    unpublished: Vec<RunEvent>,
    /// What is known to wait for a decision.
    waiting: Vec<WaitId>,
    /// The last wait for an approval of each call, by the id of the call.
    approvals: BTreeMap<String, WaitId>,
    /// The number of times that the run waited for a decision.
    round: u32,
    /// The reason of a failure that is not one of the run's rules.
    failure: Option<String>,
}

type Pending<'c> = Pin<Box<dyn DurableFuture<Output = Result<Arrived, TerminalError>> + Send + 'c>>;

/// Something for which a run with open calls waits.
enum Arrived {
    Executed(ToolExecution),
    Decision(WaitId, Sent<Decision>),
    Message(Sent<Content>),
    /// The timer with this number is up.
    TimeLimit(u32),
    /// A deadline of something that the run waits for has come.
    Deadline(Timestamp),
}

/// A call that another invocation executes.
struct Remote {
    call: ToolCall,
    undoes: bool,
    handle: Option<InvocationHandle>,
}

/// The open calls of a turn.
struct Open<'c> {
    pending: DurableFuturesUnordered<Pending<'c>>,
    in_flight: BTreeMap<usize, Remote>,
    /// The waits about which a person was asked.
    asked: HashSet<WaitId>,
    /// The earliest deadline for which a timer is set.
    deadline: Option<Timestamp>,
    /// A person has decided since the tools of this worker were checked.
    has_decision: bool,
    /// The number of timers that were set. Only the last one counts.
    timers: u32,
    /// The last timer was set for calls that are still in flight.
    has_timer: bool,
}

impl Open<'_> {
    /// Returns the calls in flight, of which there can be this many at once.
    fn calls(&self, max: usize) -> InFlight {
        let mut calls = InFlight::new(max);
        self.in_flight.values().for_each(|one| calls.begin(&one.call.id));
        calls
    }
}

impl<'c> Drive<'c> {
    pub(crate) async fn run(
        service: &'c Runs,
        ctx: &'c WorkflowContext<'c>,
        question: Question,
    ) -> HandlerResult<Ended> {
        ctx.set(INVOCATION, ctx.invocation_id().to_owned());
        ctx.set(QUESTION, question.digest());
        let publishes = question.events;
        let history = match &question.conversation {
            Some(conversation) => match open_conversation(service, ctx, conversation).await {
                Ok(history) => history,
                Err(error) if is_cancellation(&error) => {
                    return Ok(never_started(service, ctx, publishes, CANCELLED_MESSAGE));
                }
                Err(error) => return Ok(never_started(service, ctx, publishes, error.message())),
            },
            None => Vec::new(),
        };
        let (context, conversation) = (question.context.clone(), question.conversation.clone());
        let start = move || ready(Ok(Json(service.model.start(question, history))));
        let started = match ctx.run(start).name("start").await {
            Ok(Json(Ok(started))) => started,
            Ok(Json(Err(message))) => return Ok(never_started(service, ctx, publishes, &message)),
            Err(error) if is_cancellation(&error) => {
                return Ok(never_started(service, ctx, publishes, CANCELLED_MESSAGE));
            }
            Err(error) => return Err(error.into()),
        };
        let Started { run, tools, at } = started;
        let events = publishes.then(|| EventTarget {
            agent: service.name.clone(),
            run: ctx.key().to_owned(),
            token: run.id().to_string(),
        });
        if let Some(events) = &events {
            let target = RequestTarget::object(events_service(&service.name), ctx.key(), "open");
            // Awaited, because the steps publish on another way.
            let opened = ctx.request::<_, ()>(target, events.token.clone()).call().await;
            if opened.is_err_and(|error| is_cancellation(&error)) {
                return Ok(never_started(service, ctx, publishes, CANCELLED_MESSAGE));
            }
        }
        let mut drive = Self {
            service,
            ctx,
            run,
            called: BTreeMap::new(),
            undoing: BTreeMap::new(),
            offered: Vec::new(),
            definitions: ToolDefinitions::default(),
            started_with: tools,
            context,
            conversation,
            clock: Clock::starting_at(at),
            events,
            unpublished: Vec::new(),
            waiting: Vec::new(),
            approvals: BTreeMap::new(),
            round: 0,
            failure: None,
        };
        drive.drive_to_end().await?;
        Ok(drive.finish())
    }

    async fn drive_to_end(&mut self) -> HandlerResult<()> {
        loop {
            match self.run.next(&self.definitions) {
                Step::CallModel(_) => self.take_turn().await?,
                Step::CallTools(_) | Step::Waiting(_) => self.execute_calls().await?,
                Step::Done => return Ok(()),
                _ => self.fail("this version of the worker does not know a step of the run"),
            }
        }
    }

    /// Stops the run for a reason that is none of its rules. The effects of its calls are undone.
    fn fail(&mut self, message: impl Into<String>) {
        self.failure.get_or_insert_with(|| message.into());
        self.run.cancel();
    }

    /// Adds an event of the run itself, if there may be readers.
    fn publish(&mut self, event: RunEvent) {
        if self.events.is_some() {
            self.unpublished.push(event);
        }
    }

    /// Stores the events of the run itself, exactly once, and waits for it, so that those of the next step follow them.
    async fn flush_events(&mut self) -> Result<(), TerminalError> {
        for events in limit::batches(std::mem::take(&mut self.unpublished), self.service.model.max_bytes) {
            let target = events_target(self.service, self.ctx, "add");
            self.ctx.request::<_, ()>(target, Json(events)).call().await?;
        }
        Ok(())
    }

    /// Counts the time until this moment.
    fn elapse(&mut self, at: u64) {
        let passed = self.clock.advance(at);
        self.run.add_elapsed(passed);
        self.tick();
    }

    /// Sets the time of the run, but to none at which a question expires about which somebody may have decided.
    fn tick(&mut self) {
        let questions = self.run.waits().into_iter().filter(|wait| wait.question().is_some());
        let before =
            questions.filter_map(|wait| wait.deadline).map(|at| at.as_millis().saturating_sub(1)).min();
        let now = self.clock.time();
        self.run.tick(before.map_or(now, |before| now.min(Timestamp::from_millis(before))));
    }

    async fn take_turn(&mut self) -> HandlerResult<()> {
        match self.flush_events().await {
            Ok(()) => {}
            Err(error) if is_cancellation(&error) => {
                self.run.cancel();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let (model, run, tools, context) =
            (&self.service.model, &self.run, &self.started_with, &self.context);
        let events = self.events.as_ref();
        let unfinished = Unfinished::default();
        let published = unfinished.clone();
        let (attempts, patience) = (self.service.model_attempts, self.service.model_patience);
        let time_left = self.run.time_left().filter(|left| *left <= patience);
        let deadline = self.clock.after(time_left.unwrap_or(patience));
        // Boxed, because the compiler cannot prove for every lifetime that the future is `Send`.
        let turn = move || -> BoxFuture<'_, HandlerResult<Json<TurnRecord>>> {
            Box::pin(async move {
                let taken = model.take_turn(run.clone(), tools, context, events, &published).await;
                repeat_until(deadline, taken)
            })
        };
        let policy = RunRetryPolicy::default().max_delay(MODEL_DELAY);
        let policy = attempts.into_iter().fold(policy, RunRetryPolicy::max_attempts);
        let name = format!("turn {}", self.run.turns() + 1);
        let taken = self.ctx.run(turn).name(name).retry_policy(policy).await;
        unfinished.finish().await;
        match taken {
            Ok(Json(record)) => self.apply(record),
            Err(error) if is_cancellation(&error) => self.run.cancel(),
            Err(error) if attempts.is_some() => self.fail(error.message()),
            Err(error) => match time_left {
                Some(left) => self.run.add_elapsed(left),
                None => self.pause(error.message()).await?,
            },
        }
        Ok(())
    }

    /// Waits until an operator resumes the run.
    async fn pause(&mut self, reason: &str) -> HandlerResult<()> {
        let reason = reason.to_owned();
        self.publish(RunEvent::Paused(reason.clone()));
        self.begin_waiting(Vec::new(), Stop::Paused(reason));
        let resumed = match self.flush_events().await {
            Ok(()) => self.ctx.signal::<Json<Sent<()>>>(&resume_signal(self.round)).await,
            Err(error) => Err(error),
        };
        match resumed {
            Ok(Json(resumed)) => drop(self.clock.advance(resumed.at)),
            Err(error) if is_cancellation(&error) => self.run.cancel(),
            Err(error) => return Err(error.into()),
        }
        self.ctx.set(WAITING, Json(self.waiting_for(Vec::new())));
        // What waits for a person meanwhile is published again.
        self.waiting.clear();
        Ok(())
    }

    /// Returns what the handlers of the run know about its waits.
    fn waiting_for(&self, waits: Vec<WaitId>) -> Waiting {
        let approvals = self.approvals.clone();
        Waiting { turn: self.run.turns(), waits, approvals, round: self.round, paused: None }
    }

    /// Publishes that the run waits.
    fn begin_waiting(&mut self, waits: Vec<WaitId>, stop_reason: Stop) {
        self.round += 1;
        let paused = match &stop_reason {
            Stop::Paused(reason) => Some(reason.clone()),
            _ => None,
        };
        self.ctx.set(WAITING, Json(Waiting { paused, ..self.waiting_for(waits) }));
        if self.round == 1 {
            self.ctx.resolve_promise(FIRST_STOP, Json(None::<Added>));
        }
        self.ctx.resolve_promise(&stop(self.round - 1), Json(stop_reason));
    }

    fn apply(&mut self, record: TurnRecord) {
        let TurnRecord { outcome, started, finished } = record;
        self.elapse(started);
        match outcome {
            TurnOutcome::Response { response, tools, offered, approvals } => {
                let text = response.message.text.clone();
                // Fails if the time was up: the run has ended then.
                if self.run.record_response(*response).is_ok() {
                    self.offer(tools, offered);
                    let turn = self.run.turns();
                    // The calls have their final ids now.
                    let calls = self.run.current_calls().map(|(call, _)| call.clone()).collect();
                    self.publish(RunEvent::TurnFinished { turn, text, calls });
                    for call in approvals {
                        let _ = self.run.require_approval(&call);
                    }
                }
            }
            TurnOutcome::TimedOut => self.run.add_elapsed(self.run.time_left().unwrap_or_default()),
            TurnOutcome::Refused(message) => self.fail(message),
        }
        self.elapse(finished);
    }

    /// Takes over the tools of the calls of this turn. A tool that was not offered this time is none, also if an earlier turn called it.
    fn offer(&mut self, tools: Vec<CalledTool>, offered: Vec<String>) {
        self.run.current_calls().for_each(|(call, _)| drop(self.called.remove(&call.name)));
        for tool in tools {
            if let Some((undo, policy)) = &tool.undo {
                self.undoing.insert(undo.clone(), (policy.clone(), tool.undo_hash.clone()));
            }
            self.called.insert(tool.name.clone(), tool);
        }
        self.offered = offered;
        let undoing = self.undoing.iter().filter(|(name, _)| !self.called.contains_key(*name));
        let undoing =
            undoing.map(|(name, (policy, _))| ToolDefinition::new(&**name).with_policy(policy.clone()));
        self.definitions = self.called.values().map(CalledTool::definition).chain(undoing).collect();
    }

    /// Executes calls until the run needs the model again or is done.
    async fn execute_calls(&mut self) -> HandlerResult<()> {
        let mut open = Open {
            pending: DurableFuturesUnordered::new(),
            in_flight: BTreeMap::new(),
            asked: HashSet::new(),
            deadline: None,
            has_decision: false,
            timers: 0,
            has_timer: false,
        };
        loop {
            self.abandon(&mut open);
            match self.expire().await {
                Ok(()) => {}
                Err(error) if is_cancellation(&error) => {
                    self.cancel(&mut open).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            let ready = match self.run.next_with_in_flight(&self.definitions, &open.calls(self.max_calls())) {
                Step::CallTools(calls) => calls,
                Step::Waiting(_) => Vec::new(),
                _ => {
                    self.ask_person(&mut open);
                    return Ok(());
                }
            };
            if open.has_decision && !ready.is_empty() {
                open.has_decision = false;
                match self.check_tools(&ready).await {
                    Ok(true) => {}
                    Ok(false) => continue,
                    Err(error) if is_cancellation(&error) => {
                        self.cancel(&mut open).await;
                        continue;
                    }
                    Err(error) => {
                        open.has_decision = true;
                        self.pause(error.message()).await?;
                        continue;
                    }
                }
            }
            let (routes, has_local_calls) = (&self.service.routes, self.service.has_local_calls);
            // A further cancellation would end a step of this invocation, but not the invocation of a call that undoes another.
            let undoes = |call: &ToolCall| self.run.current_calls().all(|(one, _)| one.id != call.id);
            let (local, remote): (Vec<_>, Vec<_>) = ready
                .into_iter()
                .partition(|call| has_local_calls && !routes.contains_key(&call.name) && !undoes(call));
            let mut flushed = self.flush_events().await;
            if flushed.is_ok() {
                match self.start_calls(&mut open, remote, !local.is_empty()).await? {
                    Ok(true) => continue,
                    started => flushed = started.map(drop),
                }
            }
            self.ask_person(&mut open);
            if flushed.is_ok() && !local.is_empty() {
                self.execute_locally(local).await?;
                continue;
            }
            self.limit_time(&mut open);
            self.await_deadline(&mut open);
            if flushed.is_ok() {
                flushed = self.flush_events().await;
            }
            let arrived = match flushed {
                Ok(()) => open.pending.next().await,
                Err(error) => Err(error),
            };
            match arrived {
                Ok(Some((index, Ok(arrived)))) => self.accept(&mut open, index, arrived),
                Ok(Some((index, Err(_)))) => {
                    // Its invocation was killed, or cancelled before it began. The run may no longer wait for it.
                    if let Some(lost) = open.in_flight.remove(&index) {
                        self.record(ToolExecution::new(lost.call, Err(ToolError::interrupted())));
                    }
                }
                Ok(None) => return Err(TerminalError::new("a run waits for nothing").into()),
                Err(error) if is_cancellation(&error) => self.cancel(&mut open).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Checks that this worker has the tools of calls that waited for a person, maybe for days. Returns `false` if the run has changed.
    async fn check_tools(&mut self, ready: &[ToolCall]) -> Result<bool, TerminalError> {
        let (model, tools) = (&self.service.model, &self.started_with);
        let deadline = self.clock.after(self.service.model_patience);
        let compare = move || async move { repeat_until(deadline, model.compare_tools(tools)) };
        let policy = RunRetryPolicy::default().max_delay(MODEL_DELAY);
        let Json(compared) = self.ctx.run(compare).name("tools").retry_policy(policy).await?;
        match compared {
            Tools::Same => return Ok(true),
            Tools::Refused(reason) => self.fail(reason),
            Tools::Changed(present) => {
                let is_changed = |call: &&ToolCall| {
                    let before = self.started_with.get(&call.name);
                    before.is_some() && before != present.get(&call.name)
                };
                let changed: Vec<_> = ready.iter().filter(is_changed).cloned().collect();
                if changed.is_empty() {
                    return Ok(true);
                }
                for call in changed {
                    let reason = format!("the tool `{}` has changed since the call was approved", call.name);
                    self.record(ToolExecution::new(call, Err(ToolError::not_executed(&reason))));
                }
            }
        }
        Ok(false)
    }

    /// Cancels the calls that the run no longer waits for, because it has stopped.
    fn abandon(&mut self, open: &mut Open<'c>) {
        open.in_flight.retain(|_, one| {
            let is_awaited = self.run.has_open_call(&one.call.id);
            if let Some(handle) = one.handle.as_ref().filter(|_| !is_awaited) {
                handle.cancel();
            }
            is_awaited
        });
    }

    fn max_calls(&self) -> usize {
        self.service.model.agent.max_concurrent_calls()
    }

    /// Starts calls. Returns `true` if one was refused, or the cancellation if the run was cancelled meanwhile.
    async fn start_calls(
        &mut self,
        open: &mut Open<'c>,
        ready: Vec<ToolCall>,
        has_others: bool,
    ) -> HandlerResult<Result<bool, TerminalError>> {
        // The handle takes another round trip, and only a call that others or the time can end needs it.
        let needs_handle = has_others
            || ready.len() > 1
            || !open.in_flight.is_empty()
            || !self.run.waits().is_empty()
            || self.run.limits().max_time.is_some();
        let (max_bytes, mut has_refused) = (self.service.model.max_bytes, false);
        for call in ready {
            let mut input = self.input(&call)?;
            let undoes = input.request.undone.is_some();
            let check = |input: &CallInput| limit::check("the call with its context", input, max_bytes);
            let mut checked = check(&input);
            if let (Err(_), Some(undone)) = (&checked, &mut input.request.undone) {
                // Better undone without its output than not at all.
                undone.output = None;
                checked = check(&input);
            }
            if let Err(reason) = checked {
                self.record(ToolExecution::new(call, Err(ToolError::not_executed(&reason))));
                has_refused = true;
                continue;
            }
            let owner = self.service.routes.get(&call.name).unwrap_or(&self.service.name);
            let known =
                input.definition.as_ref().filter(|hash| self.started_with.get(&call.name) == Some(hash));
            let service = known.map(|hash| tool_service(owner, &call.name, hash));
            let target = RequestTarget::service(service.unwrap_or_else(|| calls_service(owner)), "call");
            if undoes {
                self.start_undo(open, target, call, input).await?;
                continue;
            }
            let future = self.ctx.request::<_, Json<ToolExecution>>(target, Json(input)).call();
            let handle = match needs_handle {
                true => Some(future.invocation_handle().await),
                false => None,
            };
            let index =
                open.pending.push(Box::pin(future.map_ok(|Json(execution)| Arrived::Executed(execution))));
            let (handle, failed) = match handle {
                Some(Ok(handle)) => (Some(handle), None),
                Some(Err(error)) => (None, Some(error)),
                None => (None, None),
            };
            open.in_flight.insert(index, Remote { call, undoes, handle });
            if let Some(error) = failed {
                return Ok(Err(error));
            }
        }
        Ok(Ok(has_refused))
    }

    /// Starts a call that undoes another. The engine cancels the calls of a run with it, but not an invocation that was sent.
    async fn start_undo(
        &mut self,
        open: &mut Open<'c>,
        target: RequestTarget,
        call: ToolCall,
        input: CallInput,
    ) -> HandlerResult<()> {
        let attempt = &input.request.attempt;
        let key = format!("{}-{}", attempt.key, attempt.number);
        let invocation = loop {
            // The key starts one invocation, also if a further cancellation ends the request for its id.
            let request = self.ctx.request::<_, Json<ToolExecution>>(target.clone(), Json(input.clone()));
            match request.idempotency_key(&*key).send().await {
                Ok(invocation) => break invocation,
                Err(error) if is_cancellation(&error) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let executed = invocation.attach::<Json<ToolExecution>>();
        let index =
            open.pending.push(Box::pin(executed.map_ok(|Json(execution)| Arrived::Executed(execution))));
        open.in_flight.insert(index, Remote { call, undoes: true, handle: None });
        Ok(())
    }

    /// Begins a call.
    fn input(&mut self, call: &ToolCall) -> Result<CallInput, TerminalError> {
        let request = self.run.request_call(&call.id).map_err(TerminalError::from_error)?;
        let undoes = request.undone.is_some();
        let called = self.called.get(&call.name).filter(|_| !undoes).map(|tool| tool.hash.clone());
        let undoing = self.undoing.get(&call.name).filter(|_| undoes).and_then(|(_, hash)| hash.clone());
        let is_unknown = !undoes && called.is_none();
        let policy = self.definitions.iter().find(|one| one.name() == call.name).map(ToolDefinition::policy);
        Ok(CallInput {
            request,
            definition: called.or(undoing),
            offered: if is_unknown { self.offered.clone() } else { Vec::new() },
            at_most_once: policy.is_some_and(|policy| policy.at_most_once),
            events: self.events.clone(),
            context: self.context.clone(),
        })
    }

    /// Executes calls in this invocation, in one recorded step. It ends when the time of the run is up.
    async fn execute_locally(&mut self, calls: Vec<ToolCall>) -> HandlerResult<()> {
        let started = calls.len();
        let time_left = self.run.time_left();
        let inputs = calls.iter().map(|call| self.input(call)).collect::<Result<Vec<_>, _>>()?;
        let may_repeat = match inputs.iter().any(|input| input.at_most_once) {
            true => match is_first_execution!(self.ctx) {
                Ok(is_first) => is_first,
                Err(error) if is_cancellation(&error) => {
                    self.run.cancel();
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            },
            false => true,
        };
        // A cancelled step returns nothing to its caller, so the outcomes of its calls are left here.
        let done: Arc<Mutex<Vec<ToolExecution>>> = Arc::default();
        let service = self.service;
        let unfinished = Unfinished::default();
        let published = unfinished.clone();
        // The outcomes of all calls are one value.
        let max_bytes = service.model.max_bytes / inputs.len().max(1);
        let stash = Arc::clone(&done);
        let execute = move || -> BoxFuture<'_, HandlerResult<Json<Vec<ToolExecution>>>> {
            let executions = inputs.into_iter().map(move |input| {
                let (stash, published) = (Arc::clone(&stash), published.clone());
                let execution = async move {
                    let execution = if input.at_most_once && !may_repeat {
                        ToolExecution::new(input.request.call, Err(ToolError::outcome_unknown()))
                    } else {
                        let cancellation = CancellationToken::new();
                        // Also cancelled when the time is up and this future is dropped.
                        let _cancels = cancellation.clone().drop_guard();
                        let (types, publisher) = (&service.model.types, service.model.publisher.as_ref());
                        let executor = &service.executor;
                        let executed =
                            executor.execute(input, types, &cancellation, publisher, &published).await;
                        limit::limited(executed, max_bytes)
                    };
                    stash.lock().unwrap_or_else(PoisonError::into_inner).push(execution.clone());
                    execution
                };
                execution.boxed()
            });
            Box::pin(async move {
                let mut executions = executions.collect::<FuturesUnordered<_>>();
                let time_is_up = OptionFuture::from(time_left.map(tokio::time::sleep));
                let mut time_is_up = std::pin::pin!(async move {
                    match time_is_up.await {
                        Some(()) => {}
                        None => std::future::pending().await,
                    }
                });
                let mut executed = Vec::new();
                while let Either::Left((Some(execution), _)) =
                    select(executions.next(), &mut time_is_up).await
                {
                    executed.push(execution);
                }
                Ok(Json(executed))
            })
        };
        let executed = self.ctx.run(execute).name("calls").await;
        unfinished.finish().await;
        let executed = match executed {
            Ok(Json(executions)) => executions,
            Err(error) if is_cancellation(&error) => {
                let take = || async move {
                    Ok(Json(std::mem::take(&mut *done.lock().unwrap_or_else(PoisonError::into_inner))))
                };
                let left = self.ctx.run(take).name("calls before the cancellation").await;
                for execution in left.map(|Json(left)| left).unwrap_or_default() {
                    self.record(execution);
                }
                self.run.cancel();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let is_time_up = executed.len() < started;
        for execution in executed {
            self.record(execution);
        }
        if is_time_up {
            self.run.add_elapsed(self.run.time_left().unwrap_or_default());
        }
        Ok(())
    }

    /// Publishes what waits for a decision, and waits for the decisions.
    fn ask_person(&mut self, open: &mut Open<'c>) {
        let waiting: Vec<_> = self.run.waits().into_iter().filter(|wait| !wait.is_until()).collect();
        let ids: Vec<_> = waiting.iter().map(|wait| wait.id.clone()).collect();
        let new: Vec<_> = ids.iter().filter(|id| !open.asked.contains(*id)).cloned().collect();
        let is_published = ids.is_empty() || !self.waiting.is_empty();
        if new.is_empty() && is_published {
            if ids != self.waiting {
                self.waiting.clone_from(&ids);
                self.ctx.set(WAITING, Json(self.waiting_for(ids)));
            }
            return;
        }
        self.waiting.clone_from(&ids);
        if open.asked.is_empty() {
            let message = self.ctx.signal::<Json<Sent<Content>>>(&message_signal(self.run.turns()));
            open.pending.push(Box::pin(message.map_ok(|Json(message)| Arrived::Message(message))));
        }
        for id in new {
            let decision = self.ctx.signal::<Json<Sent<Decision>>>(&decision_signal(&id));
            let about = id.clone();
            open.pending.push(Box::pin(decision.map_ok(|Json(decision)| Arrived::Decision(about, decision))));
            open.asked.insert(id);
        }
        let approvals = waiting.iter().filter(|wait| matches!(wait.reason, WaitReason::Approval(_)));
        self.approvals.extend(approvals.map(|wait| (wait.path.clone(), wait.id.clone())));
        self.publish(RunEvent::Waiting(waiting.clone()));
        self.begin_waiting(ids, Stop::Waiting(waiting));
    }

    /// Lets questions expire whose time is up. One about which somebody has decided does not: the decision is on its way.
    async fn expire(&mut self) -> Result<(), TerminalError> {
        let now = self.clock.time();
        for wait in self.run.waits() {
            let Some(expired) = wait.expired(now).filter(|_| self.waiting.contains(&wait.id)) else {
                continue;
            };
            let signal = decision_signal(&wait.id);
            let own = self.ctx.invocation_id().to_owned();
            self.ctx.resolve_promise(&signal, Json(Claim { invocation: own.clone(), record: Some(expired) }));
            let Json(winner) = self.ctx.promise::<Json<Claim>>(&signal).await?;
            if winner.invocation != own {
                return Ok(());
            }
        }
        self.run.tick(now);
        Ok(())
    }

    /// Sets a timer for the next deadline of something that the run waits for.
    fn await_deadline(&mut self, open: &mut Open<'c>) {
        let now = self.clock.time();
        let deadlines = self.run.waits().into_iter().filter_map(|wait| wait.deadline);
        let next = deadlines.filter(|at| *at > now).min();
        if let Some(next) = next.filter(|next| open.deadline.is_none_or(|earlier| *next < earlier)) {
            open.deadline = Some(next);
            let timer = self.ctx.sleep(next.since(now));
            open.pending.push(Box::pin(timer.map_ok(move |()| Arrived::Deadline(next))));
        }
    }

    /// Returns `true` if time counts: calls are executed, or all that are open wait for a point in time.
    fn is_working(&self, open: &Open<'c>) -> bool {
        !open.in_flight.is_empty() || self.run.waits().iter().all(Wait::is_until)
    }

    fn limit_time(&mut self, open: &mut Open<'c>) {
        let is_working = self.is_working(open);
        // A timer that was set before the run only waited for a person has counted that time, too.
        open.has_timer &= is_working;
        if let Some(left) = self.run.time_left().filter(|_| !open.has_timer && is_working) {
            // The time of a person does not count, and the timer is not set for it.
            open.has_timer = true;
            open.timers += 1;
            let number = open.timers;
            let timer = self.ctx.sleep(left.max(Duration::from_millis(1)));
            open.pending.push(Box::pin(timer.map_ok(move |()| Arrived::TimeLimit(number))));
        }
    }

    fn accept(&mut self, open: &mut Open<'c>, index: usize, arrived: Arrived) {
        match arrived {
            Arrived::Executed(execution) => {
                if open.in_flight.remove(&index).is_some() {
                    self.record(execution);
                }
            }
            Arrived::Decision(wait, Sent { value, at }) => {
                open.has_decision = true;
                self.resume_clock(open, at);
                // Fails if the run has stopped or somebody has sent a message instead.
                let _ = self.run.resolve(&wait, value);
            }
            Arrived::Message(Sent { value, at }) => {
                self.resume_clock(open, at);
                let _ = self.run.push_user_message(value);
            }
            Arrived::Deadline(at) => {
                open.deadline = open.deadline.filter(|next| *next != at);
                self.resume_clock(open, at.as_millis().saturating_mul(1000));
            }
            Arrived::TimeLimit(number) if !open.has_timer || number != open.timers => {}
            Arrived::TimeLimit(_) => {
                open.has_timer = false;
                if open.in_flight.is_empty() || open.in_flight.values().any(|one| !one.undoes) {
                    self.run.add_elapsed(self.run.time_left().unwrap_or_default());
                }
            }
        }
    }

    /// Counts the time until a decision, unless the run only waited for it.
    fn resume_clock(&mut self, open: &Open<'c>, at: u64) {
        match self.is_working(open) {
            true => self.elapse(at),
            false => {
                self.clock.advance(at);
                self.tick();
            }
        }
    }

    fn record(&mut self, execution: ToolExecution) {
        let finished = execution.started_at().map(|started| micros(started + execution.duration()));
        if execution.is_waiting() {
            // The call waits since then.
            finished.into_iter().for_each(|at| self.elapse(at));
            self.record_waiting(execution);
            return;
        }
        self.publish(RunEvent::CallFinished(execution.clone()));
        // Fails if the run has stopped, and no longer waits for the call.
        let _ = self.run.record_result(execution);
        finished.into_iter().for_each(|at| self.elapse(at));
    }

    /// Records a call that waits. Secrets are not asked for, because the engine stores every answer.
    fn record_waiting(&mut self, execution: ToolExecution) {
        let _ = self.run.record_result(execution);
        for wait in self.run.waits() {
            if wait.question().is_some_and(tool::Question::is_secret) {
                let nobody = Decision::unavailable().because("the engine would store the secret answer");
                let _ = self.run.resolve(&wait.id, nobody);
            }
        }
    }

    /// Cancels the run. The engine has cancelled its calls, whose outcomes are awaited, so that the right ones are undone.
    async fn cancel(&mut self, open: &mut Open<'c>) {
        if open.in_flight.values().any(|one| one.undoes) {
            return;
        }
        while !open.in_flight.is_empty() {
            match open.pending.next().await {
                Ok(Some((index, arrived))) => {
                    let known = open.in_flight.remove(&index);
                    if let (Some(_), Ok(Arrived::Executed(execution))) = (known, arrived)
                        && !is_interrupted(&execution)
                    {
                        self.record(execution);
                    }
                }
                // A second cancellation: the outcomes remain unknown.
                Ok(None) | Err(_) => break,
            }
        }
        open.in_flight.clear();
        self.run.cancel();
    }

    /// Publishes the end of the run.
    fn finish(mut self) -> Ended {
        self.publish(RunEvent::Ended);
        if self.events.is_some() {
            end_events(self.service, self.ctx, std::mem::take(&mut self.unpublished));
        }
        let Self { service, ctx, run, round, failure, conversation, approvals, .. } = self;
        let ended = match run.finish() {
            Ok(answer) => Ended::Answer(answer),
            Err(error) => {
                let reason = match error.kind() {
                    RunErrorKind::Stopped(reason) if failure.is_none() => Some(reason.clone()),
                    _ => None,
                };
                Ended::Failed(RunFailure {
                    reason,
                    message: failure.unwrap_or_else(|| error.to_string()),
                    tool_executions: error.tool_executions().to_vec(),
                    undo_executions: error.run().undo_executions().to_vec(),
                })
            }
        };
        let messages = match &ended {
            Ended::Answer(answer) if conversation.is_some() => Some(answer.messages().to_vec()),
            _ => None,
        };
        let ended = store_parts(ctx, ended, service.model.max_bytes);
        let added = messages.map(|messages| match &ended {
            Ended::Parts(parts) => {
                Added { messages: Vec::new(), stored: Some((ctx.key().to_owned(), *parts)) }
            }
            _ => Added { messages, stored: None },
        });
        if round == 0 {
            ctx.resolve_promise(FIRST_STOP, Json(added));
        } else if let (Some(added), Some(conversation)) = (added, conversation) {
            let target =
                RequestTarget::object(conversations_service(&service.name), conversation.as_str(), "append");
            drop(ctx.request::<_, ()>(target, Json(added)).send());
        }
        ctx.set(WAITING, Json(Waiting { round, approvals, ..Waiting::default() }));
        ctx.resolve_promise(&stop(round), Json(Stop::Ended));
        ended
    }
}

/// Returns the outcome of a step, whose error ends it after this time; before, the engine repeats the step. Its own measure begins anew
/// with each client that begins to wait for the run.
fn repeat_until<T>(deadline: u64, outcome: Result<T, ModelError>) -> HandlerResult<Json<T>> {
    outcome.map(Json).map_err(|error| match now() < deadline {
        true => error.into(),
        false => TerminalError::new(error.to_string()).into(),
    })
}

fn is_interrupted(execution: &ToolExecution) -> bool {
    execution.outcome().is_err_and(|error| error.kind() == ToolErrorKind::OutcomeUnknown)
}

fn events_target(service: &Runs, ctx: &WorkflowContext<'_>, handler: &str) -> RequestTarget {
    RequestTarget::object(events_service(&service.name), ctx.key(), handler)
}

/// Stores the last events of a run without waiting, and removes all of them later.
fn end_events(service: &Runs, ctx: &WorkflowContext<'_>, events: Vec<RunEvent>) {
    for events in limit::batches(events, service.model.max_bytes) {
        drop(ctx.request::<_, ()>(events_target(service, ctx, "add"), Json(events)).send());
    }
    let clear = ctx.request::<(), ()>(events_target(service, ctx, "clear"), ());
    drop(clear.send_after(service.retention));
}

/// Waits until the conversation is free, and returns its messages.
async fn open_conversation(
    service: &Runs,
    ctx: &WorkflowContext<'_>,
    conversation: &ConversationId,
) -> Result<Vec<Message>, TerminalError> {
    let target = RequestTarget::object(conversations_service(&service.name), conversation.as_str(), "hold");
    let hold = HoldRequest { run: ctx.key().to_owned(), invocation: ctx.invocation_id().to_owned() };
    drop(ctx.request::<_, ()>(target, Json(hold)).send());
    let Json(history) = ctx.signal::<Json<Vec<Message>>>("history").await?;
    Ok(history)
}

/// Stores the end of a run beside it if it is larger than a value can be.
fn store_parts(ctx: &WorkflowContext<'_>, ended: Ended, max_bytes: usize) -> Ended {
    if limit::size(&ended) <= max_bytes {
        return ended;
    }
    let json = serde_json::to_vec(&ended).unwrap_or_default();
    let mut parts = 0;
    for part in json.chunks(max_bytes) {
        ctx.set(&part_key(parts), part.to_vec());
        parts += 1;
    }
    Ended::Parts(parts)
}

/// Ends a run before its first turn.
fn never_started(service: &Runs, ctx: &WorkflowContext<'_>, publishes: bool, message: &str) -> Ended {
    if publishes {
        end_events(service, ctx, vec![RunEvent::Ended]);
    }
    let reason = (message == CANCELLED_MESSAGE).then_some(StopReason::Cancelled);
    ctx.resolve_promise(FIRST_STOP, Json(None::<Added>));
    ctx.resolve_promise(&stop(0), Json(Stop::Ended));
    Ended::Failed(RunFailure { reason, ..failed(message.to_owned()) })
}

const CANCELLED_MESSAGE: &str = "the run was cancelled";

/// Returns the failure of a run that no rule ended, without records.
fn failed(message: String) -> RunFailure {
    RunFailure { reason: None, message, tool_executions: Vec::new(), undo_executions: Vec::new() }
}
