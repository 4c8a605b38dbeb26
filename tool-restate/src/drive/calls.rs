//! The calls of a turn, each as an invocation of its own.

use restate_sdk::context::{DurableFuture, RequestTarget};
use restate_sdk::prelude::*;
use tool_core::model::ToolKind;
use tool_core::run::Run;
use tool_core::tool::{Attempt, ToolError, ToolErrorKind, ToolExecution};
use tool_core::{Event, ToolCall};

use super::state::{Arrived, Branch, Drive, DriveError, Driven, Executor, OpenCall, Pending};
use crate::clock::micros;
use crate::limit;
use crate::names::{CallInput, Sent, calls_service, tool_service};
use crate::path::call_ids;
use crate::signals::WAITING;
use crate::step::Subject;

impl<'c> Drive<'c> {
    /// Starts calls of a run.
    pub(super) async fn start(&mut self, branch: &Branch, ready: Vec<ToolCall>) -> Driven {
        self.publish_started_calls(branch, &ready);
        self.flush_events().await?;
        let (of_agents, others): (Vec<_>, Vec<_>) =
            ready.into_iter().partition(|call| self.asks_agent(branch, call));
        let is_search = |call: &ToolCall| self.kind(branch, call) == Some(ToolKind::Search);
        let (searches, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_search);
        let (local, remote): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|call| self.is_local(branch, call));
        if self.start_remote_calls(branch, remote, !local.is_empty()).await? {
            // Others may no longer be needed.
            return Ok(());
        }
        for call in of_agents {
            self.start_agent(branch, call).await?;
        }
        for call in searches {
            if self.begin_call(branch, &call).is_some() {
                self.judge(branch, "search", Subject::Search(call.id)).await?;
            }
        }
        self.publish_waits();
        if local.is_empty() {
            return Ok(());
        }
        let mut all = vec![(branch.clone(), local)];
        self.join_local_calls(&mut all);
        self.flush_events().await?;
        self.execute_locally(all).await
    }

    /// Returns `true` if the call is executed in the invocation of its run.
    fn is_local(&self, branch: &Branch, call: &ToolCall) -> bool {
        let settings = &self.setup.settings;
        let is_undoing = self.run_at(&branch.path).is_some_and(Run::is_undoing);
        settings.has_local_calls
            && !is_undoing
            && !settings.routes.contains_key(&call.name)
            && !self.asks_agent(branch, call)
            && self.kind(branch, call) != Some(ToolKind::Search)
    }

    /// Adds the calls of other runs that can be executed in the same step, because nothing else happens meanwhile.
    fn join_local_calls(&mut self, all: &mut Vec<(Branch, Vec<ToolCall>)>) {
        for branch in self.branches.clone() {
            if all.iter().any(|(one, _)| one.path == branch.path) {
                continue;
            }
            let mut calls = self.startable(&branch, &self.tree_in_flight(all));
            calls.retain(|call| self.is_local(&branch, call));
            if !calls.is_empty() {
                self.publish_started_calls(&branch, &calls);
                all.push((branch, calls));
            }
        }
    }

    /// Awaits something that is pending.
    pub(super) async fn await_next(&mut self) -> Driven {
        self.publish_waits();
        self.await_message();
        self.await_time_limit();
        self.await_deadline();
        self.flush_events().await?;
        match self.open.pending.next().await? {
            Some((index, Ok(arrived))) => self.accept(index, arrived).await,
            Some((index, Err(_))) => {
                // Its invocation was killed, or cancelled before it began. The run may no longer wait for it.
                let Some(lost) = self.in_flight.remove(&index) else { return Ok(()) };
                let interrupted = ToolExecution::new(lost.call, Err(ToolError::interrupted()));
                self.judge_and_record(&lost.branch, interrupted).await
            }
            None => Err(TerminalError::new("a run waits for nothing").into()),
        }
    }

    /// Cancels the calls that no run waits for any more, and leaves the runs that have ended.
    pub(super) fn drop_ended(&mut self) {
        let run = &self.run;
        self.in_flight.retain(|_, one| {
            let own = run.inner_run_at(call_ids(&one.branch.path));
            let is_awaited = own.is_some_and(|run| run.has_open_call(&one.call.id));
            if let Executor::Invocation(Some(handle)) = &one.executor
                && !is_awaited
            {
                handle.cancel();
            }
            is_awaited
        });
        self.branches.retain(|one| run.inner_run_at(call_ids(&one.path)).is_some());
    }

    /// Starts calls. Returns `true` if one was refused.
    async fn start_remote_calls(
        &mut self,
        branch: &Branch,
        ready: Vec<ToolCall>,
        has_others: bool,
    ) -> Driven<bool> {
        // The handle takes another round trip, and only a call that others or the time can end needs it.
        let needs_handle = has_others
            || ready.len() > 1
            || self.branches.len() > 1
            || !self.in_flight.is_empty()
            || !self.run.waits().is_empty()
            || self.run.limits().max_time.is_some();
        let (max_bytes, mut has_refused) = (self.setup.settings.max_bytes, false);
        for call in ready {
            let Some(mut input) = self.request_call(branch, &call) else { continue };
            let check = |input: &CallInput| limit::check("the call with its context", input, max_bytes);
            let mut checked = check(&input);
            if let (Err(_), Some(undone)) = (&checked, &mut input.request.undone) {
                // Better undone without its output than not at all.
                undone.output = None;
                checked = check(&input);
            }
            if let Err(reason) = checked {
                let refused = ToolExecution::new(call, Err(ToolError::not_executed(&reason)));
                self.judge_and_record(branch, refused).await?;
                has_refused = true;
                continue;
            }
            let owner = self.setup.settings.routes.get(&call.name).unwrap_or(&self.setup.name);
            let known = input
                .definition
                .as_ref()
                .filter(|hash| self.nodes[branch.node].profile.tools.get(&call.name) == Some(hash));
            let service = known.map(|hash| tool_service(owner, &call.name, hash));
            let target = RequestTarget::service(service.unwrap_or_else(|| calls_service(owner)), "call");
            if input.request.undone.is_some() {
                self.start_undo(branch, target, call, input).await?;
                continue;
            }
            let future = self.ctx.request::<_, Json<ToolExecution>>(target, Json(input)).call();
            let handle = match needs_handle {
                true => future.invocation_handle().await.map(Some),
                false => Ok(None),
            };
            let (handle, started) = match handle {
                Ok(handle) => (handle, Ok(())),
                Err(error) => (None, Err(error)),
            };
            let executed = future.map_ok(|Json(execution)| Arrived::Executed(execution));
            self.await_call(branch, call, Executor::Invocation(handle), Box::pin(executed));
            started?;
        }
        Ok(has_refused)
    }

    /// Starts a call that undoes another. The engine cancels the calls of a run with it, but not an invocation that was sent.
    async fn start_undo(
        &mut self,
        branch: &Branch,
        target: RequestTarget,
        call: ToolCall,
        input: CallInput,
    ) -> Driven {
        let attempt = &input.request.attempt;
        let key = format!("{}-{}", attempt.key, attempt.number);
        let invocation = loop {
            // The key starts one invocation, also if a further cancellation ends the request for its id.
            let request = self.ctx.request::<_, Json<ToolExecution>>(target.clone(), Json(input.clone()));
            match request.idempotency_key(&*key).send().await.map_err(DriveError::from) {
                Err(DriveError::Cancelled) => {}
                sent => break sent?,
            }
        };
        let executed = invocation.attach::<Json<ToolExecution>>();
        let executed = executed.map_ok(|Json(execution)| Arrived::Executed(execution));
        self.await_call(branch, call, Executor::Invocation(None), Box::pin(executed));
        Ok(())
    }

    /// Awaits what a call in flight waits for.
    pub(super) fn await_call(
        &mut self,
        branch: &Branch,
        call: ToolCall,
        executor: Executor,
        pending: Pending<'c>,
    ) {
        let index = self.open.pending.push(pending);
        self.in_flight.insert(index, OpenCall { branch: branch.clone(), call, executor });
    }

    /// Begins a call that is executed here, unless what was begun before has ended the run.
    pub(super) fn begin_call(&mut self, branch: &Branch, call: &ToolCall) -> Option<Attempt> {
        self.change_at(&branch.path, |run| run.begin_call(&call.id).ok())?
    }

    /// Begins a call, unless what was begun before has ended the run.
    pub(super) fn request_call(&mut self, branch: &Branch, call: &ToolCall) -> Option<CallInput> {
        let request = self.change_at(&branch.path, |run| run.request_call(&call.id).ok())??;
        let undoes = request.undone.is_some();
        let node = &self.nodes[branch.node];
        let called = node.called.get(&call.name).filter(|_| !undoes).map(|tool| tool.hash.clone());
        let undoing = self.run_at(&branch.path).and_then(Run::handoffs_before_undone);
        let undoing = undoing.and_then(|handoffs| node.undoing.get(&(handoffs, call.name.clone())));
        let undoing = undoing.and_then(|(_, hash)| hash.clone());
        let is_unknown = !undoes && called.is_none();
        Some(CallInput {
            request,
            definition: called.or(undoing),
            offered: if is_unknown { node.offered.clone() } else { Vec::new() },
            at_most_once: self.run_at(&branch.path).is_some_and(|run| run.is_at_most_once(&call.id)),
            events: self.events.clone(),
            context: self.context.clone(),
            path: branch.path.clone(),
            agent: self.tree(&branch.path).names(),
        })
    }

    async fn accept(&mut self, index: usize, arrived: Arrived) -> Driven {
        match arrived {
            Arrived::Executed(execution) => {
                if let Some(OpenCall { branch, .. }) = self.in_flight.remove(&index) {
                    return self.judge_and_record(&branch, execution).await;
                }
            }
            Arrived::Delayed => {
                if let Some(OpenCall { branch, call, .. }) = self.in_flight.remove(&index) {
                    return self.add_agent(&branch, call).await;
                }
            }
            Arrived::Decision(wait, Sent { value, at }) => {
                self.count_time(None, at);
                // Fails if the run has stopped.
                let _ = self.run.resolve(&wait, value);
                // Before what follows from it.
                self.publish_finished_calls();
            }
            Arrived::Message(Sent { value, at }) => {
                self.messages += 1;
                self.count_time(None, at);
                // Fails if the run has ended meanwhile.
                let _ = self.run.add_posted_message(value);
                let waiting = self.waiting_state(self.waiting.clone());
                self.ctx.set(WAITING, Json(waiting));
            }
            Arrived::Deadline(at) => {
                self.open.deadline = self.open.deadline.filter(|next| *next != at);
                self.count_time(None, at.as_millis().saturating_mul(1000));
            }
            Arrived::TimeLimit => {
                // A timer that another one has replaced means nothing.
                if let Some((_, (_, path))) = self.open.time_limit.take_if(|(set, _)| *set == index)
                    && !self.undoes_inside(&path)
                {
                    self.use_up_time(&path);
                }
            }
        }
        Ok(())
    }

    /// Records an outcome that layers have judged. If the run is cancelled meanwhile, the outcome is recorded as it is, because nobody reads
    /// it any more.
    pub(super) async fn judge_and_record(&mut self, branch: &Branch, execution: ToolExecution) -> Driven {
        let id = &*execution.call().id;
        let sees = self.nodes[branch.node].sees;
        let has_layer = sees.outputs || sees.records;
        let is_seen = |run: &Run| {
            let is_last = || has_layer && !run.will_retry(&execution);
            run.has_open_call(id) && (run.end_from_inside(id).is_some() || is_last())
        };
        let is_seen = !execution.is_waiting() && self.run_at(&branch.path).is_some_and(is_seen);
        if !is_seen {
            self.record(branch, execution);
            return Ok(());
        }
        let judged = self.judge(branch, "output", Subject::Outcome(Box::new(execution.clone()))).await;
        // Nothing happens if it was recorded with the verdict.
        self.record(branch, execution);
        judged
    }

    pub(super) fn record(&mut self, branch: &Branch, execution: ToolExecution) {
        let finished = execution.started_at().map(|started| micros(started + execution.duration()));
        if execution.is_waiting() {
            // The call waits since then.
            finished.into_iter().for_each(|at| self.count_time(Some(&branch.path), at));
            self.record_waiting(branch, execution);
            return;
        }
        if self.run_at(&branch.path).is_some_and(|run| run.will_retry(&execution)) {
            let is_judged = self.nodes[branch.node].sees.outputs;
            self.publish(&branch.path, Event::call_retried(&execution, is_judged));
        }
        // Fails if the run has stopped, and no longer waits for the call.
        let _ = self.change_at(&branch.path, |run| run.record_result(execution));
        self.publish_finished_calls();
        finished.into_iter().for_each(|at| self.count_time(Some(&branch.path), at));
    }

    /// Cancels the run. The engine has cancelled its calls, whose outcomes are awaited, so that the right ones are undone.
    pub(super) async fn cancel(&mut self) {
        if self.run.is_undoing() {
            return;
        }
        self.in_flight.retain(|_, one| !matches!(one.executor, Executor::Delay));
        while !self.in_flight.is_empty() {
            match self.open.pending.next().await {
                Ok(Some((index, arrived))) => {
                    let known = self.in_flight.remove(&index);
                    if let (Some(known), Ok(Arrived::Executed(execution))) = (known, arrived)
                        && !is_interrupted(&execution)
                    {
                        self.record(&known.branch, execution);
                    }
                }
                // A second cancellation: the outcomes remain unknown, but what undoes a call is not executed again.
                Err(_) => {
                    let run = &self.run;
                    self.in_flight.retain(|_, one| one.undoes(run));
                }
                Ok(None) => break,
            }
        }
        self.in_flight.clear();
        self.run.cancel_unjudged();
    }
}

fn is_interrupted(execution: &ToolExecution) -> bool {
    execution.outcome().is_err_and(|error| error.kind() == ToolErrorKind::OutcomeUnknown)
}
