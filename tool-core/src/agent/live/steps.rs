//! The steps of a run: what they need, what they do, what is recorded of them.

use std::collections::VecDeque;
use std::time::Instant;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::Offered;
use super::stopping::unless_stopped;
use crate::agent::caller::Caller;
use crate::agent::observers::Observers;
use crate::agent::{Approver, Event, RunDriver, Turn};
use crate::model::{ChatModel, ChatRequest, ChatResponse, Delta, Message, ModelError, ToolCall};
use crate::run::{Approval, Kind, Run, Step};
use crate::tool::{Attempt, CancelOnDrop, CancellationToken, ToolExecution};

impl RunDriver {
    pub(super) async fn take_step(&mut self) -> Result<bool, Kind> {
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
    pub(super) async fn prepare(&mut self) -> Result<(), Kind> {
        self.count_time();
        if self.cancelled_by.as_ref().is_some_and(CancellationToken::is_cancelled) {
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
                if let Some(all) = self.tools.resolved() {
                    self.run.settle(all.definitions());
                }
            }
            if self.run.is_asking() {
                continue;
            }
            if !self.run.only_waits() {
                break;
            }
            if let Some(approver) = self.approver.clone()
                && self.ask_person(&*approver).await?
            {
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
            self.trace.takes_turn(self.run.turns().saturating_add(u32::from(self.run.is_asking())));
        }
        let turn = self.run.turns().saturating_add(1);
        if self.run.is_asking() && self.turn_told != turn {
            self.turn_told = turn;
            let messages = self.run.messages().len();
            self.observers.tell(|| Event::TurnStarted { turn, messages }).await;
        }
        Ok(())
    }

    /// Asks a person about the calls that wait, one by one. `false` if nothing was decided.
    async fn ask_person(&mut self, approver: &dyn Approver) -> Result<bool, Kind> {
        self.count_time();
        let waiting: Vec<_> = self.run.waiting().cloned().collect();
        let mut is_decided = false;
        for call in waiting {
            match unless_stopped(approver.approve(&call), self.cancelled_by.as_ref(), None).await {
                Ok(Approval::Defer) => {}
                Ok(approval) => {
                    self.resolve_approval(&call.id, approval).map_err(Kind::StepError)?;
                    is_decided = true;
                }
                Err(stop) => {
                    self.stop(&stop);
                    is_decided = true;
                    break;
                }
            }
        }
        // The time in which a person is waited for does not count.
        self.clock = Some(Instant::now());
        Ok(is_decided)
    }

    /// Puts together what the model is offered in this turn.
    async fn offer(&mut self) -> Result<(), Kind> {
        self.offered.is_resolved = false;
        let tools = self.tools.resolve(&self.run).await?;
        self.offered = Offered { tools, options: None, is_resolved: true };
        let agent = self.tools.agent().clone();
        if let Some(before_turn) = agent.0.before_turn.as_ref().filter(|_| self.run.is_in_turn()) {
            let mut turn = Turn::new(&self.run, self.tools.context(), self.offered.tools.clone());
            before_turn(&mut turn);
            let (tools, options) = turn.into_parts();
            let options = Some(options).filter(|_| self.run.is_asking());
            self.offered = Offered { tools, options, is_resolved: true };
        }
        Ok(())
    }

    /// Begins a call by hand, with the tools of the turn, and keeps the run.
    pub(super) async fn begin_and_store(&mut self, call: &ToolCall) -> Result<Attempt, Kind> {
        let span = self.trace.goes_on(self.tools.agent(), &self.run);
        span.holds(async {
            // A call that is begun and looked at again counts as lost, so the turn is made ready before.
            if !self.offered.is_resolved {
                self.prepare().await?;
            }
            let attempt = self.begin_attempt(call)?;
            self.keep().await?;
            Ok(attempt)
        })
        .await
    }

    fn begin_attempt(&mut self, call: &ToolCall) -> Result<Attempt, Kind> {
        if let Some(place) = self.begun.iter().position(|(id, _)| *id == call.id) {
            return Ok(self.begun.swap_remove(place).1);
        }
        self.is_changed = true;
        self.run.begin_call(&call.id).map_err(Kind::StepError)
    }

    /// Records what the model replied; gives what is to be told of it.
    pub(super) fn record_reply(&mut self, response: ChatResponse) -> Result<Vec<Event>, Kind> {
        self.trace.record_response(&response);
        let told = self.observers.are_there().then(|| response.clone());
        self.is_changed = true;
        self.run.record_response(response).map_err(Kind::StepError)?;
        if self.offered.is_resolved {
            // What the tools say of the calls holds at once, also for who makes them without asking for the next step.
            self.run.settle(self.offered.tools.definitions());
        }
        self.count_time();
        let agent = self.tools.agent().clone();
        if let Some(needs_approval) = &agent.0.needs_approval {
            for call in self.run.open_calls() {
                if needs_approval(&call) {
                    self.run.require_approval(&call.id).map_err(Kind::StepError)?;
                }
            }
        }
        let Some(mut response) = told else { return Ok(Vec::new()) };
        // With the ids that the run gave the calls.
        let mut replies = self.run.messages().iter().rev().filter_map(Message::as_assistant);
        response.message = replies.next().cloned().unwrap_or_default();
        let mut events: Vec<_> = self.run.open_calls().into_iter().map(Event::CallReady).collect();
        events.push(Event::TurnFinished { turn: self.run.turns(), response });
        Ok(events)
    }

    /// Makes the calls side by side, as many at once as may be, and records each as it is over.
    async fn make(&mut self, calls: Vec<ToolCall>) -> Result<(), Kind> {
        let caller = self.caller();
        let most = self.tools.agent().0.max_concurrent_calls;
        let mut queue = VecDeque::from(calls);
        let mut under_way = FuturesUnordered::new();
        // Only for who listens.
        let mut ids_under_way: Vec<String> = Vec::new();
        loop {
            while under_way.len() < most
                && let Some(call) = queue.pop_front()
            {
                let attempt = self.begin_attempt(&call)?;
                ids_under_way.extend(self.observers.are_there().then(|| call.id.clone()));
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
                    self.tell_of_interrupted(&ids_under_way).await;
                    return Ok(());
                }
            };
            ids_under_way.retain(|id| *id != execution.call().id);
            let is_undoing = self.run.is_undoing();
            let (again, event) = self.record_call(execution)?;
            queue.extend(again);
            if let Some(event) = event {
                self.observers.tell(|| event).await;
            }
            // A call may have ended the run: what else is under way is given up.
            if self.run.is_done() || self.run.is_undoing() != is_undoing {
                drop(under_way);
                self.tell_of_interrupted(&ids_under_way).await;
                return Ok(());
            }
        }
    }

    /// Records the outcome of a call; gives the call if it is made again, and what is to be told of it.
    pub(super) fn record_call(
        &mut self,
        mut execution: ToolExecution,
    ) -> Result<(Option<ToolCall>, Option<Event>), Kind> {
        self.is_changed = true;
        let again = self.run.would_try_again(&execution).then(|| execution.call().clone());
        let handler = self.tools.agent().0.on_tool_error.as_ref().filter(|_| again.is_none());
        if let (Some(handler), Err(error)) = (handler, execution.outcome())
            && let Some(outcome) = handler(execution.call(), error)
        {
            execution = execution.with_outcome(outcome);
        }
        let told = self.observers.are_there().then(|| execution.clone());
        self.run.record_result(execution).map_err(Kind::StepError)?;
        self.count_time();
        let event = told.map(if again.is_some() { Event::CallTriedAgain } else { Event::CallFinished });
        Ok((again, event))
    }

    pub(super) fn caller(&mut self) -> Caller {
        if self.run.is_undoing() {
            // What undoes is not cancelled with what it undoes.
            self.cancellation = CancellationToken::new();
            self.on_drop = CancelOnDrop::new(self.cancellation.clone());
        }
        let agent = self.tools.agent();
        Caller {
            tools: self.offered.tools.clone(),
            undo_tools: agent.0.undo_tools.clone(),
            all_tools: self.tools.resolved().filter(|_| self.run.is_undoing()).cloned(),
            context: self.tools.context().clone(),
            observers: self.observers.clone(),
            trace: self.trace.of_calls(),
            cancellation: self.cancellation.clone(),
            timeout: agent.0.call_timeout,
            undone: self.run.to_undo(),
        }
    }

    /// Tells how the calls ended that were under way when the run did.
    pub(super) async fn tell_of_interrupted(&mut self, under_way: &[String]) {
        if self.observers.are_there() {
            let made = self.run.tool_executions().iter();
            let interrupted = made.filter(|one| under_way.contains(&one.call().id));
            let events: Vec<_> = interrupted.cloned().map(Event::CallFinished).collect();
            self.tell_all(events).await;
        }
    }

    pub(super) async fn tell_all(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.observers.tell(|| event).await;
        }
    }
}

/// The run's step, with what the turn has beside.
pub(super) fn next_step<'a>(run: &'a mut Run, offered: &Offered) -> Step<'a> {
    match (run.next(offered.tools.definitions()), &offered.options) {
        (Step::CallModel(request), Some((options, choice))) => {
            Step::CallModel(request.with_options(options.clone()).with_tool_choice(choice.clone()))
        }
        (step, _) => step,
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
            Delta::Refusal(text) => observers.tell(|| Event::Refusal(text)).await,
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
