//! The calls of the runs of a tree: starting, executing, judging and recording them.
//!
//! While an output is judged, the other calls in flight are driven, and the states of agents among them stored, because a layer can wait
//! for what they hold.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

use super::agent_call::AgentCall;
use super::call_in_flight::{Message, execute_call};
use super::review::OutputRuling;
use super::run_tree::{AgentNode, Calling, NodeId, OUTERMOST, Progress, RunTree};
use crate::model::ToolCall;
use crate::run::RunErrorKind;
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
            Message::Noted { call_id, .. } if !calls.in_flight.contains(&call_id) => Ok(None),
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
        // It can have been suspended before.
        if !calls.in_flight.contains(&execution.call().id) {
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
    pub(super) async fn judge(&mut self, id: NodeId, execution: ToolExecution) -> Result<(), RunErrorKind> {
        let is_alone = id == OUTERMOST && self.nodes.iter().flatten().all(|node| node.running.is_empty());
        let Some(Calling { driver, calls, running }) = self.calling(id) else { return Ok(()) };
        let (execution, ruling) = match driver.ruling_without_layers(&execution) {
            Some(ruling) => (execution, ruling),
            None if calls.is_judging => {
                calls.to_judge.push_back(execution);
                return Ok(());
            }
            None if is_alone => driver.judge_output(execution, &driver.run).await,
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
        calls.in_flight.end(&call_id);
        match driver.record_outcome(execution, ruling) {
            Err(why @ (RunErrorKind::Layer { .. } | RunErrorKind::Store(_))) => calls.suspend(&call_id, why),
            recorded => calls.events.extend(recorded?),
        }
        if !driver.run.has_open_call(&call_id) {
            calls.in_flight.forget(&call_id);
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
        if !calls.is_held(&driver.run) {
            return Ok(());
        }
        for call in self.in_flight().startable(&self.place(id)) {
            let Some(Calling { driver, calls, .. }) = self.calling(id) else { break };
            let attempt = driver.begin_attempt(&call)?;
            calls.in_flight.begin(&call.id);
            self.execute(id, call, attempt);
        }
        Ok(())
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
    pub(super) fn held(&mut self) -> Vec<NodeId> {
        let is_held = |run: Calling<'_>| run.calls.is_held(&run.driver.run);
        (0..self.nodes.len()).filter(|id| self.calling(*id).is_some_and(is_held)).collect()
    }
}
