//! The calls of a turn, each as an invocation of its own.

use std::collections::{BTreeMap, HashSet};
use std::pin::Pin;

use restate_sdk::context::{DurableFuture, RequestTarget};
use restate_sdk::prelude::*;
use tool_core::content::Content;
use tool_core::layer::Part;
use tool_core::model::ToolDefinition;
use tool_core::run::{Decision, InFlight, Step};
use tool_core::tool::{Timestamp, ToolError, ToolErrorKind, ToolExecution, WaitId};
use tool_core::{Event, ToolCall};

use super::{Drive, MODEL_DELAY, is_cancellation, repeat_until};
use crate::clock::micros;
use crate::limit;
use crate::names::{CallInput, Sent, calls_service, tool_service};
use crate::turn::{Subject, Tools};

pub(super) type Pending<'c> =
    Pin<Box<dyn DurableFuture<Output = Result<Arrived, TerminalError>> + Send + 'c>>;

/// Something for which a run with open calls waits.
pub(super) enum Arrived {
    Executed(ToolExecution),
    Decision(WaitId, Sent<Decision>),
    Message(Sent<Content>),
    /// The timer with this number is up.
    TimeLimit(u32),
    /// A deadline of something that the run waits for has come.
    Deadline(Timestamp),
}

/// A call that another invocation executes.
pub(super) struct Remote {
    pub(super) call: ToolCall,
    pub(super) undoes: bool,
    pub(super) handle: Option<InvocationHandle>,
}

/// The open calls of a turn.
pub(super) struct Open<'c> {
    pub(super) pending: DurableFuturesUnordered<Pending<'c>>,
    pub(super) in_flight: BTreeMap<usize, Remote>,
    /// The waits about which a person was asked.
    pub(super) asked: HashSet<WaitId>,
    /// The earliest deadline for which a timer is set.
    pub(super) deadline: Option<Timestamp>,
    /// A person has decided since the tools of this worker were checked.
    pub(super) has_decision: bool,
    /// The number of timers that were set. Only the last one counts.
    pub(super) timers: u32,
    /// The last timer was set for calls that are still in flight.
    pub(super) has_timer: bool,
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
    /// Executes calls until the run needs the model again or is done.
    pub(super) async fn execute_calls(&mut self) -> HandlerResult<()> {
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
            match self.expire(&mut open).await {
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
                    // A pass of layers is asked for again, because the calls have waited.
                    Ok(true) if self.service.model.agent.has_layer_for(Part::Judge) => {
                        if self.judge("decided calls", Subject::DecidedCalls).await?.is_err() {
                            self.cancel(&mut open).await;
                        }
                        continue;
                    }
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
            self.publish_started_calls(&local, &remote);
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
                Ok(Some((index, Ok(arrived)))) => {
                    if self.accept(&mut open, index, arrived).await?.is_err() {
                        self.cancel(&mut open).await;
                    }
                }
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
    pub(super) async fn check_tools(&mut self, ready: &[ToolCall]) -> Result<bool, TerminalError> {
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
    pub(super) fn abandon(&mut self, open: &mut Open<'c>) {
        open.in_flight.retain(|_, one| {
            let is_awaited = self.run.has_open_call(&one.call.id);
            if let Some(handle) = one.handle.as_ref().filter(|_| !is_awaited) {
                handle.cancel();
            }
            is_awaited
        });
    }

    pub(super) fn max_calls(&self) -> usize {
        self.service.model.agent.max_concurrent_calls()
    }

    /// Starts calls. Returns `true` if one was refused, or the cancellation if the run was cancelled meanwhile.
    pub(super) async fn start_calls(
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
    pub(super) async fn start_undo(
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
    pub(super) fn input(&mut self, call: &ToolCall) -> Result<CallInput, TerminalError> {
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

    pub(super) async fn accept(
        &mut self,
        open: &mut Open<'c>,
        index: usize,
        arrived: Arrived,
    ) -> HandlerResult<Result<(), TerminalError>> {
        match arrived {
            Arrived::Executed(execution) => {
                if open.in_flight.remove(&index).is_some() {
                    return self.record_judged(execution).await;
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
        Ok(Ok(()))
    }

    /// Records an outcome that layers have judged. Returns the cancellation if the run was cancelled meanwhile; the outcome is recorded as
    /// it is then, because nobody reads it any more.
    pub(super) async fn record_judged(
        &mut self,
        execution: ToolExecution,
    ) -> HandlerResult<Result<(), TerminalError>> {
        let is_seen = self.service.model.agent.has_layer_for(Part::Output)
            && self.run.has_open_call(&execution.call().id)
            && !execution.is_waiting()
            && !self.run.will_retry(&execution);
        if !is_seen {
            self.record(execution);
            return Ok(Ok(()));
        }
        let judged = self.judge("output", Subject::Outcome(Box::new(execution.clone()))).await?;
        // Nothing happens if it was recorded with the verdict.
        self.record(execution);
        Ok(judged)
    }

    pub(super) fn record(&mut self, execution: ToolExecution) {
        let finished = execution.started_at().map(|started| micros(started + execution.duration()));
        if execution.is_waiting() {
            // The call waits since then.
            finished.into_iter().for_each(|at| self.elapse(at));
            self.record_waiting(execution);
            return;
        }
        if self.run.will_retry(&execution) {
            self.publish(Event::CallRetried(execution.clone()));
        }
        // Fails if the run has stopped, and no longer waits for the call.
        let _ = self.run.record_result(execution);
        self.publish_finished_calls();
        finished.into_iter().for_each(|at| self.elapse(at));
    }

    /// Cancels the run. The engine has cancelled its calls, whose outcomes are awaited, so that the right ones are undone.
    pub(super) async fn cancel(&mut self, open: &mut Open<'c>) {
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
}

pub(super) fn is_interrupted(execution: &ToolExecution) -> bool {
    execution.outcome().is_err_and(|error| error.kind() == ToolErrorKind::OutcomeUnknown)
}
