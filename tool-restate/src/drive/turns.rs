//! The turns of the model, and the pauses in which an operator is needed.

use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use restate_sdk::prelude::*;
use tool_core::Event;
use tool_core::model::ToolDefinition;
use tool_core::run::{Run, RunChanges};

use super::state::{Branch, Drive, MODEL_DELAY, is_cancellation, repeat_until};
use crate::events::Unfinished;
use crate::limit;
use crate::names::{Sent, Stop};
use crate::path::{Asked, call_ids};
use crate::signals::{WAITING, resume_signal};
use crate::step::{Obstacle, Subject};
use crate::tools::CalledTool;
use crate::turn::{Taken, TurnRecord};

impl<'c> Drive<'c> {
    /// Lets the layers judge in a recorded step. Waits for an operator if one fails for too long.
    pub(super) async fn judge(
        &mut self,
        branch: &Branch,
        name: &str,
        subject: Subject,
    ) -> HandlerResult<Result<(), TerminalError>> {
        loop {
            let (model, tree, subject) = (&self.setup.model, self.tree(&branch.path), subject.clone());
            let deadline = self.clock.after(self.setup.model_patience);
            let judge = move || -> BoxFuture<'_, HandlerResult<Json<Result<RunChanges, Obstacle>>>> {
                Box::pin(async move { repeat_until(deadline, model.judge(&tree, subject).await) })
            };
            let policy = RunRetryPolicy::default().max_delay(MODEL_DELAY);
            match self.ctx.run(judge).name(name).retry_policy(policy).await {
                Ok(Json(Ok(changes))) => self.change(branch, &changes),
                Ok(Json(Err(obstacle))) => {
                    // Boxed, because it can judge the outcome of a call.
                    return Box::pin(self.obstruct(&branch.path, obstacle)).await;
                }
                Err(error) if is_cancellation(&error) => return Ok(Err(error)),
                Err(error) => match self.pause(error.message()).await? {
                    Ok(()) => continue,
                    cancelled => return Ok(cancelled),
                },
            }
            return Ok(Ok(()));
        }
    }

    /// Applies what a recorded step has changed in a run.
    pub(super) fn change(&mut self, branch: &Branch, changes: &RunChanges) {
        let changed = self.change_at(&branch.path, |run| run.apply_changes(changes));
        if changed.is_some_and(|changed| changed.is_err()) {
            self.fail("a recorded step is of another state of the run");
        }
    }

    /// Takes the next turns of runs that ask their models at the same time, in one recorded step.
    pub(super) async fn take_turns(
        &mut self,
        branches: &[Branch],
    ) -> HandlerResult<Result<(), TerminalError>> {
        self.publish_finished_calls();
        let mut names = Vec::new();
        for branch in branches {
            let Some(run) = self.run_at(&branch.path) else { return Ok(Ok(())) };
            let (turn, messages) = (run.turns() + 1, run.messages().len());
            let asked_by: String = branch.path.iter().map(|asked| format!("{}: ", asked.agent)).collect();
            names.push(format!("{asked_by}turn {turn}"));
            let handoffs: Vec<_> = run.handoffs().iter().map(|handoff| handoff.agent().to_owned()).collect();
            let known = std::mem::replace(&mut self.nodes[branch.node].handoffs, handoffs.len());
            for agent in handoffs.into_iter().skip(known) {
                self.publish(&branch.path, Event::handed_off(agent));
            }
            self.publish(&branch.path, Event::turn_started(turn, messages));
        }
        if let Err(error) = self.flush_events().await {
            return Ok(Err(error));
        }
        let (model, events) = (&self.setup.model, self.events.as_ref());
        let unfinished = Unfinished::default();
        let published = unfinished.clone();
        let (attempts, patience) = (self.setup.model_attempts, self.setup.model_patience);
        let mut first_limit: Option<(&[Asked], Duration)> = None;
        let mut turns = Vec::new();
        for branch in branches {
            let limit = self.time_limit(branch);
            // The driver of the run itself knows only its own limit.
            let around = limit.filter(|(depth, _)| *depth < branch.path.len()).map(|(_, left)| left);
            let limit = limit.map(|(depth, left)| (&branch.path[..depth], left));
            let limits = first_limit.into_iter().chain(limit.filter(|(_, left)| *left <= patience));
            first_limit = limits.min_by_key(|(_, left)| *left);
            turns.push((self.tree(&branch.path), around));
        }
        let deadline = self.clock.after(first_limit.map_or(patience, |(_, left)| left));
        // Boxed, because the compiler cannot prove for every lifetime that the future is `Send`.
        let take_turns = move || -> BoxFuture<'_, HandlerResult<Json<Vec<Option<TurnRecord>>>>> {
            Box::pin(async move {
                let taking =
                    turns.iter().map(|(tree, around)| model.take_turn(tree, events, &published, *around));
                let taken = join_all(taking).await;
                let has_one = taken.iter().any(Result::is_ok);
                let mut bytes = 0;
                // If only some of the models fail, these are asked again afterwards, and so are those whose replies are too large
                // together with the others.
                let records = taken.into_iter().map(|taken| match taken {
                    Err(error) if !has_one => Err(error),
                    taken => Ok(taken.ok().filter(|record| {
                        let size = limit::size(record);
                        let is_stored = bytes == 0 || bytes + size <= model.max_bytes;
                        bytes += if is_stored { size } else { 0 };
                        is_stored
                    })),
                });
                repeat_until(deadline, records.collect())
            })
        };
        let policy = RunRetryPolicy::default().max_delay(MODEL_DELAY);
        let policy = attempts.into_iter().fold(policy, RunRetryPolicy::max_attempts);
        let taken = self.ctx.run(take_turns).name(names.join(", ")).retry_policy(policy).await;
        unfinished.finish().await;
        match taken {
            Ok(Json(records)) => {
                for (branch, record) in branches.iter().zip(records) {
                    let Some(record) = record else { continue };
                    let applied = self.apply(branch, record).await?;
                    if applied.is_err() {
                        return Ok(applied);
                    }
                }
            }
            Err(error) if is_cancellation(&error) => return Ok(Err(error)),
            Err(error) if attempts.is_some() => self.fail(error.message()),
            Err(error) => match first_limit {
                Some((path, _)) => self.end_time(path),
                None => return self.pause(error.message()).await,
            },
        }
        Ok(Ok(()))
    }

    /// Applies a turn, and lets the layers judge calls that they have not judged in it.
    async fn apply(
        &mut self,
        branch: &Branch,
        record: TurnRecord,
    ) -> HandlerResult<Result<(), TerminalError>> {
        let TurnRecord { outcome, started, finished } = record;
        self.elapse(Some(&branch.path), started);
        let time_left = self.run_at(&branch.path).and_then(Run::time_left);
        let is_time_up = time_left.is_some_and(|left| left.is_zero());
        let mut applied = Ok(());
        let mut is_judged = true;
        match outcome {
            // The run has ended.
            Ok(_) if is_time_up => {}
            Ok(Taken { changes, reply, tools, offered, profile, is_unjudged }) => {
                is_judged = !is_unjudged;
                self.change(branch, &changes);
                profile.into_iter().for_each(|profile| self.nodes[branch.node].profile = profile);
                self.offer(branch, tools, offered);
                reply.into_iter().for_each(|reply| self.publish_reply(branch, *reply));
            }
            Err(obstacle) => applied = self.obstruct(&branch.path, obstacle).await?,
        }
        self.elapse(Some(&branch.path), finished);
        if applied.is_ok() && !is_judged {
            return self.judge(branch, "calls", Subject::Next).await;
        }
        Ok(applied)
    }

    /// Takes over the tools of the calls of this turn. A tool that was not offered this time is none, also if an earlier turn called it.
    fn offer(&mut self, branch: &Branch, tools: Vec<CalledTool>, offered: Vec<String>) {
        let Some(run) = self.run.inner_run_at(call_ids(&branch.path)) else { return };
        let node = &mut self.nodes[branch.node];
        run.current_calls().for_each(|(call, _)| drop(node.called.remove(&call.name)));
        for tool in tools {
            if let Some((undo, policy)) = &tool.undo {
                let key = (run.handoffs().len(), undo.clone());
                node.undoing.insert(key, (policy.clone(), tool.undo_hash.clone()));
            }
            node.called.insert(tool.name.clone(), tool);
        }
        node.offered = offered;
        let undoing = node.undoing.iter().filter(|((_, name), _)| !node.called.contains_key(name));
        let undoing =
            undoing.map(|((_, name), (policy, _))| ToolDefinition::new(&**name).with_policy(policy.clone()));
        node.definitions = node.called.values().map(CalledTool::definition).chain(undoing).collect();
    }

    /// Waits until an operator resumes the run.
    pub(super) async fn pause(&mut self, reason: &str) -> HandlerResult<Result<(), TerminalError>> {
        let reason = reason.to_owned();
        self.publish_finished_calls();
        self.publish(&[], Event::Failed(reason.clone()));
        self.begin_waiting(Vec::new(), Stop::Paused(reason));
        let resumed = match self.flush_events().await {
            Ok(()) => self.ctx.signal::<Json<Sent<()>>>(&resume_signal(self.round)).await,
            Err(error) => Err(error),
        };
        match resumed {
            Ok(Json(resumed)) => drop(self.clock.advance(resumed.at)),
            Err(error) if is_cancellation(&error) => return Ok(Err(error)),
            Err(error) => return Err(error.into()),
        }
        self.ctx.set(WAITING, Json(self.waiting_for(Vec::new())));
        // What waits for a person meanwhile is published again.
        self.waiting.clear();
        Ok(Ok(()))
    }
}
