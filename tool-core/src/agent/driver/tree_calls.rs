//! The calls of the runs of a tree: starting, executing, judging and recording them.
//!
//! While an output is judged, the other calls in flight are driven, and the states of agents among them stored, because a layer can wait
//! for what they hold.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::agent_call::AgentCall;
use super::call_in_flight::{Message, execute_call};
use super::open_calls::Executing;
use super::review::OutputRuling;
use super::run_tree::{AgentNode, Calling, Node, NodeId, OUTERMOST, Progress, RunTree};
use crate::model::ToolCall;
use crate::run::{RunErrorKind, TreeInFlight};
use crate::tool::{Attempt, ToolError, ToolExecution};

impl RunTree<'_> {
    /// Accepts what a call in flight needs. Returns the run that has changed.
    pub(super) async fn accept(
        &mut self,
        id: NodeId,
        message: Message,
    ) -> Result<Option<NodeId>, RunErrorKind> {
        // The run may have stopped meanwhile.
        let Some(Calling { driver, calls, .. }) = self.calling(id) else { return Ok(None) };
        match message {
            // A call can have left a task that records something after its end.
            Message::Noted { call_id, .. } if !calls.is_in_flight(&call_id) => Ok(None),
            Message::Noted { call_id, notes, noted } => {
                driver.change_run().record_notes(&call_id, notes).map_err(RunErrorKind::Step)?;
                driver.update_elapsed();
                if calls.has_ended(&driver.run) {
                    return Ok(Some(id));
                }
                let stopped = self.save(id).await?;
                if stopped.is_none() {
                    // The call may have been dropped meanwhile.
                    let _ = noted.send(());
                }
                Ok(stopped)
            }
            Message::Asked(asked_by) => {
                let agent_call = AgentCall {
                    context: asked_by.context.clone(),
                    ..driver.agent_call(&calls.executor, &asked_by.call)
                };
                let tool = calls.executor.agent_of(&asked_by.call);
                let asked = match (agent_call.is_too_deep(), tool) {
                    (Some(error), _) => Err(error),
                    (None, None) => Err(ToolError::interrupted()),
                    (None, Some(tool)) => Ok(agent_call.begin(tool, asked_by.question.clone())),
                };
                match asked {
                    Ok(asked) => self.add(AgentNode {
                        outer: id,
                        asked_by: *asked_by,
                        asked: Some(Box::new(asked)),
                        panic: None,
                    }),
                    Err(error) => drop(asked_by.answer.send(Err(error))),
                }
                Ok(None)
            }
        }
    }

    /// Ends a call that was executed, or waits.
    pub(super) async fn end_call(
        &mut self,
        id: NodeId,
        execution: ToolExecution,
    ) -> Result<(), RunErrorKind> {
        let Some(Calling { driver, calls, .. }) = self.calling(id) else { return Ok(()) };
        if !calls.end_execution(&execution.call().id) {
            return Ok(());
        }
        if execution.is_waiting() {
            calls.suspend(&execution.call().id, RunErrorKind::Waiting);
            return driver.change_run().record_result(execution).map_err(RunErrorKind::Step);
        }
        self.judge(id, execution).await
    }

    /// Lets the layers judge the outcome of a call, and records it. They judge one at a time, while the other calls continue: a layer can
    /// wait for something that one of them holds.
    pub(super) async fn judge(
        &mut self,
        id: NodeId,
        mut execution: ToolExecution,
    ) -> Result<(), RunErrorKind> {
        let is_alone = id == OUTERMOST && self.nodes.iter().flatten().all(|node| node.running.is_empty());
        let Some(Calling { driver, calls, running }) = self.calling(id) else { return Ok(()) };
        let ruling = match driver.ruling_without_layers(&execution) {
            Some(ruling) => ruling,
            None if calls.is_judging => {
                calls.to_judge.push_back(execution);
                return Ok(());
            }
            None if is_alone => driver.ask_about_output(&mut execution, &driver.run).await,
            None => {
                calls.is_judging = true;
                // The run changes meanwhile.
                let judged = driver.judge_output(execution, driver.run.clone());
                running.push(judged.map(|judged| Progress::Judged(Box::new(judged))).boxed());
                return Ok(());
            }
        };
        self.record_outcome(id, execution, ruling)
    }

    pub(super) fn record_outcome(
        &mut self,
        id: NodeId,
        execution: ToolExecution,
        ruling: OutputRuling,
    ) -> Result<(), RunErrorKind> {
        let Some(Calling { driver, calls, .. }) = self.calling(id) else { return Ok(()) };
        calls.is_judging = false;
        let call_id = execution.call().id.clone();
        calls.end(&call_id);
        match driver.record_outcome(execution, ruling) {
            Err(why @ (RunErrorKind::Layer { .. } | RunErrorKind::Store(_))) => calls.suspend(&call_id, why),
            recorded => calls.events.extend(recorded?),
        }
        Ok(())
    }

    /// Starts the calls of a run that can start now, and lets the layers judge the next outcome. The calls of a run that has stopped end.
    pub(super) fn start(&mut self, id: NodeId) -> Result<(), RunErrorKind> {
        let Some(Calling { driver, calls, .. }) = self.calling(id) else { return Ok(()) };
        if calls.has_ended(&driver.run) {
            self.end_calls(id);
            return Ok(());
        }
        (calls.is_held, calls.holds_exclusive) = (false, false);
        let startable = calls.startable(&driver.run);
        if startable.is_empty() {
            return Ok(());
        }
        let (place, in_flight, exclusive_agents) =
            (self.place(id), self.in_flight(), self.exclusive_agents());
        let in_flight = TreeInFlight::new(in_flight, exclusive_agents.iter().map(Vec::as_slice))
            .with_exclusive_awaited(self.holds_exclusive(id));
        for call in startable {
            let Some(Calling { driver, calls, .. }) = self.calling(id) else { break };
            let is_exclusive = driver.run.is_exclusive(&call.id);
            let asks_agent = calls.executor.agent_of(&call).is_some();
            if !in_flight.leaves_room(&place, is_exclusive, asks_agent) {
                calls.is_held = true;
                calls.holds_exclusive |= is_exclusive;
                continue;
            }
            let attempt = driver.begin_attempt(&call)?;
            calls.begin(&call, is_exclusive);
            self.execute(id, call, attempt);
        }
        Ok(())
    }

    /// Returns `true` if another run has an exclusive call that cannot start yet.
    fn holds_exclusive(&self, id: NodeId) -> bool {
        let others = self.nodes.iter().enumerate().filter(|(other, _)| *other != id);
        let mut calls = others.filter_map(|(_, node)| node.as_ref()?.calls.as_ref());
        calls.any(|calls| calls.holds_exclusive)
    }

    /// Returns the calls that lead to a run.
    fn place(&self, id: NodeId) -> Vec<String> {
        let mut place = Vec::new();
        let mut node = self.nodes[id].as_ref();
        while let Some(Node { agent: Some(agent), .. }) = node {
            place.push(agent.asked_by.call.id.clone());
            node = self.nodes[agent.outer].as_ref();
        }
        place.reverse();
        place
    }

    fn executing(&self) -> impl Iterator<Item = (NodeId, &Executing)> {
        let calls =
            self.nodes.iter().enumerate().filter_map(|(id, node)| Some((id, node.as_ref()?.calls.as_ref()?)));
        calls.flat_map(|(id, calls)| calls.executing().iter().map(move |call| (id, call)))
    }

    /// Returns for each call in flight that asks no agent whether it is exclusive.
    fn in_flight(&self) -> Vec<bool> {
        self.executing().filter(|(_, call)| !call.asks_agent).map(|(_, call)| call.is_exclusive).collect()
    }

    /// Returns the places of the exclusive agents at work.
    fn exclusive_agents(&self) -> Vec<Vec<String>> {
        let exclusive = self.executing().filter(|(_, call)| call.asks_agent && call.is_exclusive);
        exclusive
            .map(|(outer, call)| {
                let mut place = self.place(outer);
                place.push(call.id.clone());
                place
            })
            .collect()
    }

    /// Executes a call that was started.
    pub(super) fn execute(&mut self, id: NodeId, call: ToolCall, attempt: Attempt) {
        let sender = self.sender.clone();
        let Some(Calling { driver, calls, running }) = self.calling(id) else { return };
        let executed = execute_call(&driver.run, &calls.executor, call, attempt, (sender, id));
        let executed = match id {
            OUTERMOST => executed.map(|execution| Progress::Executed(Box::new(execution))).boxed(),
            _ => {
                let executed = AssertUnwindSafe(executed).catch_unwind();
                let ended = |execution| Progress::Executed(Box::new(execution));
                executed.map(move |executed| executed.map_or_else(Progress::Panicked, ended)).boxed()
            }
        };
        running.push(executed);
    }

    /// Returns the runs with calls that others hold back.
    pub(super) fn held(&self) -> Vec<NodeId> {
        let nodes = self.nodes.iter().enumerate();
        let is_held = |node: &Node| node.calls.as_ref().is_some_and(|calls| calls.is_held);
        nodes.filter(|(_, node)| node.as_ref().is_some_and(is_held)).map(|(id, _)| id).collect()
    }
}
