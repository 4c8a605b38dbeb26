//! The turns of the model.
//!
//! `ctx.run` is no durable future, so models that are asked at once share a step. Each is asked with a copy of the run, which knows nothing
//! of what the others reserve, so with a `max_cost` they are asked one by one.

use futures_util::FutureExt;
use tool_core::engine::{EffectId, EffectResult, TurnTools};

use super::state::{Drive, DriveError, Driven};
use super::steps::take_step;
use crate::events::Unfinished;
use crate::tools::CalledTool;
use crate::turn::{Turn, TurnRecord};

impl<'c> Drive<'c> {
    /// Takes the next turns of runs that ask their models at the same time, in one recorded step.
    pub(super) async fn take_turns(&mut self, asking: &[EffectId]) -> Driven {
        let (mut names, mut turns) = (Vec::new(), Vec::new());
        for id in asking {
            let path = id.path();
            let Some(run) = self.run_at(path) else { continue };
            let turn = run.turns() + 1;
            let way = self.way(path);
            let asked_by: String = way.iter().map(|asked| format!("{}: ", asked.agent)).collect();
            names.push(format!("{asked_by}turn {turn}"));
            self.run.engine().note_asked_at(path);
            turns.push((id, way));
        }
        self.flush_events().await?;
        let (steps, events) = (&self.setup.steps, self.events.as_ref());
        let unfinished = Unfinished::default();
        let published = unfinished.clone();
        let (attempts, patience) = (self.setup.settings.model_attempts, self.setup.settings.model_patience);
        let limit = self.limit_of_step(asking.iter().map(|id| id.path().clone()));
        let trees: Vec<_> = turns.iter().map(|(_, way)| self.tree(way)).collect();
        let deadline = self.clock.after(limit.as_ref().map_or(patience, |(_, left)| *left));
        let take_turns = || async move { steps.take_turns(&trees, events, &published).await }.boxed();
        let taken = take_step(self.ctx, &names.join(", "), deadline, attempts, take_turns).await;
        unfinished.finish().await;
        match taken {
            Ok(records) => {
                let mut records: Vec<_> = turns.iter().zip(records).collect();
                // One that took longer does not count for the others.
                records.sort_by_key(|(_, record)| record.as_ref().map_or(0, |record| record.finished));
                let started = records.iter().filter_map(|(_, record)| Some(record.as_ref()?.started)).min();
                started.into_iter().for_each(|at| self.set_time(at));
                let late = self.without_time(asking);
                for ((id, _), record) in records {
                    match record {
                        // The run has ended.
                        Some(TurnRecord { outcome: Ok(_), .. }) if late.contains(id) => {
                            self.handle(id, EffectResult::Nothing);
                        }
                        Some(record) => self.apply_turn(id, record).await?,
                        None => self.handle(id, EffectResult::Cancelled),
                    }
                }
                Ok(())
            }
            Err(error) => {
                asking.iter().for_each(|id| self.handle(id, EffectResult::Cancelled));
                let DriveError::Failed(error) = error else { return Err(error) };
                match limit {
                    _ if attempts.is_some() => self.fail(error.message()),
                    Some((limited, _)) => self.run.engine().use_up_time_at(&limited),
                    None => self.pause(error.message()).await?,
                }
                Ok(())
            }
        }
    }

    /// Returns the effects of these whose runs have no time left.
    fn without_time(&self, ids: &[EffectId]) -> Vec<EffectId> {
        let is_up = |id: &&EffectId| self.run_at(id.path()).is_some_and(|run| run.engine_view().is_time_up());
        ids.iter().filter(is_up).cloned().collect()
    }

    /// Applies a turn.
    async fn apply_turn(&mut self, id: &EffectId, record: TurnRecord) -> Driven {
        let TurnRecord { outcome, finished, .. } = record;
        self.set_time(finished);
        match outcome {
            Ok(Turn { changes, tools, offered, deployed, sees }) => {
                let Some(node) = self.node_at(id.path()) else { return Ok(()) };
                deployed.into_iter().for_each(|deployed| node.deployed = deployed);
                node.offered = offered;
                let tools = TurnTools {
                    sees,
                    called: tools.iter().map(CalledTool::definition).collect(),
                    undoing: tools.iter().filter_map(CalledTool::undo_definition).collect(),
                    max_concurrent_calls: node.deployed.max_concurrent_calls,
                };
                self.handle(id, EffectResult::Asked(Box::new(changes), tools));
                self.refuse_secrets();
            }
            Err(obstacle) => return self.record_obstacle(id, obstacle).await,
        }
        Ok(())
    }
}
