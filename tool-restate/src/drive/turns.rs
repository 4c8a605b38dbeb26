//! The turns of the model, and the pauses in which an operator is needed.

use futures_util::future::BoxFuture;
use restate_sdk::prelude::*;
use tool_core::Event;
use tool_core::model::ToolDefinition;

use super::{Drive, MODEL_DELAY, is_cancellation, repeat_until};
use crate::events::Unfinished;
use crate::names::{Sent, Stop};
use crate::runs::{WAITING, resume_signal};
use crate::turn::{CalledTool, TurnOutcome, TurnRecord};

impl<'c> Drive<'c> {
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
            Ok(Json(record)) => self.apply(record),
            Err(error) if is_cancellation(&error) => self.run.cancel(),
            Err(error) if attempts.is_some() => self.fail(error.message()),
            Err(error) => match time_left {
                Some(left) => self.run.add_elapsed(left),
                None => self.pause(error.message()).await?,
            },
        }
        Ok(())
    }

    pub(super) fn apply(&mut self, record: TurnRecord) {
        let TurnRecord { outcome, started, finished } = record;
        self.elapse(started);
        match outcome {
            TurnOutcome::Response { response, tools, offered, approvals } => {
                let copy = self.events.as_ref().map(|_| response.clone());
                // Fails if the time was up: the run has ended then.
                if self.run.record_response(*response).is_ok() {
                    self.offer(tools, offered);
                    copy.into_iter().for_each(|response| self.publish_reply(*response));
                    for call in approvals {
                        let _ = self.run.require_approval(&call);
                    }
                }
            }
            TurnOutcome::TimedOut => self.run.add_elapsed(self.run.time_left().unwrap_or_default()),
            TurnOutcome::Refused(message) => self.fail(message),
        }
        self.elapse(finished);
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
