//! The calls of a turn, each as an invocation of its own.

use restate_sdk::context::{DurableFuture, RequestTarget};
use restate_sdk::prelude::*;
use tool_core::ToolCall;
use tool_core::engine::{CallRequest, EffectId, EffectResult, RunPath};
use tool_core::model::ToolDefinition;
use tool_core::provider::ToolKind;
use tool_core::run::Run;
use tool_core::tool::{ToolError, ToolErrorKind, ToolExecution};

use super::state::{Arrived, Drive, DriveError, Driven, Executor, OpenCall, Pending};
use crate::clock::finished_at;
use crate::limit;
use crate::names::{CallInput, Sent, calls_service, tool_service};
use crate::signals::WAITING;
use crate::step::Judged;

/// A call that has begun, and `true` if it asks an agent.
pub(super) type Started = (EffectId, CallRequest, bool);

impl<'c> Drive<'c> {
    /// Executes calls that have begun.
    pub(super) async fn start(&mut self, started: Vec<Started>) -> Driven {
        self.flush_events().await?;
        let (of_agents, others): (Vec<_>, Vec<_>) =
            started.into_iter().partition(|(.., asks_agent)| *asks_agent);
        let (searches, others): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(id, request, _)| self.is_search(id.path(), &request.call));
        let (local, remote): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(id, request, _)| self.is_local(id.path(), &request.call));
        self.start_remote_calls(remote, !local.is_empty()).await?;
        for (id, request, _) in of_agents {
            if self.run.engine_view().is_awaited(&id) {
                self.start_agent(id, request.call, &request.attempt).await?;
            }
        }
        for (id, request, _) in searches {
            // It has no effect, so a search that is not finished is none.
            if self.run.engine_view().is_awaited(&id) {
                self.judge(&id, "search", Judged::Search(request.call.id)).await?;
            }
        }
        self.publish_waits();
        let local: Vec<_> =
            local.into_iter().filter(|(id, ..)| self.run.engine_view().is_awaited(id)).collect();
        if local.is_empty() {
            return Ok(());
        }
        self.flush_events().await?;
        local.iter().for_each(|(id, ..)| self.run.engine().set_executing_at(id));
        let inputs = local.into_iter().filter_map(|(id, request, _)| {
            let input = self.input_of(id.path(), request)?;
            Some((id, input))
        });
        let inputs = inputs.collect();
        self.execute_locally(inputs).await
    }

    fn is_search(&self, path: &RunPath, call: &ToolCall) -> bool {
        self.run_at(path).and_then(|run| run.engine_view().kind_of(&call.id)) == Some(ToolKind::Search)
    }

    /// Returns `true` if the call is executed in the invocation of its run.
    fn is_local(&self, path: &RunPath, call: &ToolCall) -> bool {
        let settings = &self.setup.settings;
        let is_undoing = self.run_at(path).is_some_and(Run::is_undoing);
        settings.has_local_calls && !is_undoing && !settings.routes.contains_key(&call.name)
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
                if let Some(lost) = self.in_flight.remove(&index) {
                    let interrupted = ToolExecution::new(lost.call, Err(ToolError::interrupted()));
                    self.take_outcome(&lost.id, interrupted);
                }
                Ok(())
            }
            None => Err(TerminalError::new("a run waits for nothing").into()),
        }
    }

    /// Cancels the calls that no run waits for any more.
    pub(super) fn drop_abandoned(&mut self) {
        while let Some(id) = self.run.engine().poll_abandoned() {
            self.in_flight.retain(|_, one| {
                if let Executor::Invocation(Some(handle)) = &one.executor
                    && one.id == id
                {
                    handle.cancel();
                }
                one.id != id
            });
        }
    }

    async fn start_remote_calls(&mut self, ready: Vec<Started>, has_others: bool) -> Driven {
        // The handle takes another round trip, and only a call that others or the time can end needs it.
        let needs_handle = has_others
            || ready.len() > 1
            || self.run.engine_view().open_places().len() > 1
            || !self.in_flight.is_empty()
            || !self.run.waits().is_empty()
            || self.run.limits().max_time.is_some();
        let max_bytes = self.setup.settings.max_bytes;
        for (id, request, _) in ready {
            let call = request.call.clone();
            let input = self.input_of(id.path(), request).filter(|_| self.run.engine_view().is_awaited(&id));
            let Some(mut input) = input else { continue };
            let check = |input: &CallInput| limit::check("the call with its context", input, max_bytes);
            let mut checked = check(&input);
            if let (Err(_), Some(undone)) = (&checked, &mut input.request.undone) {
                // Better undone without its output than not at all.
                undone.output = None;
                checked = check(&input);
            }
            if let Err(reason) = checked {
                self.take_outcome(&id, ToolExecution::new(call, Err(ToolError::not_executed(&reason))));
                continue;
            }
            self.run.engine().set_executing_at(&id);
            let owner = self.setup.settings.routes.get(&call.name).unwrap_or(&self.setup.name);
            let deployed = self.run_at(id.path()).and_then(|run| self.nodes.get(run.id().as_str()));
            let deployed = deployed.and_then(|node| node.deployed.tools.get(&call.name));
            let known = input.definition.as_ref().filter(|hash| deployed == Some(hash));
            let service = known.map(|hash| tool_service(owner, &call.name, hash));
            let target = RequestTarget::service(service.unwrap_or_else(|| calls_service(owner)), "call");
            if input.request.undone.is_some() {
                self.start_undo(id, target, call, input).await?;
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
            self.await_call(id, call, Executor::Invocation(handle), Box::pin(executed));
            started?;
        }
        Ok(())
    }

    /// Starts a call that undoes another. The engine cancels the calls of a run with it, but not an invocation that was sent.
    async fn start_undo(
        &mut self,
        id: EffectId,
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
        self.await_call(id, call, Executor::Invocation(None), Box::pin(executed));
        Ok(())
    }

    /// Awaits what a call in flight waits for.
    pub(super) fn await_call(
        &mut self,
        id: EffectId,
        call: ToolCall,
        executor: Executor,
        pending: Pending<'c>,
    ) {
        let index = self.open.pending.push(pending);
        self.in_flight.insert(index, OpenCall { id, call, executor });
    }

    /// Returns what the worker that executes a call needs.
    fn input_of(&self, path: &RunPath, request: CallRequest) -> Option<CallInput> {
        let run = self.run_at(path)?;
        let (name, undoes) = (&request.call.name, request.undone.is_some());
        let profile = run.engine_view().profile();
        let mut called = profile.into_iter().filter(|_| !undoes).flat_map(|profile| profile.called.iter());
        let called = called.find(|tool| tool.name() == name);
        let undoing = profile.zip(run.engine_view().handoffs_before_undone());
        let undoing = undoing.and_then(|(profile, handoffs)| profile.undoing.get(&(handoffs, name.clone())));
        let is_unknown = !undoes && called.is_none();
        let offered =
            self.nodes.get(run.id().as_str()).filter(|_| is_unknown).map(|node| node.offered.clone());
        let way = self.way(path);
        Some(CallInput {
            definition: called.or(undoing).map(ToolDefinition::hash),
            offered: offered.unwrap_or_default(),
            at_most_once: run.engine_view().is_at_most_once(&request.call.id),
            events: self.events.clone(),
            context: self.context.clone(),
            agent: self.tree(&way).names(),
            path: way,
            request,
        })
    }

    async fn accept(&mut self, index: usize, arrived: Arrived) -> Driven {
        match arrived {
            Arrived::Executed(execution) => {
                if let Some(OpenCall { id, .. }) = self.in_flight.remove(&index) {
                    self.take_outcome(&id, execution);
                }
            }
            Arrived::Delayed => {
                if let Some(OpenCall { id, call, .. }) = self.in_flight.remove(&index) {
                    return self.begin_agent(&id, &call).await;
                }
            }
            Arrived::Decision(wait, Sent { value, at }) => {
                self.set_time(at);
                // Fails if the run has stopped.
                let _ = self.run.resolve(&wait, value);
            }
            Arrived::Message(Sent { value, at }) => {
                self.messages += 1;
                self.set_time(at);
                // Fails if the run has ended meanwhile.
                let _ = self.run.engine().add_posted_message(value);
                let waiting = self.waiting_state(self.waiting.clone());
                self.ctx.set(WAITING, Json(waiting));
            }
            Arrived::Deadline(at) => {
                self.open.deadline = self.open.deadline.filter(|next| *next != at);
                self.set_time(at.as_millis().saturating_mul(1000));
            }
            Arrived::TimeLimit => {
                // A timer that another one has replaced means nothing.
                if let Some((_, (_, path))) = self.open.time_limit.take_if(|(set, _)| *set == index) {
                    self.run.engine().use_up_time_at(&path);
                }
            }
        }
        Ok(())
    }

    /// Hands the run the outcome of a call, or what it waits for.
    pub(super) fn take_outcome(&mut self, id: &EffectId, execution: ToolExecution) {
        // A call that waits does so since then.
        finished_at(&execution).into_iter().for_each(|at| self.set_time(at));
        if execution.is_waiting() {
            self.handle(id, EffectResult::Finished(Box::new(execution)));
            self.refuse_secrets();
            return;
        }
        self.handle(id, EffectResult::Finished(Box::new(execution)));
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
                        self.take_outcome(&known.id, execution);
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
        self.run.engine().cancel_unjudged();
    }
}

fn is_interrupted(execution: &ToolExecution) -> bool {
    execution.outcome().is_err_and(|error| error.kind() == ToolErrorKind::OutcomeUnknown)
}
