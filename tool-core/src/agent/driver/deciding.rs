//! Asks the deciders of a run that waits.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, pending, select};
use tokio::time::Instant;

use crate::agent::decider::Deciders;
use crate::agent::interruption::{Interruption, run_until_interrupted};
use crate::agent::{AgentTool, Decider, RunDriver};
use crate::run::{Decision, Handoff, ResolveErrorKind, Run, RunErrorKind, Wait};
use crate::tool::{Timestamp, Tool, WaitId};

/// One round of questions to the deciders, about everything that a run waits for.
#[derive(Default)]
pub(super) struct Round {
    asked: Vec<WaitId>,
    /// What was left to people.
    deferred: Vec<WaitId>,
    has_decided: bool,
    /// Deciders that have not answered until then are asked another time.
    until: Option<Instant>,
}

/// What has become of a question to the deciders.
enum Asked {
    /// It is decided, or no longer open.
    Decided,
    Deferred,
    /// They have not answered in time.
    Unanswered,
}

/// What has become of a round.
pub(super) enum Deciding {
    /// The run has to be saved before the next one is asked.
    Unsaved(Round),
    Decided,
    /// Nothing was decided.
    Deferred,
}

impl RunDriver {
    /// Asks the deciders about what the run waits for, one by one, or sleeps until a parked call is due. Each wait is saved
    /// before its deciders are asked.
    pub(super) async fn decide(&mut self, mut round: Round) -> Result<Deciding, RunErrorKind> {
        self.update_elapsed();
        if self.end_questions_of_missing_providers() {
            return Ok(Deciding::Decided);
        }
        let waits: Vec<_> = self.run.waits_at_levels().collect();
        if waits.iter().all(|(wait, _)| wait.is_until()) {
            if self.question.leaves_parked {
                return Ok(Deciding::Deferred);
            }
            return self.sleep_until(waits.iter().filter_map(|(wait, _)| wait.deadline).min()).await;
        }
        let (question, agent) = (&self.question, &self.performer.tools.agent.0);
        let deciders = question.deciders.iter().chain(&agent.deciders).chain(&question.last_decider);
        let deciders = Arc::new(Deciders(deciders.cloned().collect()));
        let has_deciders = !deciders.0.is_empty();
        for (wait, level) in waits {
            if deciders.0.is_empty() || !wait.is_for_decider(level) || round.asked.contains(&wait.id) {
                continue;
            }
            self.has_unsaved_changes |= self.run.tick(Timestamp::now());
            if !self.run.deferred().is_empty() {
                self.change_run().set_deferred(Vec::new());
            }
            if self.has_unsaved_changes {
                return Ok(Deciding::Unsaved(round));
            }
            if let Some(place) = &mut self.question.recovery_place {
                if !place.begin_asking() {
                    break;
                }
                let until = place.max_asking.and_then(|max| Instant::now().checked_add(max));
                round.until = round.until.or(until);
            }
            let (deciders, asked) = (Arc::clone(&deciders), wait.clone());
            let decision = async move { deciders.decide(&asked).await }.boxed();
            round.asked.push(wait.id.clone());
            match self.await_decision(&wait, decision, round.until).await? {
                Asked::Decided => round.has_decided = true,
                Asked::Deferred => round.deferred.push(wait.id),
                Asked::Unanswered => {}
            }
            // Time spent waiting for persons does not count.
            self.clock = Some(Instant::now());
        }
        if round.has_decided {
            self.take_place().await;
            return Ok(Deciding::Decided);
        }
        // Otherwise recovery would ask them again.
        if has_deciders && self.performer.asked.is_none() && *self.run.deferred() != round.deferred {
            self.change_run().set_deferred(round.deferred);
        }
        Ok(Deciding::Deferred)
    }

    /// Waits until the recovery that continues the run has a place for it, unless the run is cancelled.
    async fn take_place(&mut self) {
        let cancellation = self.question.cancellation.clone();
        let Some(place) = &mut self.question.recovery_place else { return };
        let taken = run_until_interrupted(place.end_asking(), cancellation.as_ref(), None).await;
        if let Err(interruption) = taken {
            self.interrupt(&interruption);
        }
        self.clock = Some(Instant::now());
    }

    /// Ends the questions of providers that their agents no longer have. Returns `true` if there is one.
    fn end_questions_of_missing_providers(&mut self) -> bool {
        let tools = &self.performer.tools;
        let is_there = |name: &str, number| tools.has_provider(name, number);
        let mut missing = self.run.waits_of_missing_providers(is_there);
        find_waits_of_missing_providers(&self.run, &|name| self.offer.tools.get(name), &mut missing);
        let nobody = Decision::unavailable().because("the program no longer has this provider of tools");
        let ended = missing.iter().filter(|wait| self.resolve(wait, nobody.clone()).is_ok());
        ended.count() > 0
    }

    /// Awaits a decision, unless a posted command, the deadline or the end of the time to ask is first.
    async fn await_decision(
        &mut self,
        wait: &Wait,
        mut decision: BoxFuture<'_, Decision>,
        until: Option<Instant>,
    ) -> Result<Asked, RunErrorKind> {
        loop {
            // A posted command was first.
            let Some(current) = self.run.waits().into_iter().find(|current| current.id == wait.id) else {
                return Ok(Asked::Decided);
            };
            let expired = sleep_until(current.deadline);
            let changed = select(self.inbox_changed().boxed(), expired);
            let first = select(&mut decision, changed);
            let time_left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match run_until_interrupted(first, self.question.cancellation.as_ref(), time_left).await {
                // The decider keeps waiting for the person, unless the command concerns this wait.
                Ok(Either::Right(_)) => {
                    self.change_run().tick(Timestamp::now());
                    self.take_posted().await?;
                }
                Ok(Either::Left((decision, _))) if decision.is_deferred() => return Ok(Asked::Deferred),
                Ok(Either::Left((decision, _))) => {
                    let resolved = self.resolve(&wait.id, decision);
                    return match resolved {
                        Ok(()) => Ok(Asked::Decided),
                        // It has expired.
                        Err(error) if error.kind() == ResolveErrorKind::AlreadyDecided => Ok(Asked::Decided),
                        Err(error) => Err(RunErrorKind::Decision(error)),
                    };
                }
                Err(Interruption::TimeLimit) => return Ok(Asked::Unanswered),
                Err(interruption @ Interruption::Cancelled) => {
                    self.interrupt(&interruption);
                    return Ok(Asked::Decided);
                }
            }
        }
    }

    /// Sleeps until this time. It counts for the run, which waits for a machine, unless only agents with limits of their own wait. Decides
    /// nothing without a runtime.
    async fn sleep_until(&mut self, until: Option<Timestamp>) -> Result<Deciding, RunErrorKind> {
        if until.is_none() || tokio::runtime::Handle::try_current().is_err() {
            return Ok(Deciding::Deferred);
        }
        self.has_unsaved_changes |= self.run.tick(Timestamp::now());
        if self.has_unsaved_changes {
            return Ok(Deciding::Unsaved(Round::default()));
        }
        let is_counted = !self.run.waits_only_for_own_limits();
        let (cancellation, time_left) = (self.question.cancellation.as_ref(), self.time_left());
        let time_left = time_left.filter(|_| is_counted);
        let slept = run_until_interrupted(sleep_until(until), cancellation, time_left).await;
        if !is_counted {
            self.clock = Some(Instant::now());
        }
        if let Err(interruption) = slept {
            self.interrupt(&interruption);
        } else {
            self.change_run().tick(Timestamp::now());
        }
        Ok(Deciding::Decided)
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
