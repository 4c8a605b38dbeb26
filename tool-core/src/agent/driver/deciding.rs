//! Asks the deciders of a run that waits.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, pending, select};
use tokio::time::Instant;

use super::job::Job;
use super::round::{PendingDecision, Questions, Round};
use super::work::{StepPhase, Work};
use crate::agent::decider::Deciders;
use crate::agent::interruption::{Interruption, run_until_interrupted};
use crate::agent::{AgentExt, AgentTool, Decider, RunDriver};
use crate::run::{Decision, Handoff, ResolveErrorKind, Run, RunErrorKind, Wait};
use crate::tool::{Timestamp, Tool, WaitId};

/// What has become of a question to the deciders.
enum Asked {
    /// It is decided, or no longer open.
    Decided,
    Deferred,
    /// They have not answered in time.
    Unanswered,
}

impl RunDriver {
    /// Asks the deciders about what the run waits for, one by one, or sleeps until a parked call is due. Each wait is saved
    /// before its deciders are asked.
    pub(super) fn decide(&mut self, round: Round) -> Result<Work, RunErrorKind> {
        self.run.stop_if_time_is_up();
        if self.end_questions_of_missing_providers() {
            return self.prepare_step(Round::default());
        }
        let waits: Vec<_> = self.run.waits_at_levels().collect();
        if waits.iter().all(|(wait, _)| wait.is_until()) {
            let until = waits.iter().filter_map(|(wait, _)| wait.deadline).min();
            return self.sleep_until(until.filter(|_| !self.question.returns_when_parked));
        }
        let (question, agent) = (&self.question, &self.performer.tools.agent.0);
        let deciders = question.deciders.iter().chain(&agent.deciders).chain(&question.last_decider);
        let deciders = Arc::new(Deciders(deciders.cloned().collect()));
        self.ask_next(Questions { waits: waits.into_iter(), deciders, round })
    }

    fn ask_next(&mut self, mut questions: Questions) -> Result<Work, RunErrorKind> {
        let has_deciders = !questions.deciders.0.is_empty();
        while let Some((wait, level)) = questions.waits.next() {
            let round = &mut questions.round;
            if !has_deciders || !wait.is_for_decider(level) || round.asked.contains(&wait.id) {
                continue;
            }
            self.storage.has_unsaved_changes |= self.run.tick(Timestamp::now());
            if !self.run.deferred().is_empty() {
                self.change_run().set_deferred(Vec::new());
            }
            if self.storage.has_unsaved_changes {
                return Ok(Work::Save(StepPhase::Preparing(questions.round)));
            }
            if let Some(place) = &mut self.question.recovery_place {
                if !place.begin_asking() {
                    break;
                }
                let until = place.max_asking.and_then(|max| Instant::now().checked_add(max));
                round.until = round.until.or(until);
            }
            round.asked.push(wait.id.clone());
            let (deciders, asked) = (Arc::clone(&questions.deciders), wait.clone());
            let decision = async move { deciders.decide(&asked).await }.boxed();
            return self.await_decision(PendingDecision { wait, decision, others: questions });
        }
        let Questions { round, .. } = questions;
        if round.has_decided {
            return Ok(self.take_place());
        }
        // Otherwise recovery would ask them again.
        if has_deciders && self.performer.asked.is_none() && *self.run.deferred() != round.deferred {
            self.change_run().set_deferred(round.deferred);
        }
        self.defer()
    }

    /// Leaves the run waiting, unless it can go on.
    fn defer(&mut self) -> Result<Work, RunErrorKind> {
        self.storage.has_unsaved_changes |= self.run.tick(Timestamp::now());
        if self.run.is_blocked() {
            self.count_time();
            self.clock = None;
        }
        let needs_tools = !self.offer.is_resolved && !self.run.awaits_tools();
        match self.run.is_asking() || needs_tools {
            // What a provider has asked is over, and its tools are still unknown.
            true => self.prepare_step(Round::default()),
            false => self.prepared(),
        }
    }

    /// Waits until the recovery that continues the run has a place for it, unless the run is cancelled, and goes on.
    fn take_place(&mut self) -> Work {
        let place = self.question.recovery_place.take();
        let cancellation = self.question.cancellation.clone();
        let taking = async move {
            let Some(mut place) = place else { return (None, Ok(())) };
            let taken = run_until_interrupted(place.end_asking(), cancellation.as_ref(), None).await;
            (Some(place), taken)
        };
        Work::Persons(Job::new(taking, |driver, (place, taken)| {
            driver.question.recovery_place = place;
            if let Err(interruption) = taken {
                driver.interrupt(&interruption);
            }
            driver.prepare_step(Round::default())
        }))
    }

    /// Ends the questions of providers that their agents no longer have. Returns `true` if there is one.
    fn end_questions_of_missing_providers(&mut self) -> bool {
        let tools = &self.performer.tools;
        let is_there = |name: &str, number| tools.has_provider(name, number);
        let mut missing = self.run.waits_of_missing_providers(is_there);
        find_waits_of_missing_providers(&self.run, &|name| self.offer.tools.get(name), &mut missing);
        let nobody = Decision::unavailable().because("the program no longer has this provider of tools");
        let ended = missing.iter().filter(|wait| self.resolve(*wait, nobody.clone()).is_ok());
        ended.count() > 0
    }

    /// Awaits a decision, unless a posted command, the deadline or the end of the time to ask is first.
    pub(super) fn await_decision(&mut self, pending: PendingDecision) -> Result<Work, RunErrorKind> {
        let PendingDecision { wait, decision, others } = pending;
        // A posted command was first.
        let Some(current) = self.run.waits().into_iter().find(|current| current.id == wait.id) else {
            return self.go_on_asking(Asked::Decided, &wait, others);
        };
        let changed = select(self.inbox_changed().boxed(), sleep_until(current.deadline));
        let first = select(decision, changed);
        let time_left = others.round.until.map(|until| until.saturating_duration_since(Instant::now()));
        let awaiting = run_until_interrupted(first, self.question.cancellation.as_ref(), time_left);
        Ok(Work::Persons(Job::new(awaiting, move |driver, first| {
            let asked = match first {
                // The decider keeps waiting for the person, unless the command concerns this wait.
                Ok(Either::Right((_, decision))) => {
                    driver.change_run().tick(Timestamp::now());
                    let pending = PendingDecision { wait, decision, others };
                    return Ok(Work::Posted(StepPhase::Deciding(pending.into())));
                }
                Ok(Either::Left((decision, _))) if decision.is_deferred() => Asked::Deferred,
                Ok(Either::Left((decision, _))) => match driver.resolve(&wait.id, decision) {
                    Ok(()) => Asked::Decided,
                    // It has expired.
                    Err(error) if error.kind() == ResolveErrorKind::AlreadyDecided => Asked::Decided,
                    Err(error) => return Err(RunErrorKind::Decision(error)),
                },
                Err(Interruption::TimeLimit) => Asked::Unanswered,
                Err(interruption @ Interruption::Cancelled) => {
                    driver.interrupt(&interruption);
                    Asked::Decided
                }
            };
            driver.go_on_asking(asked, &wait, others)
        })))
    }

    fn go_on_asking(
        &mut self,
        asked: Asked,
        wait: &Wait,
        mut questions: Questions,
    ) -> Result<Work, RunErrorKind> {
        match asked {
            Asked::Decided => questions.round.has_decided = true,
            Asked::Deferred => questions.round.deferred.push(wait.id.clone()),
            Asked::Unanswered => {}
        }
        self.ask_next(questions)
    }

    /// Sleeps until this time, and goes on. It counts for the run, which waits for a machine, unless only agents with limits of their own
    /// wait. The run waits without a time or a runtime.
    fn sleep_until(&mut self, until: Option<Timestamp>) -> Result<Work, RunErrorKind> {
        if until.is_none() || tokio::runtime::Handle::try_current().is_err() {
            return self.defer();
        }
        self.storage.has_unsaved_changes |= self.run.tick(Timestamp::now());
        if self.storage.has_unsaved_changes {
            return Ok(Work::Save(StepPhase::Preparing(Round::default())));
        }
        let time_left = self.run.time_left().filter(|_| !self.run.waits_only_for_own_limits());
        let cancellation = self.question.cancellation.as_ref();
        let sleeping = run_until_interrupted(sleep_until(until), cancellation, time_left);
        Ok(Work::Job(Job::new(sleeping, move |driver, slept| {
            match slept {
                Ok(()) => _ = driver.change_run().tick(Timestamp::now()),
                Err(interruption) => driver.interrupt(&interruption),
            }
            driver.prepare_step(Round::default())
        })))
    }
}

/// Finds what providers wait for that the agents inside of a run no longer have. An agent that is not known may have all.
fn find_waits_of_missing_providers<'a>(
    run: &Run,
    tool: &dyn Fn(&str) -> Option<&'a dyn Tool>,
    found: &mut Vec<WaitId>,
) {
    for inner in run.inner_runs() {
        let (asked, run) = (tool(inner.agent()).and_then(AgentTool::of), inner.run());
        let handoffs = run.handoffs().iter().map(Handoff::agent);
        let Some(agent) = asked.and_then(|asked| asked.agent().agent_at(handoffs)) else { continue };
        found.extend(run.waits_of_missing_providers(|name, number| agent.has_provider(name, number)));
        find_waits_of_missing_providers(run, &|name| agent.tools().get(name), found);
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
