//! The runs of the tree: the outermost one, and the runs of the agents that calls ask.
//!
//! The runs of agents as tools are parts of the state of the outermost run, and one invocation drives them all, because limits, waits and
//! undo then work on the tree without a second form. A recorded step resumes the outermost run and descends to the run that takes the step:
//! the call of each agent on the way returns its driver (`RunDriver::inside`) in place of waiting for it, so that layers, context and
//! settings are the same as in a run in one process.
//!
//! A call is executed elsewhere by the agent to which names lead from the outermost one: of tools that ask agents or hand off to them.

use std::time::Duration;

use restate_sdk::context::DurableFuture;
use restate_sdk::prelude::*;
use tool_core::ToolCall;
use tool_core::model::ToolKind;
use tool_core::run::{Profile, Run};
use tool_core::tool::{ToolError, ToolExecution};

use super::state::{Arrived, Branch, Drive, Driven, Executor, Node};
use crate::path::{Asked, agent_names, call_ids};
use crate::step::{AgentStep, Obstacle, Started, Tree};

impl<'c> Drive<'c> {
    /// Returns the run to which the path leads, unless it has ended.
    pub(super) fn run_at(&self, path: &[Asked]) -> Option<&Run> {
        self.run.inner_run_at(call_ids(path))
    }

    /// Changes the run to which the path leads. Does nothing if it has ended.
    pub(super) fn change_at<T>(&mut self, path: &[Asked], change: impl FnOnce(&mut Run) -> T) -> Option<T> {
        self.run.change_inner_run_at(&call_ids(path), change)
    }

    pub(super) fn tree<'t>(&'t self, path: &'t [Asked]) -> Tree<'t> {
        let (started_with, context) = (&self.started_with, &self.context);
        Tree { outermost: &self.run, path, started_with, context }
    }

    /// Returns the calls of a run that can start now, unless layers have to judge them first.
    pub(super) fn startable(&self, branch: &Branch) -> Vec<ToolCall> {
        let startable = self.run.startable_tree().into_iter();
        let mut own = startable.filter(|(place, _)| *place == call_ids(&branch.path));
        own.next().map(|(_, calls)| calls).unwrap_or_default()
    }

    /// Returns `true` if the call asks an agent, or undoes the calls of one.
    pub(super) fn asks_agent(&self, branch: &Branch, call: &ToolCall) -> bool {
        self.run_at(&branch.path).is_some_and(|run| run.asks_agent(&call.id))
    }

    pub(super) fn kind(&self, branch: &Branch, call: &ToolCall) -> Option<ToolKind> {
        self.run_at(&branch.path)?.kind_of(&call.id)
    }

    /// Starts a call that asks an agent, after the delay of its attempt.
    pub(super) async fn start_agent(&mut self, outer: &Branch, call: ToolCall) -> Driven {
        let Some(attempt) = self.begin_call(outer, &call) else { return Ok(()) };
        let delay = attempt.delay();
        if delay.is_zero() {
            return self.add_agent(outer, call).await;
        }
        let timer = self.ctx.sleep(delay).map_ok(|()| Arrived::Delayed);
        self.await_call(outer, call, Executor::Delay, Box::pin(timer));
        Ok(())
    }

    /// Drives the run of the agent that a started call asks, too.
    pub(super) async fn add_agent(&mut self, outer: &Branch, call: ToolCall) -> Driven {
        let branch = Branch { path: inside(outer, &call), node: self.nodes.len() };
        let Some(run) = self.run_at(&branch.path) else {
            return self.ask_agent(&branch, "start", None).await;
        };
        // Its calls are undone.
        let id = run.id().to_string();
        if let Some(node) = self.nodes.iter().position(|node| node.id == id) {
            self.branches.push(Branch { node, ..branch });
        }
        Ok(())
    }

    /// Ends a call whose agent's run is done, unless its answer is rejected.
    pub(super) async fn finish_agent(&mut self, branch: &Branch) -> Driven {
        let since = self.nodes[branch.node].since;
        self.ask_agent(branch, "end", Some(since)).await
    }

    /// Takes the first or the last step of an agent's run.
    async fn ask_agent(&mut self, branch: &Branch, step: &str, since: Option<u64>) -> Driven {
        let Some((asked, outer)) = branch.path.split_last() else { return Ok(()) };
        let name = format!("{step} of {}", agent_names(&branch.path).join("/"));
        let asked_agent =
            self.step(&branch.path, &name, |steps, tree| Box::pin(steps.ask_agent(tree, since)));
        let Some(asked_agent) = asked_agent.await? else { return Ok(()) };
        match asked_agent {
            Ok(AgentStep::Started(started)) => {
                let Started { mut run, deployed, at, has_own_limits } = *started;
                run.set_profile(Profile::new(deployed.max_concurrent_calls));
                self.nodes.push(Node::new(&run, deployed, at));
                let call = ToolCall::new(&*asked.call, &*asked.agent, "");
                let added = self.change_at(outer, |outer| outer.add_inner_run(&call, has_own_limits, run));
                if added.is_none_or(|added| added.is_err()) {
                    self.fail("a recorded step is of another state of the run");
                }
                self.branches.push(branch.clone());
                self.set_time(Some(outer), at);
                Ok(())
            }
            Ok(AgentStep::Rejected(changes)) => {
                self.apply_changes(branch, &changes);
                Ok(())
            }
            // The run undoes its calls already, and the agent's calls are undone.
            Err(Obstacle::Refused(reason)) if self.run.is_undoing() => {
                let call = ToolCall::new(&*asked.call, &*asked.agent, "");
                let execution = ToolExecution::new(call, Err(ToolError::failed(reason)));
                self.record_obstacle(&branch.path, Obstacle::Ended(outer.len(), execution.into())).await
            }
            Err(obstacle) => self.record_obstacle(&branch.path, obstacle).await,
        }
    }

    /// Records why a step of a run cannot be taken.
    pub(super) async fn record_obstacle(&mut self, path: &[Asked], obstacle: Obstacle) -> Driven {
        let (depth, execution) = match obstacle {
            Obstacle::Ended(depth, execution) if depth < path.len() => (depth, execution),
            Obstacle::Ended(..) => return Ok(()),
            Obstacle::Refused(reason) => {
                self.fail(reason);
                return Ok(());
            }
            // What its calls have done stays.
            Obstacle::Unpaid(reason) => return self.pause(&reason).await,
        };
        self.publish_finished_calls();
        self.branches.retain(|one| !one.path.starts_with(&path[..=depth]));
        let Some(outer) = self.branches.iter().find(|one| one.path == path[..depth]).cloned() else {
            return Ok(());
        };
        self.judge_and_record(&outer, *execution).await
    }

    /// Sets the time, which has passed for the runs with calls in flight, and for the one to which `busy` leads.
    pub(super) fn set_time(&mut self, busy: Option<&[Asked]>, at: u64) {
        let passed = self.clock.advance(at);
        self.run.advance(passed, busy.map(call_ids).as_deref());
        self.tick();
    }

    /// Returns the time that the first of these runs has left, and the calls that lead to the run around it, or to itself, whose time that is, if
    /// it is up before the worker gives up.
    pub(super) fn limit_of_step<'p>(
        &self,
        paths: impl IntoIterator<Item = &'p [Asked]>,
    ) -> Option<(Vec<String>, Duration)> {
        let limits = paths.into_iter().filter_map(|path| self.run.limit_at(&call_ids(path)));
        let patience = self.setup.settings.model_patience;
        limits.filter(|(_, left)| *left <= patience).min_by_key(|(_, left)| *left)
    }

    /// Ends the run to which these calls lead, because a step of it, or inside, has taken the time that was left.
    pub(super) fn end_by_time(&mut self, place: &[String]) {
        self.run.use_up_time_at(&place.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// Returns the path to the run that a call of this run asks for.
fn inside(branch: &Branch, call: &ToolCall) -> Vec<Asked> {
    let mut path = branch.path.clone();
    path.push(Asked { call: call.id.clone(), agent: call.name.clone() });
    path
}
