//! What a run waits for, and what time means meanwhile.
//!
//! A wait has one promise of the engine, which the first decision, or the expiry of its question, claims: so a decision that a handler has
//! accepted always reaches the run, and time only enters a run as far as no claimed question expires by it. A message to a run has a
//! numbered promise, which keeps the order of two: the run awaits the next one beside its calls, and looks for it where it awaits nothing.
//! How much the run was sent, and has read, is part of the state that its handlers read, because they refuse what is too much.

use std::collections::BTreeMap;
use std::time::Duration;

use restate_sdk::context::DurableFuture;
use restate_sdk::prelude::*;
use tool_core::Event;
use tool_core::engine::RunPath;
use tool_core::run::{Decision, Run, UserMessage, Wait};
use tool_core::tool::{self, WaitId};

use super::state::{Arrived, Drive, Driven};
use crate::names::{Added, Claim, Identity, Sent, Stop, Waiting};
use crate::signals::{FIRST_STOP, WAITING, decision_signal, message_signal, stop};

/// The shortest time between two looks for messages, each of which takes a round trip to the engine.
const MESSAGE_CHECK_TIME: Duration = Duration::from_secs(1);

impl<'c> Drive<'c> {
    /// Returns what the handlers of the run know about its waits.
    pub(super) fn waiting_state(&mut self, waits: Vec<WaitId>) -> Waiting {
        self.message_volume = self.run.message_volume();
        let (messages, message_volume) = (self.messages, self.message_volume);
        let (agents, round) = (self.waiting_agents(), self.round);
        let (run, user) = (self.run.id().clone(), self.run.user().cloned());
        let identity = Some(Identity { run, user, conversation: self.run.conversation().cloned() });
        Waiting { messages, message_volume, agents, identity, waits, round, ..Waiting::default() }
    }

    /// Returns the names that lead to the agents whose calls wait, by the paths of these calls.
    fn waiting_agents(&self) -> BTreeMap<String, Vec<String>> {
        let mut agents = BTreeMap::new();
        // Those inside come later and take precedence.
        for path in self.run.engine_view().open_places() {
            let before: String = path.calls().iter().map(|call| format!("{call}/")).collect();
            let names = self.tree(&self.way(&path)).names();
            let waits = self.run_at(&path).filter(|_| !names.is_empty()).map(Run::waits);
            let waits = waits.unwrap_or_default().into_iter();
            // A provider of tools asks for the run itself.
            let path = |wait: Wait| format!("{before}{}", wait.path).trim_end_matches('/').to_owned();
            agents.extend(waits.map(|wait| (path(wait), names.clone())));
        }
        agents
    }

    /// Publishes that the run waits.
    pub(super) fn publish_stop(&mut self, waits: Vec<WaitId>, stop_reason: Stop) {
        self.round += 1;
        let paused = match &stop_reason {
            Stop::Paused(reason) => Some(reason.clone()),
            _ => None,
        };
        let waiting = Waiting { paused, ..self.waiting_state(waits) };
        self.ctx.set(WAITING, Json(waiting));
        if self.round == 1 {
            self.ctx.resolve_promise(FIRST_STOP, Json(None::<Added>));
        }
        self.ctx.resolve_promise(&stop(self.round - 1), Json(stop_reason));
    }

    /// Publishes what waits for a decision, and waits for the decisions.
    pub(super) fn publish_waits(&mut self) {
        let waiting: Vec<_> = self.run.waits().into_iter().filter(|wait| !wait.is_until()).collect();
        let ids: Vec<_> = waiting.iter().map(|wait| wait.id.clone()).collect();
        let new: Vec<_> = ids.iter().filter(|id| !self.open.asked.contains(*id)).cloned().collect();
        let is_published = ids.is_empty() || !self.waiting.is_empty();
        if new.is_empty() && is_published {
            // Messages are read with the end of a turn.
            if ids != self.waiting || self.run.message_volume() != self.message_volume {
                self.waiting.clone_from(&ids);
                let waiting = self.waiting_state(ids);
                self.ctx.set(WAITING, Json(waiting));
            }
            return;
        }
        self.waiting.clone_from(&ids);
        for id in new {
            let decision = self.ctx.signal::<Json<Sent<Decision>>>(&decision_signal(&id));
            let about = id.clone();
            let decision = decision.map_ok(|Json(decision)| Arrived::Decision(about, decision));
            self.open.pending.push(Box::pin(decision));
            self.open.asked.insert(id);
        }
        // Those inside report first what they wait for.
        for path in self.run.engine_view().open_places().iter().rev().filter(|path| path.depth() > 0) {
            let waits = self.run_at(path).filter(|run| run.is_blocked()).map(Run::waits);
            if let Some(waits) = waits {
                self.publish(path, Event::Waiting(waits));
            }
        }
        self.publish(&RunPath::default(), Event::Waiting(waiting.clone()));
        self.publish_stop(ids, Stop::Waiting(waiting));
    }

    /// Returns `true` if this run looks for messages before its next turn, because it awaits nothing between its turns.
    pub(super) fn is_time_to_check_messages(&mut self) -> bool {
        let now = self.clock.micros();
        let passed = Duration::from_micros(now.saturating_sub(self.messages_checked_at));
        let is_time = self.setup.settings.has_local_calls && passed >= MESSAGE_CHECK_TIME;
        if is_time {
            self.messages_checked_at = now;
        }
        is_time
    }

    /// Returns `true` if somebody has sent a message, which has arrived or will in a moment.
    pub(super) async fn has_message(&mut self) -> Driven<bool> {
        Ok(self.ctx.peek_promise::<Json<Claim>>(&message_signal(self.messages)).await?.is_some())
    }

    /// Awaits the next message to the run.
    pub(super) fn await_message(&mut self) {
        if self.open.awaited_message.replace(self.messages) != Some(self.messages) {
            let message = self.ctx.signal::<Json<Sent<UserMessage>>>(&message_signal(self.messages));
            self.open.pending.push(Box::pin(message.map_ok(|Json(message)| Arrived::Message(message))));
        }
    }

    /// Lets questions expire whose time is up. One about which somebody has decided does not: the decision is on its way.
    pub(super) async fn expire_questions(&mut self) -> Driven {
        let now = self.clock.time();
        for wait in self.run.waits() {
            let Some(expired) = wait.expired(now).filter(|_| self.open.asked.contains(&wait.id)) else {
                continue;
            };
            let signal = decision_signal(&wait.id);
            let own = self.ctx.invocation_id().to_owned();
            let claim = Claim { invocation: own.clone(), record: Some(expired), bytes: None };
            self.ctx.resolve_promise(&signal, Json(claim));
            let Json(winner) = self.ctx.promise::<Json<Claim>>(&signal).await?;
            if winner.invocation != own {
                return Ok(());
            }
        }
        self.run.tick(now);
        Ok(())
    }

    /// Answers questions for secrets, which are not asked for, because the engine stores every answer.
    pub(super) fn refuse_secrets(&mut self) {
        for wait in self.run.waits() {
            if wait.question().is_some_and(tool::Question::is_secret) {
                let nobody = Decision::unavailable().because("the engine would store the secret answer");
                let _ = self.run.resolve(&wait.id, nobody);
            }
        }
    }

    /// Sets a timer for the next deadline of something that the run waits for.
    pub(super) fn await_deadline(&mut self) {
        let now = self.clock.time();
        let next = self.run.engine_view().poll_timeout(now).deadline;
        if let Some(next) = next.filter(|next| self.open.deadline.is_none_or(|earlier| *next < earlier)) {
            self.open.deadline = Some(next);
            let timer = self.ctx.sleep(next.since(now));
            self.open.pending.push(Box::pin(timer.map_ok(move |()| Arrived::Deadline(next))));
        }
    }

    /// Sets a timer for the run whose time is up first.
    pub(super) fn await_time_limit(&mut self) {
        // A timer that was set before the run only waited for a person has counted that time, too.
        let limit = self
            .run
            .engine_view()
            .poll_timeout(self.clock.time())
            .limit
            .map(|(path, left)| (self.clock.after(left), path));
        if self.open.time_limit.as_ref().map(|(_, limit)| limit) != limit.as_ref() {
            self.open.time_limit = limit.map(|limit| {
                let left = Duration::from_micros(limit.0.saturating_sub(self.clock.micros()));
                let timer = self.ctx.sleep(left.max(Duration::from_millis(1)));
                let timer = timer.map_ok(|()| Arrived::TimeLimit);
                (self.open.pending.push(Box::pin(timer)), limit)
            });
        }
    }
}
