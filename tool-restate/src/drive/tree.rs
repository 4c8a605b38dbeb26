//! The runs of the tree: the outermost one, and the runs of the agents that calls ask.
//!
//! The runs of agents as tools are parts of the state of the outermost run, and one invocation drives them all, because limits, waits and
//! undo then work on the tree without a second form. A recorded step resumes the outermost run and descends to the run that takes the step:
//! the driver of each run on the way returns the driver of the run inside (`RunDriver::descend`), so that layers, context and
//! settings are the same as in a run in one process.
//!
//! A call is executed elsewhere by the agent to which names lead from the outermost one: of tools that ask agents or hand off to them.

use std::time::Duration;

use restate_sdk::context::DurableFuture;
use restate_sdk::prelude::*;
use tool_core::ToolCall;
use tool_core::engine::{AgentProfile, EffectId, EffectResult, RunPath};
use tool_core::run::Run;
use tool_core::tool::{Attempt, ToolError, ToolExecution};

use super::state::{Arrived, Drive, Driven, Executor, Node};
use crate::clock::finished_at;
use crate::path::{Asked, agent_names};
use crate::step::{Obstacle, Started, Tree, agent_panicked};

impl<'c> Drive<'c> {
    /// Returns the run to which the path leads, unless it has ended.
    pub(super) fn run_at(&self, path: &RunPath) -> Option<&Run> {
        self.run.engine_view().inner_run_at(path.calls())
    }

    /// Returns what is known about a run.
    pub(super) fn node_at(&mut self, path: &RunPath) -> Option<&mut Node> {
        let id = self.run.engine_view().inner_run_at(path.calls())?.id().as_str();
        self.nodes.get_mut(id)
    }

    /// Returns the calls that lead to a run, with the names of the tools.
    pub(super) fn way(&self, path: &RunPath) -> Vec<Asked> {
        let names = self.run.engine_view().names_to(path);
        let calls = path.calls().into_iter().zip(names);
        calls.map(|(call, agent)| Asked { call: call.to_owned(), agent }).collect()
    }

    pub(super) fn tree<'t>(&'t self, path: &'t [Asked]) -> Tree<'t> {
        Tree { outermost: &self.run, path, started_with: &self.started_with, context: &self.context }
    }

    /// Begins the run of an agent after the delay of the attempt of its call.
    pub(super) async fn start_agent(&mut self, id: EffectId, call: ToolCall, attempt: &Attempt) -> Driven {
        let delay = attempt.delay();
        if delay.is_zero() {
            return self.begin_agent(&id, &call).await;
        }
        let timer = self.ctx.sleep(delay).map_ok(|()| Arrived::Delayed);
        self.await_call(id, call, Executor::Delay, Box::pin(timer));
        Ok(())
    }

    /// Begins the run of the agent that a call asks.
    pub(super) async fn begin_agent(&mut self, id: &EffectId, call: &ToolCall) -> Driven {
        if self.run_at(&id.path().inside(&call.id)).is_some() {
            // Its calls are undone.
            self.handle(id, EffectResult::Nothing);
            return Ok(());
        }
        let mut way = self.way(id.path());
        way.push(Asked { call: call.id.clone(), agent: call.name.clone() });
        let name = format!("start of {}", agent_names(&way).join("/"));
        let begun = self.step(&way, &name, |steps, tree| Box::pin(steps.begin_agent(tree))).await?;
        let Some(started) = self.agent_step(id, &way, begun).await? else { return Ok(()) };
        let Started { run, deployed, at, has_own_limits, waiting } = *started;
        let profile = AgentProfile::new(deployed.max_concurrent_calls);
        self.nodes.insert(run.id().to_string(), Node::new(deployed));
        let run = Box::new(run);
        self.set_time(at);
        self.handle(id, EffectResult::Began { run, waiting, profile, has_own_limits });
        Ok(())
    }

    /// Ends a call whose agent's run is done, unless its answer is rejected.
    pub(super) async fn finish_agent(&mut self, id: &EffectId) -> Driven {
        let way = self.way(id.path());
        if let Some(panicked) = self.run.engine_view().outcome_of_panic(id.path()) {
            return self.record_obstacle(id, Obstacle::Ended(way.len() - 1, panicked.into())).await;
        }
        let name = format!("end of {}", agent_names(&way).join("/"));
        let ended = self.step(&way, &name, |steps, tree| Box::pin(steps.end_agent(tree))).await?;
        if let Some(rejected) = self.agent_step(id, &way, ended).await? {
            self.handle(id, EffectResult::Changed(rejected.into()));
        }
        Ok(())
    }

    /// Returns what the first or the last step of an agent's run has changed, or records why it has changed nothing.
    async fn agent_step<T>(
        &mut self,
        id: &EffectId,
        way: &[Asked],
        taken: Option<Result<T, Obstacle>>,
    ) -> Driven<Option<T>> {
        let Some((asked, outer)) = way.split_last() else { return Ok(None) };
        match taken {
            None => self.handle(id, EffectResult::Nothing),
            Some(Ok(changed)) => return Ok(Some(changed)),
            Some(Err(Obstacle::Panicked(text))) => self.handle(id, EffectResult::Panicked(text)),
            // The run undoes its calls already, and the agent's calls are undone.
            Some(Err(Obstacle::Refused(reason))) if self.run.is_undoing() => {
                let call = ToolCall::new(&*asked.call, &*asked.agent, "");
                let execution = ToolExecution::new(call, Err(ToolError::failed(reason)));
                self.record_obstacle(id, Obstacle::Ended(outer.len(), execution.into())).await?;
            }
            Some(Err(obstacle)) => self.record_obstacle(id, obstacle).await?,
        }
        Ok(None)
    }

    /// Records why a step of a run cannot be taken.
    pub(super) async fn record_obstacle(&mut self, id: &EffectId, obstacle: Obstacle) -> Driven {
        match obstacle {
            Obstacle::Ended(depth, execution) => {
                finished_at(&execution).into_iter().for_each(|at| self.set_time(at));
                self.handle(id, EffectResult::Ended(depth, execution));
                Ok(())
            }
            Obstacle::Refused(reason) => {
                self.handle(id, EffectResult::Nothing);
                self.fail(reason);
                Ok(())
            }
            Obstacle::Panicked(text) => {
                self.handle(id, EffectResult::Panicked(text.clone()));
                if self.run.engine_view().panic().is_some() {
                    self.fail(agent_panicked(&text));
                }
                Ok(())
            }
            // What its calls have done stays.
            Obstacle::Unpaid(reason) => {
                let paused = self.pause(&reason).await;
                self.handle(id, EffectResult::Cancelled);
                paused
            }
        }
    }

    /// Sets the time, before what has happened by then is handled.
    pub(super) fn set_time(&mut self, at: u64) {
        let passed = self.clock.advance(at);
        self.run.engine().advance(passed);
        self.tick();
    }

    /// Returns the run whose time is up first, of these and those around, with the time that it has left, if it is up before the worker gives up.
    pub(super) fn limit_of_step(
        &self,
        paths: impl IntoIterator<Item = RunPath>,
    ) -> Option<(RunPath, Duration)> {
        let limits = paths.into_iter().filter_map(|path| self.run.engine_view().limit_at(&path));
        let patience = self.setup.settings.model_patience;
        limits.filter(|(_, left)| *left <= patience).min_by_key(|(_, left)| *left)
    }
}
