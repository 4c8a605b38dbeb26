//! The steps of a run: preparing, taking and recording them.
//!
//! A step of a run is divided into phases, between which the run is saved, because only the outermost driver has a store: nothing inside
//! waits for a save that another future would have to make.
//!
//! The text of a reply is judged before it is recorded, because nothing unjudged may be in a state. Calls are judged after that, because
//! they have their final ids then, and are not executed before.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::deciding::{Deciding, Round};
use super::hold::Hold;
use super::model_request::Asked;
use super::offer::next_step;
use super::review::replace_reply;
use crate::agent::interruption::run_until_interrupted;
use crate::agent::layers::ReplyRuling;
use crate::agent::spending::RequestMeter;
use crate::agent::tool_search::unwrap_call;
use crate::agent::{Event, RunDriver};
use crate::layer::Phase as LayerPhase;
use crate::model::{ChatResponse, Message, ToolCall};
use crate::run::{NormalizedResponse, RunErrorKind, Step};
use crate::tool::Timestamp;

/// How far a step is. Between two phases, the run is saved.
pub(super) enum Phase {
    /// Nothing of it has happened.
    Beginning,
    /// Layers and deciders are asked, once what is queued is emitted.
    Preparing(Round),
    /// It is known what to do.
    Prepared,
    /// The model request can be sent, once what is queued is emitted; `meter` counts its tokens.
    Priced { meter: Option<Arc<RequestMeter>>, is_compacted: bool },
}

/// What a driver has done, or needs before it goes on.
pub(super) enum Work {
    /// The run has to be saved if it has changed, before the step continues with this phase.
    Save(Phase),
    /// The model has replied.
    Asked,
    /// These calls are to be executed.
    Calls(Vec<ToolCall>),
    /// Nothing can be done before somebody decides, or time passes.
    Waiting,
    /// Nothing is left to do.
    Done,
}

impl RunDriver {
    /// Takes the next step. Returns `false` if nothing is left to do.
    pub(super) async fn take_step(&mut self) -> Result<bool, RunErrorKind> {
        let taken = self.take_whole_step().await;
        if let Err(kind) = &taken {
            self.store_failure(kind).await;
        }
        taken
    }

    async fn take_whole_step(&mut self) -> Result<bool, RunErrorKind> {
        let mut phase = Phase::Beginning;
        loop {
            match self.work(phase).await? {
                Work::Save(next) => {
                    self.store_run().await?;
                    phase = next;
                }
                Work::Asked => return Ok(true),
                Work::Calls(calls) => {
                    let span = self.enter_span();
                    return span.instrument(self.execute_calls(calls)).await.map(|()| true);
                }
                Work::Waiting => return Err(RunErrorKind::Waiting),
                Work::Done => return Ok(false),
            }
        }
    }

    /// Works on a step until the run has to be saved, or others have to act.
    pub(super) async fn work(&mut self, phase: Phase) -> Result<Work, RunErrorKind> {
        self.enter_span().instrument(self.work_in_span(phase)).await
    }

    async fn work_in_span(&mut self, phase: Phase) -> Result<Work, RunErrorKind> {
        match phase {
            Phase::Priced { meter, is_compacted } => {
                self.emit_queued().await?;
                return self.take_turn(meter, is_compacted).boxed().await;
            }
            Phase::Prepared => self.settle_step().await?,
            earlier => {
                if let Some(next) = self.prepare_from(earlier).await? {
                    return Ok(Work::Save(next));
                }
                // The save of the started calls has what has changed before. The outer run checks its limits before calls are started.
                if self.performer.asked.is_some() || !self.run.is_to_execute_calls() {
                    return Ok(Work::Save(Phase::Prepared));
                }
            }
        }
        match next_step(
            &mut self.run,
            &self.offer,
            &self.sent,
            &self.performer.tools,
            &self.performer.earlier_tools,
        ) {
            Step::CallModel(_) => {
                let (meter, pricing) = self.price_request();
                if let Some(job) = pricing {
                    self.perform(job).await?;
                }
                Ok(Work::Save(Phase::Priced { meter, is_compacted: false }))
            }
            Step::CallTools(calls) => Ok(Work::Calls(calls)),
            Step::Waiting(_) => Ok(Work::Waiting),
            Step::Done => {
                // The model streams its text; what tools return directly is in no reply.
                let returned = self.run.returned_text().filter(|_| self.performer.emitter.streams_replies());
                if let Some(text) = returned.filter(|text| !text.is_empty()) {
                    self.performer.emitter.emit(|| Event::Text(text)).await;
                }
                Ok(Work::Done)
            }
        }
    }

    /// Asks the model and records its response.
    async fn take_turn(
        &mut self,
        meter: Option<Arc<RequestMeter>>,
        is_compacted: bool,
    ) -> Result<Work, RunErrorKind> {
        match self.ask_or_compact(meter, is_compacted).await? {
            Asked::Compacted(meter) => {
                return Ok(Work::Save(Phase::Priced { meter, is_compacted: true }));
            }
            Asked::Replied(Some(reply)) => {
                let (response, hold) = *reply;
                let events = self.apply_response(response, hold).await?;
                self.emit_all(events).await?;
            }
            Asked::Replied(None) => {}
        }
        Ok(Work::Asked)
    }

    /// Prepares the next step for a caller that takes it: takes the lease, loads the history, resolves the tools, asks the deciders, and
    /// stores the run.
    pub(super) async fn prepare(&mut self) -> Result<(), RunErrorKind> {
        let mut phase = Phase::Beginning;
        while let Some(next) = self.prepare_from(phase).await? {
            self.store_run().await?;
            phase = next;
        }
        self.store_run().await?;
        self.settle_step().await
    }

    /// Prepares a step from a phase on. Returns the phase with which it continues once the run is saved, unless it is prepared.
    async fn prepare_from(&mut self, phase: Phase) -> Result<Option<Phase>, RunErrorKind> {
        let mut round = match phase {
            Phase::Preparing(round) => {
                self.emit_queued().await?;
                round
            }
            _ => {
                self.begin_step().await?;
                Round::default()
            }
        };
        let is_elsewhere = self.question.is_elsewhere;
        loop {
            let events = self.follow_handoffs()?;
            self.emit_all(events).await?;
            if self.review_results().await? {
                return Ok(Some(Phase::Preparing(round)));
            }
            self.review_question().await?;
            // Calls are looked up in exactly the set that the model was offered.
            let needs_tools =
                !self.run.awaits_tools() && (!is_elsewhere || self.performer.layers.see_calls());
            if self.run.is_asking() || !self.offer.is_resolved && needs_tools {
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
                if let Some(job) = self.compact_if_needed()
                    && let Some(event) = self.perform(job).await?
                {
                    self.events.push(event);
                    return Ok(Some(Phase::Preparing(round)));
                }
                if self.run.is_asking() {
                    break;
                }
                continue;
            }
            if self.run.awaits_tools() {
                // Calls are neither judged nor refused without their tools.
            } else if is_elsewhere {
                self.review_calls().await?;
            } else {
                self.refuse_new_arguments()?;
                // Before the policies of the tools, by which a call is finished or awaits approval.
                self.review_calls().await?;
                self.apply_tool_policies();
            }
            self.review_returned().await?;
            if self.run.is_asking() {
                continue;
            }
            if is_elsewhere || !self.run.is_blocked() {
                break;
            }
            match self.decide(round).await? {
                Deciding::Unsaved(round) => return Ok(Some(Phase::Preparing(round))),
                Deciding::Decided => round = Round::default(),
                Deciding::Deferred => {
                    self.clock = None;
                    self.has_unsaved_changes |= self.run.tick(Timestamp::now());
                    let needs_tools = !self.offer.is_resolved && !self.run.awaits_tools();
                    if !self.run.is_asking() && !needs_tools {
                        break;
                    }
                    // What a provider has asked is over, and its tools are still unknown.
                    round = Round::default();
                }
            }
        }
        if !self.run.is_done() {
            self.trace.enter_turn(self.run.turn());
        }
        Ok(None)
    }

    /// Checks whether the run can be driven, takes its lease, and asks the application and the memory what it has.
    pub(super) async fn begin_step(&mut self) -> Result<(), RunErrorKind> {
        self.check_agent()?;
        if let Some(error) = &self.question.error {
            return Err(RunErrorKind::Question(Box::new(error.clone())));
        }
        if let Some(layer) = self.performer.layers.answer_guard().filter(|_| self.question.has_typed_answer) {
            let error = format!(
                "the layer `{layer}` judges answers, which are read as a type here; ask without a type, \
                 or return `false` from its `sees` for `Phase::Answer`"
            );
            return Err(RunErrorKind::Question(error.into()));
        }
        self.update_elapsed();
        if !self.question.is_elsewhere {
            // Expiry precedes decisions.
            self.has_unsaved_changes |= self.run.tick(Timestamp::now());
        }
        self.take_lease().await?;
        if self.run.has_failed() {
            self.change_run().set_failed(false);
        }
        if self.question.cancellation.as_ref().is_some_and(CancellationToken::is_cancelled) {
            self.has_unsaved_changes |= !self.run.is_done();
            self.run.cancel();
        }
        self.open().await?;
        self.load_history().await
    }

    /// Emits what is new in a run that is saved, and gives up its lease if it waits.
    pub(super) async fn settle_step(&mut self) -> Result<(), RunErrorKind> {
        self.give_up_calls().await;
        self.emit_finished().await?;
        let is_blocked = self.run.is_blocked();
        self.set_in_progress(!self.run.is_done() && !is_blocked);
        if is_blocked {
            self.trace.pause();
            let waits = self.run.waits();
            self.performer.emitter.emit(|| Event::Waiting(waits)).await;
            self.release_lease().await;
        }
        let turn = self.run.turn();
        if self.run.is_asking() && self.announced_turn != turn {
            self.announced_turn = turn;
            let messages = self.offer.messages.as_deref().unwrap_or(self.sent.messages(&self.run)).len();
            self.performer.emitter.emit(|| Event::TurnStarted { turn, messages }).await;
        }
        Ok(())
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
        let judged = match self.judge_reply(normalized.response()) {
            Some(job) => self.perform(job).await,
            None => Ok(Some(ReplyRuling::Pass)),
        };
        let ruling = match judged {
            Ok(Some(ruling)) => ruling,
            unjudged => {
                self.change_run().add_usage(usage);
                return unjudged.map(|_| Vec::new());
            }
        };
        replace_reply(normalized.response_mut(), &ruling);
        let reply = &mut normalized.response_mut().message;
        if reply.text.is_empty() && reply.refusal.is_none() && self.performer.layers.see(LayerPhase::Answer) {
            // Nothing of the reply was judged. The provider's form of it is sent back.
            reply.reasoning = None;
        }
        self.record_context_size(normalized.response());
        let listeners = self.has_listeners();
        let copy = listeners.then(|| (normalized.response().clone(), normalized.positions().to_vec()));
        self.change_run().record_normalized(normalized).map_err(RunErrorKind::Step)?;
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
        if self.performer.emitter.streams_replies() && !is_retried {
            events.extend(hold.held_events(&response));
        }
        let calls = self.run.current_calls().zip(positions).filter(|((_, execution), _)| execution.is_none());
        events.extend(calls.map(|((call, _), index)| Event::CallReady { index, call: call.clone() }));
        events.push(Event::TurnFinished { turn: self.run.turns(), response });
        events.extend(self.take_finished());
        Ok(events)
    }
}
