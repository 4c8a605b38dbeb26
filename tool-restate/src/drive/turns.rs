//! The turns of the model.
//!
//! `ctx.run` is no durable future, so models that are asked at once share a step. Each is asked with a copy of the run, which knows nothing
//! of what the others reserve, so with a `max_cost` they are asked one by one.

use futures_util::FutureExt;
use tool_core::Event;
use tool_core::run::{Profile, Run, Sees};

use super::state::{Branch, Drive, DriveError, Driven};
use super::steps::take_step;
use crate::events::Unfinished;
use crate::tools::CalledTool;
use crate::turn::{Turn, TurnRecord};

impl<'c> Drive<'c> {
    /// Takes the next turns of runs that ask their models at the same time, in one recorded step.
    pub(super) async fn take_turns(&mut self, branches: &[Branch]) -> Driven {
        self.publish_finished_calls();
        let mut names = Vec::new();
        for branch in branches {
            let Some(run) = self.run_at(&branch.path) else { return Ok(()) };
            let (turn, messages) = (run.turns() + 1, run.messages().len());
            let asked_by: String = branch.path.iter().map(|asked| format!("{}: ", asked.agent)).collect();
            names.push(format!("{asked_by}turn {turn}"));
            let handoffs: Vec<_> = run.handoffs().iter().map(|handoff| handoff.agent().to_owned()).collect();
            let known = std::mem::replace(&mut self.nodes[branch.node].handoffs, handoffs.len());
            for agent in handoffs.into_iter().skip(known) {
                self.publish(&branch.path, Event::handed_off(agent));
            }
            if std::mem::replace(&mut self.nodes[branch.node].announced_turn, turn) != turn {
                self.publish(&branch.path, Event::turn_started(turn, messages));
            }
        }
        self.flush_events().await?;
        let (steps, events) = (&self.setup.steps, self.events.as_ref());
        let unfinished = Unfinished::default();
        let published = unfinished.clone();
        let (attempts, patience) = (self.setup.settings.model_attempts, self.setup.settings.model_patience);
        let limit = self.limit_of_step(branches.iter().map(|branch| &*branch.path));
        let turns: Vec<_> = branches.iter().map(|branch| self.tree(&branch.path)).collect();
        let deadline = self.clock.after(limit.as_ref().map_or(patience, |(_, left)| *left));
        let take_turns = || async move { steps.take_turns(&turns, events, &published).await }.boxed();
        let taken = take_step(self.ctx, &names.join(", "), deadline, attempts, take_turns).await;
        unfinished.finish().await;
        match taken {
            Ok(records) => {
                for (branch, record) in branches.iter().zip(records) {
                    if let Some(record) = record {
                        self.apply_turn(branch, record).await?;
                    }
                }
                Ok(())
            }
            Err(DriveError::Cancelled) => Err(DriveError::Cancelled),
            Err(DriveError::Failed(error)) => {
                match limit {
                    _ if attempts.is_some() => self.fail(error.message()),
                    Some((place, _)) => self.end_by_time(&place),
                    None => self.pause(error.message()).await?,
                }
                Ok(())
            }
        }
    }

    /// Applies a turn.
    async fn apply_turn(&mut self, branch: &Branch, record: TurnRecord) -> Driven {
        let TurnRecord { outcome, started, finished } = record;
        self.set_time(Some(&branch.path), started);
        let is_time_up = self.run_at(&branch.path).is_some_and(Run::is_time_up);
        let mut applied = Ok(());
        match outcome {
            // The run has ended.
            Ok(_) if is_time_up => {}
            Ok(Turn { changes, reply, tools, offered, deployed, sees, events }) => {
                self.unpublished.extend(events);
                self.apply_changes(branch, &changes);
                self.refuse_secrets();
                deployed.into_iter().for_each(|deployed| self.nodes[branch.node].deployed = deployed);
                self.set_profile(branch, sees, tools, offered);
                self.set_recorded(branch, false);
                reply.into_iter().for_each(|reply| self.publish_reply(branch, *reply));
            }
            Err(obstacle) => applied = self.record_obstacle(&branch.path, obstacle).await,
        }
        self.set_time(Some(&branch.path), finished);
        applied
    }

    /// Takes over what this turn has of its agent. A tool that was not offered this time is none, also if an earlier turn called it.
    fn set_profile(&mut self, branch: &Branch, sees: Sees, tools: Vec<CalledTool>, offered: Vec<String>) {
        let node = &mut self.nodes[branch.node];
        node.offered = offered;
        let max_concurrent_calls = node.deployed.max_concurrent_calls;
        self.change_at(&branch.path, |run| {
            let is_called = |name: &str| run.current_calls().any(|(call, _)| call.name == name);
            let known = run.profile().into_iter().flat_map(|profile| profile.called.iter());
            let earlier = known.filter(|one| !is_called(one.name())).cloned();
            let called = earlier.chain(tools.iter().map(CalledTool::definition)).collect();
            let mut undoing = run.profile().map(|profile| profile.undoing.clone()).unwrap_or_default();
            let undo = tools.iter().filter_map(CalledTool::undo_definition);
            undoing.extend(undo.map(|undo| ((run.handoffs().len(), undo.name().to_owned()), undo)));
            run.set_profile(Profile { sees, called, undoing, max_concurrent_calls });
        });
    }
}
