//! The turns of the model, and the pauses in which an operator is needed.

use futures_util::future::BoxFuture;
use restate_sdk::prelude::*;
use tool_core::Event;
use tool_core::model::ToolDefinition;
use tool_core::run::RunChanges;

use super::{Drive, MODEL_DELAY, is_cancellation, repeat_until};
use crate::events::Unfinished;
use crate::names::{Sent, Stop};
use crate::runs::{WAITING, resume_signal};
use crate::turn::{CalledTool, Judged, Subject, TurnOutcome, TurnRecord};

impl<'c> Drive<'c> {
    /// Lets the layers judge in a recorded step. Waits for an operator if one fails for too long.
    pub(super) async fn judge(
        &mut self,
        name: &str,
        subject: Subject,
    ) -> HandlerResult<Result<(), TerminalError>> {
        loop {
            let (model, run, tools, context) =
                (&self.service.model, &self.run, &self.started_with, &self.context);
            let (deadline, subject) = (self.clock.after(self.service.model_patience), subject.clone());
            let judge = move || -> BoxFuture<'_, HandlerResult<Json<Judged>>> {
                Box::pin(async move {
                    let judged = model.judge(run.clone(), tools, context, subject).await;
                    repeat_until(deadline, judged)
                })
            };
            let policy = RunRetryPolicy::default().max_delay(MODEL_DELAY);
            match self.ctx.run(judge).name(name).retry_policy(policy).await {
                Ok(Json(Judged::Changed(changes))) => {
                    self.change(&changes);
                    return Ok(Ok(()));
                }
                Ok(Json(Judged::Refused(reason))) => {
                    self.fail(reason);
                    return Ok(Ok(()));
                }
                Err(error) if is_cancellation(&error) => return Ok(Err(error)),
                Err(error) => self.pause(error.message()).await?,
            }
        }
    }

    /// Lets the layers judge a question, or an answer that is an output, unless they have.
    pub(super) async fn judge_next(&mut self, name: &str) -> HandlerResult<()> {
        if self.judge(name, Subject::Next).await?.is_err() {
            self.run.cancel();
        }
        Ok(())
    }

    /// Applies what a recorded step has changed.
    fn change(&mut self, changes: &RunChanges) {
        if self.run.apply_changes(changes).is_err() {
            self.fail("a recorded step is of another state of the run");
        }
    }

    pub(super) async fn take_turn(&mut self) -> HandlerResult<()> {
        self.publish_finished_calls();
        self.publish(Event::turn_started(self.run.turns() + 1, self.run.messages().len()));
        match self.flush_events().await {
            Ok(()) => {}
            Err(error) if is_cancellation(&error) => {
                self.run.cancel();
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        let (model, run, tools, context) =
            (&self.service.model, &self.run, &self.started_with, &self.context);
        let events = self.events.as_ref();
        let unfinished = Unfinished::default();
        let published = unfinished.clone();
        let (attempts, patience) = (self.service.model_attempts, self.service.model_patience);
        let time_left = self.run.time_left().filter(|left| *left <= patience);
        let deadline = self.clock.after(time_left.unwrap_or(patience));
        // Boxed, because the compiler cannot prove for every lifetime that the future is `Send`.
        let turn = move || -> BoxFuture<'_, HandlerResult<Json<TurnRecord>>> {
            Box::pin(async move {
                let taken = model.take_turn(run.clone(), tools, context, events, &published).await;
                repeat_until(deadline, taken)
            })
        };
        let policy = RunRetryPolicy::default().max_delay(MODEL_DELAY);
        let policy = attempts.into_iter().fold(policy, RunRetryPolicy::max_attempts);
        let name = format!("turn {}", self.run.turns() + 1);
        let taken = self.ctx.run(turn).name(name).retry_policy(policy).await;
        unfinished.finish().await;
        match taken {
            Ok(Json(record)) => {
                if self.apply(record) {
                    self.judge_next("calls").await?;
                }
            }
            Err(error) if is_cancellation(&error) => self.run.cancel(),
            Err(error) if attempts.is_some() => self.fail(error.message()),
            Err(error) => match time_left {
                Some(left) => self.run.add_elapsed(left),
                None => self.pause(error.message()).await?,
            },
        }
        Ok(())
    }

    /// Applies a turn. Returns `true` if its calls are still to be judged.
    fn apply(&mut self, record: TurnRecord) -> bool {
        let mut is_unjudged = false;
        let TurnRecord { outcome, started, finished } = record;
        self.elapse(started);
        match outcome {
            // The time was up, and the run has ended.
            TurnOutcome::Taken { .. } if self.run.time_left().is_some_and(|left| left.is_zero()) => {}
            TurnOutcome::Taken { changes, reply, tools, offered, is_unjudged: unjudged } => {
                is_unjudged = unjudged;
                self.change(&changes);
                self.offer(tools, offered);
                reply.into_iter().for_each(|reply| self.publish_reply(*reply));
            }
            TurnOutcome::Refused(message) => self.fail(message),
        }
        self.elapse(finished);
        is_unjudged
    }

    /// Takes over the tools of the calls of this turn. A tool that was not offered this time is none, also if an earlier turn called it.
    pub(super) fn offer(&mut self, tools: Vec<CalledTool>, offered: Vec<String>) {
        self.run.current_calls().for_each(|(call, _)| drop(self.called.remove(&call.name)));
        for tool in tools {
            if let Some((undo, policy)) = &tool.undo {
                self.undoing.insert(undo.clone(), (policy.clone(), tool.undo_hash.clone()));
            }
            self.called.insert(tool.name.clone(), tool);
        }
        self.offered = offered;
        let undoing = self.undoing.iter().filter(|(name, _)| !self.called.contains_key(*name));
        let undoing =
            undoing.map(|(name, (policy, _))| ToolDefinition::new(&**name).with_policy(policy.clone()));
        self.definitions = self.called.values().map(CalledTool::definition).chain(undoing).collect();
    }

    /// Waits until an operator resumes the run.
    pub(super) async fn pause(&mut self, reason: &str) -> HandlerResult<()> {
        let reason = reason.to_owned();
        self.publish_finished_calls();
        self.publish(Event::Failed(reason.clone()));
        self.begin_waiting(Vec::new(), Stop::Paused(reason));
        let resumed = match self.flush_events().await {
            Ok(()) => self.ctx.signal::<Json<Sent<()>>>(&resume_signal(self.round)).await,
            Err(error) => Err(error),
        };
        match resumed {
            Ok(Json(resumed)) => drop(self.clock.advance(resumed.at)),
            Err(error) if is_cancellation(&error) => self.run.cancel(),
            Err(error) => return Err(error.into()),
        }
        self.ctx.set(WAITING, Json(self.waiting_for(Vec::new())));
        // What waits for a person meanwhile is published again.
        self.waiting.clear();
        Ok(())
    }
}
