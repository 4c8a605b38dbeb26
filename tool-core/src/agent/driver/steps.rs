//! The steps of a run: preparing, taking and recording them.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, Ready, pending, ready, select};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::hold::Hold;
use super::offer::{Offer, next_step, undo_policy, without_earlier_turns};
use crate::agent::builder::{check_tool_choice, check_tools_of_layers};
use crate::agent::decider::Deciders;
use crate::agent::interruption::run_until_interrupted;
use crate::agent::layers::ReplyRuling;
use crate::agent::run_tools::invalid_tools;
use crate::agent::tool_search::{Mode, unwrap_call, wrap_calls};
use crate::agent::{Decider, Event, RunDriver};
use crate::layer::Phase;
use crate::model::{ChatResponse, Message};
use crate::run::{
    Decision, InFlight, NormalizedResponse, ResolveError, ResolveErrorKind, RunErrorKind, Step, Wait,
    WaitReason,
};
use crate::tool::Timestamp;

/// The future of emitting events, boxed if there are any.
type Emitting<'a> = Either<Ready<Result<(), RunErrorKind>>, BoxFuture<'a, Result<(), RunErrorKind>>>;

impl RunDriver {
    /// Takes the next step. Returns `false` if nothing is left to do.
    pub(super) async fn take_step(&mut self) -> Result<bool, RunErrorKind> {
        let span = self.trace.enter_run(self.tools.agent.name(), self.tools.agent.model(), &self.run);
        let step = span.instrument(self.take_step_in_span()).await;
        if let Err(kind) = &step {
            self.store_failure(kind).await;
        }
        step
    }

    async fn take_step_in_span(&mut self) -> Result<bool, RunErrorKind> {
        self.prepare_step().await?;
        // The save of the started calls has what has changed before. The outer run checks its limits before calls are started.
        if self.outer.is_some() || !self.run.is_to_execute_calls() {
            self.settle_step().await?;
        }
        match next_step(&mut self.run, &self.offer, self.sent.as_ref(), &self.tools, &self.earlier_tools) {
            Step::CallModel(_) => self.take_turn().boxed().await.map(|()| true),
            Step::CallTools(calls) => self.execute_calls(calls).await.map(|()| true),
            Step::Waiting(_) => Err(RunErrorKind::Waiting),
            Step::Done => {
                // The model streams its text; what tools return directly is in no reply.
                let returned = self.run.returned_text().filter(|_| self.emitter.streams_replies());
                if let Some(text) = returned.filter(|text| !text.is_empty()) {
                    self.emitter.emit(|| Event::Text(text)).await;
                }
                Ok(false)
            }
        }
    }

    /// Asks the model and records its response.
    async fn take_turn(&mut self) -> Result<(), RunErrorKind> {
        if let Some((response, hold)) = self.ask_model().await? {
            let events = self.apply_response(response, hold).await?;
            self.emit_all(events).await?;
        }
        Ok(())
    }

    /// Prepares the next step: takes the lease, loads the history, resolves the tools, asks the deciders, and stores the run.
    pub(super) async fn prepare(&mut self) -> Result<(), RunErrorKind> {
        self.prepare_step().await?;
        self.settle_step().await
    }

    async fn prepare_step(&mut self) -> Result<(), RunErrorKind> {
        self.check_agent()?;
        if let Some(error) = &self.question.error {
            return Err(RunErrorKind::Question(Box::new(error.clone())));
        }
        if let Some(layer) = self.layers.answer_guard().filter(|_| self.question.has_typed_answer) {
            let error = format!(
                "the layer `{layer}` judges answers, which are read as a type here; ask without a type, \
                 or return `false` from its `sees` for `Phase::Answer`"
            );
            return Err(RunErrorKind::Question(error.into()));
        }
        self.update_elapsed();
        // Expiry precedes decisions.
        self.has_unsaved_changes |= self.run.tick(Timestamp::now());
        self.take_lease().await?;
        if self.run.has_failed() {
            self.change_run().set_failed(false);
        }
        if self.question.cancellation.as_ref().is_some_and(CancellationToken::is_cancelled) {
            self.has_unsaved_changes |= !self.run.is_done();
            self.run.cancel();
        }
        self.open().await?;
        self.load_history().await?;
        loop {
            let events = self.follow_handoffs()?;
            self.emit_all(events).await?;
            self.review_results().await?;
            self.review_question().await?;
            // Calls are looked up in exactly the set that the model was offered.
            if self.run.is_asking() || !self.offer.is_resolved {
                let (cancellation, time_left) = (self.question.cancellation.clone(), self.time_left());
                match run_until_interrupted(self.resolve_offer(), cancellation.as_ref(), time_left).await {
                    Ok(resolved) => resolved?,
                    Err(interruption) => {
                        self.interrupt(&interruption);
                        break;
                    }
                }
            }
            if self.run.is_asking() {
                break;
            }
            self.refuse_new_arguments()?;
            // Before the policies of the tools, by which a call is finished or awaits approval.
            self.review_calls().await?;
            self.apply_tool_policies();
            self.review_returned().await?;
            if self.run.is_asking() {
                continue;
            }
            if !self.run.is_blocked() {
                break;
            }
            if self.decide().await? {
                continue;
            }
            self.clock = None;
            self.trace.pause();
            // Stored before anybody sees what the run waits for.
            self.change_run().tick(Timestamp::now());
            self.store_run().await?;
            self.emit_finished().await?;
            let waits = self.run.waits();
            self.emitter.emit(|| Event::Waiting(waits)).await;
            break;
        }
        if !self.run.is_done() {
            self.trace.enter_turn(self.run.turn());
        }
        Ok(())
    }

    /// Stores what was prepared, and emits what is new since.
    pub(super) async fn settle_step(&mut self) -> Result<(), RunErrorKind> {
        self.store_run().await?;
        self.emit_finished().await?;
        let is_at_rest = self.run.is_done() || self.run.is_blocked();
        self.set_in_progress(!is_at_rest);
        if self.run.is_blocked() {
            self.release_lease().await;
        }
        let turn = self.run.turn();
        if self.run.is_asking() && self.announced_turn != turn {
            self.announced_turn = turn;
            let messages = self.offer.messages.as_deref().unwrap_or(self.run.messages()).len();
            self.emitter.emit(|| Event::TurnStarted { turn, messages }).await;
        }
        Ok(())
    }

    /// Fails if a call was approved with arguments that do not match its tool, before the model reads the mistake of a person. The call
    /// awaits approval again.
    fn refuse_new_arguments(&mut self) -> Result<(), RunErrorKind> {
        let tools = &self.offer.tools;
        let Some(error) = self.run.refuse_new_arguments(|call| tools.check_arguments(call)) else {
            return Ok(());
        };
        self.change_run().tick(Timestamp::now());
        Err(RunErrorKind::Decision(ResolveError::invalid_arguments(error.to_string())))
    }

    /// Asks the deciders about what the run waits for, one by one, or sleeps until a call continues that is parked. Returns `false` if
    /// nothing was decided.
    async fn decide(&mut self) -> Result<bool, RunErrorKind> {
        self.update_elapsed();
        let waits: Vec<_> = self.run.waits_at_levels().collect();
        if waits.iter().all(|(wait, _)| wait.is_until()) {
            return self.sleep_until(waits.iter().filter_map(|(wait, _)| wait.deadline).min()).await;
        }
        let (question, agent) = (&self.question, &self.tools.agent.0);
        let deciders = question.deciders.iter().chain(&agent.deciders).chain(&question.last_decider);
        let deciders = Arc::new(Deciders(deciders.cloned().collect()));
        let mut has_decided = false;
        for (wait, level) in waits {
            let is_asked = match &wait.reason {
                // Of the level that demanded it.
                WaitReason::Approval(_) => level == 0,
                WaitReason::Answer(_) => true,
                _ => false,
            };
            if deciders.0.is_empty() || !is_asked {
                continue;
            }
            let (deciders, asked) = (Arc::clone(&deciders), wait.clone());
            let decision = async move { deciders.decide(&asked).await }.boxed();
            // Stored before anybody sees what the run waits for.
            self.change_run().tick(Timestamp::now());
            self.store_run().await?;
            has_decided |= self.await_decision(&wait, decision).await?;
        }
        // Time spent waiting for persons does not count.
        self.clock = Some(Instant::now());
        Ok(has_decided)
    }

    /// Awaits a decision, unless a posted command or the deadline is first. Returns `false` if it is deferred.
    async fn await_decision(
        &mut self,
        wait: &Wait,
        mut decision: BoxFuture<'_, Decision>,
    ) -> Result<bool, RunErrorKind> {
        loop {
            // A posted command was first.
            let Some(current) = self.run.waits().into_iter().find(|current| current.id == wait.id) else {
                return Ok(true);
            };
            let expired = sleep_until(current.deadline);
            let changed = select(self.inbox_changed().boxed(), expired);
            let first = select(&mut decision, changed);
            match run_until_interrupted(first, self.question.cancellation.as_ref(), None).await {
                // The person is asked on, unless the command concerns this wait.
                Ok(Either::Right(_)) => {
                    self.change_run().tick(Timestamp::now());
                    self.take_posted().await?;
                }
                Ok(Either::Left((decision, _))) if decision.is_deferred() => return Ok(false),
                Ok(Either::Left((decision, _))) => {
                    let resolved = self.resolve(&wait.id, decision);
                    return match resolved {
                        Ok(()) => Ok(true),
                        // It has expired.
                        Err(error) if error.kind() == ResolveErrorKind::AlreadyDecided => Ok(true),
                        Err(error) => Err(RunErrorKind::Decision(error)),
                    };
                }
                Err(interruption) => {
                    self.interrupt(&interruption);
                    return Ok(true);
                }
            }
        }
    }

    /// Sleeps until this time, which counts for the run, because it waits for a machine. Returns `false` without a runtime.
    async fn sleep_until(&mut self, until: Option<Timestamp>) -> Result<bool, RunErrorKind> {
        if until.is_none() || tokio::runtime::Handle::try_current().is_err() {
            return Ok(false);
        }
        self.change_run().tick(Timestamp::now());
        self.store_run().await?;
        if let Err(interruption) = self.run_until_interrupted(sleep_until(until)).await {
            self.interrupt(&interruption);
        } else {
            self.change_run().tick(Timestamp::now());
        }
        Ok(true)
    }

    /// Resolves the tools and options of this turn.
    pub(super) async fn resolve_offer(&mut self) -> Result<(), RunErrorKind> {
        self.offer.is_resolved = false;
        let tools = self.tools.resolve(&self.run).await?;
        let (layers, run) = (&self.layers, &self.run);
        let tools = match run.is_in_turn() && layers.see(Phase::Offer) {
            true => self.tools.choose(tools, |tool| layers.offer(tool, run))?,
            false => tools,
        };
        if run.is_asking() {
            check_tool_choice(run.current_tool_choice(), &tools).map_err(invalid_tools)?;
        }
        let agent = &self.tools.agent.0;
        if run.turns() == 0 && !agent.providers.is_empty() {
            check_tools_of_layers(agent, &tools).map_err(invalid_tools)?;
        }
        let sends_all = self.tools.agent.0.sends_earlier_turns || !run.is_asking();
        let messages = if sends_all { None } else { without_earlier_turns(run) };
        self.offer = Offer { tools, searched: None, messages, is_resolved: true };
        let found = self.divide_offer();
        self.offer.is_resolved = found.is_ok();
        found
    }

    /// Divides the tools of this turn if the agent has a search, and converts the messages to send if tools are called through
    /// another one.
    fn divide_offer(&mut self) -> Result<(), RunErrorKind> {
        self.sent = self.sent.take().filter(|_| self.run.is_in_turn());
        if !self.run.is_in_turn() {
            return Ok(());
        }
        let Some(divided) = self.tools.divide(&self.offer.tools, self.run.required_tool())? else {
            self.sent = None;
            return Ok(());
        };
        let found =
            self.run.found_tools().iter().filter(|_| divided.mode == Mode::Append).map(String::as_str);
        let names = found.filter(|name| divided.is_hidden(name)).map(str::to_owned).collect();
        let offered = self.tools.offered(&divided, names);
        if divided.mode == Mode::CallThrough && self.run.is_asking() {
            match &mut self.offer.messages {
                Some(messages) => {
                    messages.iter_mut().for_each(|message| *message = wrap_calls(message, &offered));
                }
                None => self.sent.get_or_insert_default().update(self.run.messages(), &offered),
            }
        }
        self.offer.tools = divided.tools.clone();
        self.offer.searched = Some((divided, offered));
        Ok(())
    }

    /// Adds the tools that the model has called unsearched to those that it has found. It knows them, and may have mistaken their
    /// parameters.
    fn add_called_tools(&mut self) {
        let Some((divided, _)) = &self.offer.searched else { return };
        if divided.mode == Mode::Append {
            let calls = self.run.open_calls();
            let names = calls.iter().map(|call| &*call.name).filter(|name| divided.is_hidden(name));
            self.run.add_found_tools(names);
        }
    }

    /// Records the response of the model and returns the events to emit.
    pub(super) async fn apply_response(
        &mut self,
        response: ChatResponse,
        hold: Hold,
    ) -> Result<Vec<Event>, RunErrorKind> {
        self.meter = None;
        let mut normalized = NormalizedResponse::new(response, |call| unwrap_call(call, &self.offer.tools));
        self.trace.record_response(normalized.response());
        let usage = normalized.response().usage.unwrap_or_default();
        let ruling = match self.review_reply(normalized.response_mut()).await {
            Ok(Some(ruling)) => ruling,
            unjudged => {
                self.change_run().add_usage(usage);
                return unjudged.map(|_| Vec::new());
            }
        };
        let reply = &mut normalized.response_mut().message;
        if reply.text.is_empty() && reply.refusal.is_none() && self.layers.see(Phase::Answer) {
            // Nothing of the reply was judged. The provider's form of it is sent back.
            reply.reasoning = None;
        }
        let listeners = self.has_listeners();
        let copy = listeners.then(|| (normalized.response().clone(), normalized.positions().to_vec()));
        self.change_run().record_normalized(normalized).map_err(RunErrorKind::Step)?;
        self.has_judged_answer = false;
        let is_retried = matches!(ruling, ReplyRuling::Retry(..) | ReplyRuling::End(_));
        self.rule_on_reply(ruling);
        self.review_calls().await?;
        self.add_called_tools();
        if self.offer.is_resolved {
            // The policies of the tools apply at once, also if the caller executes calls without taking the next step.
            self.apply_tool_policies();
        }
        self.update_elapsed();
        let Some((mut response, positions)) = copy else { return Ok(Vec::new()) };
        // The reply of the run has the final ids of the calls.
        let reply = self.run.messages().iter().rev().find_map(Message::as_assistant);
        response.message = reply.cloned().unwrap_or_default();
        let mut events = Vec::new();
        if self.emitter.streams_replies() && !is_retried {
            events.extend(hold.held_events(&response));
        }
        let calls = self.run.current_calls().zip(positions).filter(|((_, execution), _)| execution.is_none());
        events.extend(calls.map(|((call, _), index)| Event::CallReady { index, call: call.clone() }));
        events.push(Event::TurnFinished { turn: self.run.turns(), response });
        events.extend(self.take_finished());
        Ok(events)
    }

    fn apply_tool_policies(&mut self) {
        let (tools, earlier) = (&self.tools, &self.earlier_tools);
        self.run.apply_tool_policies(
            self.offer.tools.definitions(),
            |handoffs, name| undo_policy(tools, earlier, handoffs, name),
            &InFlight::NONE,
        );
    }

    /// Emits events. Layers that record what happens to calls are told first.
    pub(super) fn emit_all(&mut self, events: impl IntoIterator<Item = Event>) -> Emitting<'_> {
        let events: Vec<_> = events.into_iter().collect();
        if events.is_empty() || !self.has_listeners() {
            return Either::Left(ready(Ok(())));
        }
        // Boxed, because events are large, and agents that ask agents have a future in another.
        let emitting = async move {
            // They were taken from the run, so all are told before a failure is reported.
            let mut told = Ok(());
            for event in events {
                told = told.and(self.layers.record(&event, &self.run).await);
                self.emitter.emit(|| event).await;
            }
            told
        };
        Either::Right(emitting.boxed())
    }

    /// Returns `true` if somebody is told what happens to calls.
    pub(super) fn has_listeners(&self) -> bool {
        self.emitter.has_listeners() || self.layers.see(Phase::Record)
    }
}

/// Sleeps until this time, or for ever without one or without a runtime.
fn sleep_until(time: Option<Timestamp>) -> BoxFuture<'static, ()> {
    match time {
        Some(time) if tokio::runtime::Handle::try_current().is_ok() => {
            tokio::time::sleep(time.since(Timestamp::now())).boxed()
        }
        _ => pending().boxed(),
    }
}
