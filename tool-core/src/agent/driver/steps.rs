//! The steps of a run: preparing, taking and recording them.
//!
//! The text of a reply is judged before it is recorded, because nothing unjudged may be in a state. Calls are judged after that, because
//! they have their final ids then, and are not executed before.

use futures_util::FutureExt;
use futures_util::future::Either;
use tokio_util::sync::CancellationToken;

use super::hold::Hold;
use super::job::Job;
use super::offer::next_step;
use super::review::replace_reply;
use super::round::Round;
use super::work::{StepPhase, Work};
use crate::agent::layers::ReplyRuling;
use crate::agent::tool_search::unwrap_call;
use crate::agent::{Event, RunDriver};
use crate::layer::LayerPhase;
use crate::model::{ChatResponse, Message};
use crate::run::{LayerSight, NormalizedResponse, RunErrorKind, Step};
use crate::tool::Timestamp;

type Worked = Result<Work, RunErrorKind>;

impl RunDriver {
    /// Takes a step up to its calls, or to what else is known after it.
    pub(super) async fn take_step_to_calls(&mut self) -> Worked {
        self.begin_step().await?;
        let mut work = self.prepare_step(Round::default())?;
        loop {
            work = match self.carry_out(work).await? {
                // The save of the started calls, or of what the request can cost, has what has changed before.
                Work::Prepared
                    if self.performer.asked.is_none()
                        && (self.run.is_to_execute_calls()
                            || self.run.is_asking() && !self.run.is_blocked()) =>
                {
                    self.take()?
                }
                Work::Prepared => {
                    self.store_run().await?;
                    self.work(StepPhase::Prepared)?
                }
                Work::Replied(reply) => self.record_reply(*reply)?,
                work => return Ok(work),
            }
        }
    }

    /// Performs jobs, saves the run and takes posted commands, until something else is needed.
    pub(super) async fn carry_out(&mut self, mut work: Work) -> Worked {
        loop {
            work = match work {
                Work::Job(job) => self.perform(job).await?,
                Work::Persons(job) => {
                    self.count_time();
                    // It stays so if this is dropped.
                    self.clock = None;
                    let decided = self.perform(job).await;
                    self.start_clock();
                    decided?
                }
                Work::Save(phase) => {
                    self.store_run().await?;
                    self.count_time();
                    self.work(phase)?
                }
                Work::Posted(phase) => {
                    self.take_posted().boxed().await?;
                    self.work(phase)?
                }
                work => return Ok(work),
            }
        }
    }

    /// Works on a step until others have to act.
    pub(super) fn work(&mut self, phase: StepPhase) -> Worked {
        match phase {
            StepPhase::Beginning => self.begin(),
            StepPhase::Preparing(round) => self.prepare_step(round),
            StepPhase::Deciding(pending) => self.await_decision(*pending),
            StepPhase::Prepared => self.settle_then(Self::take),
            StepPhase::Answered => Ok(match self.commit_apart() {
                Some(job) => Work::Job(job.then(|_, ()| Ok(Work::Done))),
                None => Work::Done,
            }),
            StepPhase::Priced { meter, is_compacted } => {
                self.settle_then(move |driver| driver.ask(meter, is_compacted))
            }
        }
    }

    /// Emits what is queued, and goes on.
    pub(super) fn emit_then(&mut self, next: impl FnOnce(&mut Self) -> Worked + Send + 'static) -> Worked {
        match self.emit_queued() {
            Either::Left(_) => next(self),
            Either::Right(emitting) => Ok(Work::Job(Job::new(emitting, |driver, emitted| {
                emitted?;
                next(driver)
            }))),
        }
    }

    /// Prepares the next step for a caller that takes it: takes the lease, loads the history, resolves the tools, asks the deciders, and
    /// stores the run.
    pub(super) async fn prepare(&mut self) -> Result<(), RunErrorKind> {
        self.begin_step().await?;
        let work = self.prepare_step(Round::default())?;
        self.carry_out(work).await?;
        self.store_run().await?;
        let work = self.settle_then(|_| Ok(Work::Prepared))?;
        self.carry_out(work).await?;
        if self.run.is_blocked() {
            self.release_lease().await;
        }
        Ok(())
    }

    /// Checks whether the run can be driven, takes its lease, and asks the application and the memory what it has.
    async fn begin_step(&mut self) -> Result<(), RunErrorKind> {
        self.start_clock();
        self.check_step()?;
        if self.performer.store().is_some() {
            // Boxed, because a run that waits is as large as what it can await.
            self.take_lease().boxed().await?;
        }
        self.enter_step();
        self.open().await?;
        self.load_history().await
    }

    /// Begins a step of a run inside of another.
    fn begin(&mut self) -> Worked {
        // Dropped from now on, it counts as cancelled.
        self.enter_span();
        self.check_step()?;
        self.enter_step();
        match self.open_apart()? {
            Some(job) => Ok(Work::Job(job.then(|driver, ()| driver.read_history()))),
            None => self.read_history(),
        }
    }

    fn read_history(&mut self) -> Worked {
        let Some(job) = self.open_conversation() else { return self.prepare_step(Round::default()) };
        Ok(Work::Job(job.then(|driver, opened| {
            let Some(opened) = opened else { return driver.prepare_step(Round::default()) };
            Ok(Work::Job(
                driver.insert_opened(opened).then(|driver, ()| driver.prepare_step(Round::default())),
            ))
        })))
    }

    fn check_step(&mut self) -> Result<(), RunErrorKind> {
        self.check_agent()?;
        if let Some(error) = &self.question.error {
            return Err(RunErrorKind::Question(Box::new(error.clone())));
        }
        if let Some(layer) = self.performer.layers.answer_guard().filter(|_| self.question.has_typed_answer) {
            let error = format!(
                "the layer `{layer}` judges answers, which are read as a type here; ask without a type, \
                 or return `false` from its `sees` for `LayerPhase::Answer`"
            );
            return Err(RunErrorKind::Question(error.into()));
        }
        self.run.stop_if_time_is_up();
        if !self.question.is_remote {
            // Expiry precedes decisions.
            self.storage.has_unsaved_changes |= self.run.tick(Timestamp::now());
        }
        Ok(())
    }

    fn enter_step(&mut self) {
        if self.run.has_failed() {
            self.change_run().set_failure(None);
        }
        if self.question.cancellation.as_ref().is_some_and(CancellationToken::is_cancelled) {
            self.storage.has_unsaved_changes |= !self.run.is_done();
            self.run.cancel();
        }
    }

    /// Prepares a step, which begins with what precedes it: handoffs, and what layers and deciders decide.
    pub(super) fn prepare_step(&mut self, round: Round) -> Worked {
        if self.storage.has_unsaved_changes && !self.news.events.is_empty() {
            // A save has failed before.
            return Ok(Work::Save(StepPhase::Preparing(round)));
        }
        if self.run.handoffs().last().is_some_and(|handoff| !handoff.is_entered) {
            // What was decided meanwhile belongs to the turn before.
            let finished = self.take_finished();
            self.news.events.extend(finished);
        }
        let events = self.follow_handoffs()?;
        self.news.events.extend(events);
        let layers = &self.performer.layers;
        let sees = LayerSight {
            answers: layers.see(LayerPhase::Answer),
            outputs: layers.see(LayerPhase::Output),
            records: false,
        };
        if self.run.shows_for() != sees {
            self.change_run().show_for(sees);
        }
        self.emit_then(|driver| driver.prepare_results(round))
    }

    fn prepare_results(&mut self, round: Round) -> Worked {
        let Some(job) = self.judge_result() else { return self.prepare_question(round) };
        Ok(Work::Job(job.then(|driver, is_interrupted| match is_interrupted {
            // One can be reported to listeners once it is saved.
            _ if !driver.news.events.is_empty() => Ok(Work::Save(StepPhase::Preparing(round))),
            true => driver.prepare_question(round),
            false => driver.prepare_results(round),
        })))
    }

    fn prepare_question(&mut self, round: Round) -> Worked {
        let Some(job) = self.judge_question() else { return self.prepare_tools(round) };
        let judged = job.then(|driver, ()| driver.emit_then(|driver| driver.prepare_question(round)));
        Ok(Work::Job(judged))
    }

    /// Calls are looked up in exactly the set that the model was offered.
    fn prepare_tools(&mut self, round: Round) -> Worked {
        let can_need = !self.question.is_remote || self.performer.layers.see_calls();
        let needs_tools = !self.offer.is_resolved && !self.run.awaits_tools() && can_need;
        if !self.run.is_asking() && !needs_tools {
            return self.prepare_calls(round);
        }
        let Some(job) = self.resolve_tools()? else { return self.prepare_request(round) };
        let job = job.until_interrupted(self.question.cancellation.as_ref(), self.run.time_left());
        Ok(Work::Job(job.then(|driver, resolved| match resolved {
            Some(()) => driver.prepare_request(round),
            None => driver.prepared(),
        })))
    }

    fn prepare_request(&mut self, round: Round) -> Worked {
        if !self.run.is_asking() {
            return self.prepare_calls(round);
        }
        let Some(job) = self.compact_if_needed() else { return self.prepared() };
        Ok(Work::Job(job.then(|driver, compacted| match compacted {
            Some(event) => {
                driver.news.events.push(event);
                Ok(Work::Save(StepPhase::Preparing(round)))
            }
            None if driver.run.is_asking() => driver.prepared(),
            None => driver.prepare_step(round),
        })))
    }

    fn prepare_calls(&mut self, round: Round) -> Worked {
        if self.run.awaits_tools() {
            // Calls are neither judged nor refused without their tools.
            return self.prepare_answer(round);
        }
        if !self.question.is_remote {
            self.refuse_new_arguments()?;
        }
        // Before the policies of the tools, by which a call is finished or awaits approval.
        self.judge_calls_then(|driver| {
            if !driver.question.is_remote {
                driver.apply_tool_policies();
            }
            driver.prepare_answer(round)
        })
    }

    fn prepare_answer(&mut self, round: Round) -> Worked {
        match self.judge_returned() {
            Some(job) => Ok(Work::Job(job.then(|driver, ()| driver.prepare_decisions(round)))),
            None => self.prepare_decisions(round),
        }
    }

    fn prepare_decisions(&mut self, round: Round) -> Worked {
        if self.run.is_asking() {
            return self.prepare_step(round);
        }
        match self.question.is_remote || !self.run.is_blocked() {
            true => self.prepared(),
            false => self.decide(round),
        }
    }

    pub(super) fn prepared(&mut self) -> Worked {
        if !self.run.is_done() {
            self.trace.enter_turn(self.run.turn());
        }
        let turn = self.run.turn();
        if self.run.is_asking() && self.news.announced_turn != turn {
            self.news.announced_turn = turn;
            let messages = self.offer.messages.as_deref().unwrap_or(self.sent.messages(&self.run)).len();
            self.show_questions();
            // Another world has asked.
            if !(self.question.is_remote && self.run.has_asked(turn)) {
                self.change_run().note_asked(turn, messages);
            }
            self.news.turn_events.push(Event::TurnStarted { turn, messages });
        }
        Ok(Work::Prepared)
    }

    /// Queues what users have said since the last turn, which layers have judged.
    pub(super) fn show_questions(&mut self) {
        let questions: Vec<_> = self.run.unshown_questions().collect();
        if !questions.is_empty() {
            self.change_run().note_heard();
            let questions = questions.into_iter().map(|(text, by)| Event::Question { text, by });
            self.news.turn_events.extend(questions);
        }
    }

    /// Does what is known to be next.
    fn take(&mut self) -> Worked {
        let Self { run, offer, sent, performer, .. } = self;
        match next_step(run, offer, sent, &performer.tools, &performer.earlier_tools) {
            Step::CallModel(_) => self.price(false),
            Step::CallTools(calls) => Ok(Work::Calls(calls)),
            Step::Waiting(_) => Ok(Work::Waiting),
            Step::Done => {
                // The model streams its text; what tools return directly is in no reply.
                let returned = self.run.returned_text().filter(|_| self.performer.emitter.streams_replies());
                self.news.events.extend(returned.filter(|text| !text.is_empty()).map(Event::Text));
                self.emit_then(|_| Ok(Work::Done))
            }
        }
    }

    /// Emits what is new in a run that is saved, and goes on.
    pub(super) fn settle_then(&mut self, next: impl FnOnce(&mut Self) -> Worked + Send + 'static) -> Worked {
        let Some(job) = self.give_up_apart() else {
            self.queue_news();
            return self.emit_then(next);
        };
        Ok(Work::Job(job.then(|driver, ()| {
            driver.queue_news();
            driver.emit_then(next)
        })))
    }

    /// Queues what is new in a run that is saved.
    pub(super) fn queue_news(&mut self) {
        let finished = self.take_finished();
        self.news.events.extend(finished);
        let is_blocked = self.run.is_blocked();
        self.set_in_progress(!self.run.is_done() && !is_blocked);
        if is_blocked {
            self.trace.pause();
            self.news.events.push(Event::Waiting(self.run.waits()));
        }
        self.news.events.append(&mut self.news.turn_events);
    }

    /// Lets the layers judge the response of the model, and records it.
    pub(super) fn record_reply(&mut self, (response, hold): (ChatResponse, Hold)) -> Worked {
        self.request.meter = None;
        let normalized = NormalizedResponse::new(response, |call| unwrap_call(call, &self.offer.tools));
        self.trace.record_response(normalized.response());
        match self.judge_reply(normalized.response()) {
            None => self.record_judged_reply(Ok(Some(ReplyRuling::Pass)), normalized, hold),
            Some(job) => Ok(Work::Job(
                job.then_result(move |driver, judged| driver.record_judged_reply(judged, normalized, hold)),
            )),
        }
    }

    fn record_judged_reply(
        &mut self,
        judged: Result<Option<ReplyRuling>, RunErrorKind>,
        mut normalized: NormalizedResponse,
        hold: Hold,
    ) -> Worked {
        let usage = normalized.response().usage.unwrap_or_default();
        let ruling = match judged {
            Ok(Some(ruling)) => ruling,
            unjudged => {
                self.change_run().add_usage(usage);
                return unjudged.map(|_| Work::Asked);
            }
        };
        replace_reply(normalized.response_mut(), &ruling);
        let reply = &mut normalized.response_mut().message;
        if reply.text.is_empty() && reply.refusal.is_none() && self.performer.layers.see(LayerPhase::Answer) {
            // Nothing of the reply was judged. The provider's form of it is sent back.
            reply.reasoning = None;
        }
        self.record_context_size(normalized.response());
        let is_shown = self.has_listeners() || self.run.is_recorded();
        let copy =
            is_shown.then(|| (normalized.response().without_message(), normalized.positions().to_vec()));
        self.change_run().record_normalized(normalized).map_err(RunErrorKind::Step)?;
        let is_retried = matches!(ruling, ReplyRuling::Retry(..) | ReplyRuling::End(_));
        self.rule_on_reply(ruling);
        self.judge_calls_then(move |driver| {
            driver.add_called_tools();
            if driver.offer.is_resolved {
                // The policies of the tools apply at once, also if the caller executes calls without taking the next step.
                driver.apply_tool_policies();
            }
            driver.run.stop_if_time_is_up();
            let Some((response, positions)) = copy else { return Ok(Work::Asked) };
            driver.change_run().note_completed(&response, &positions);
            if !driver.has_listeners() {
                return Ok(Work::Asked);
            }
            driver.queue_reply(response, positions, hold, is_retried);
            driver.emit_then(|_| Ok(Work::Asked))
        })
    }

    /// Queues the events of a reply that is recorded, whose calls have these positions in it.
    fn queue_reply(
        &mut self,
        mut response: ChatResponse,
        positions: Vec<usize>,
        hold: Hold,
        is_retried: bool,
    ) {
        // The reply of the run has the final ids of the calls.
        let reply = self.run.messages().iter().rev().find_map(Message::as_assistant);
        response.message = reply.cloned().unwrap_or_default();
        if self.performer.emitter.streams_replies() && !is_retried {
            self.news.events.extend(hold.held_events(&response));
        }
        let calls = self.run.current_calls().zip(positions).filter(|((_, execution), _)| execution.is_none());
        let ready = calls.map(|((call, _), index)| Event::CallReady { index, call: call.clone() });
        self.news.events.extend(ready);
        self.news.events.push(Event::TurnFinished { turn: self.run.turns(), response });
        let finished = self.take_finished();
        self.news.events.extend(finished);
    }
}
