//! What a run waits for, and what time means meanwhile.

use std::time::Duration;

use restate_sdk::context::DurableFuture;
use restate_sdk::prelude::*;
use tool_core::Event;
use tool_core::content::Content;
use tool_core::run::{Decision, Wait, WaitReason};
use tool_core::tool::{self, ToolExecution, WaitId};

use super::Drive;
use super::calls::{Arrived, Open};
use crate::names::{Added, Claim, Sent, Stop, Waiting};
use crate::runs::{FIRST_STOP, WAITING, decision_signal, message_signal, stop};

impl<'c> Drive<'c> {
    /// Returns what the handlers of the run know about its waits.
    pub(super) fn waiting_for(&self, waits: Vec<WaitId>) -> Waiting {
        let approvals = self.approvals.clone();
        Waiting { turn: self.run.turns(), waits, approvals, round: self.round, paused: None }
    }

    /// Publishes that the run waits.
    pub(super) fn begin_waiting(&mut self, waits: Vec<WaitId>, stop_reason: Stop) {
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

    /// Publishes what waits for a decision, and waits for the decisions.
    pub(super) fn ask_person(&mut self, open: &mut Open<'c>) {
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
        self.publish_finished_calls();
        self.publish(Event::Waiting(waiting.clone()));
        self.begin_waiting(ids, Stop::Waiting(waiting));
    }

    /// Lets questions expire whose time is up. One about which somebody has decided does not: the decision is on its way.
    pub(super) async fn expire(&mut self, open: &mut Open<'c>) -> Result<(), TerminalError> {
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
        // The calls have waited, as for a decision.
        open.has_decision |= self.run.tick(now);
        Ok(())
    }

    /// Records a call that waits. Secrets are not asked for, because the engine stores every answer.
    pub(super) fn record_waiting(&mut self, execution: ToolExecution) {
        self.waited.insert(execution.call().id.clone());
        let _ = self.run.record_result(execution);
        for wait in self.run.waits() {
            if wait.question().is_some_and(tool::Question::is_secret) {
                let nobody = Decision::unavailable().because("the engine would store the secret answer");
                let _ = self.run.resolve(&wait.id, nobody);
            }
        }
    }

    /// Sets a timer for the next deadline of something that the run waits for.
    pub(super) fn await_deadline(&mut self, open: &mut Open<'c>) {
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
    pub(super) fn is_working(&self, open: &Open<'c>) -> bool {
        !open.in_flight.is_empty() || self.run.waits().iter().all(Wait::is_until)
    }

    pub(super) fn limit_time(&mut self, open: &mut Open<'c>) {
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

    /// Counts the time until a decision, unless the run only waited for it.
    pub(super) fn resume_clock(&mut self, open: &Open<'c>, at: u64) {
        match self.is_working(open) {
            true => self.elapse(at),
            false => {
                self.clock.advance(at);
                self.tick();
            }
        }
    }
}
