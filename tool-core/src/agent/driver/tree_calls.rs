//! The calls of the runs of a tree: starting, executing, judging and recording them.
//!
//! While an output is judged, the other calls in flight are driven, and the states of agents among them stored, because a layer can wait
//! for what they hold.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::call_in_flight::{Executed, Noted, execute_call};
use super::review::OutputRuling;
use super::run_tree::{AgentNode, Calling, NodeId, OUTERMOST, Progress, RunTree};
use crate::agent::executor::AskedCall;
use crate::model::ToolCall;
use crate::run::RunErrorKind;
use crate::tool::{Attempt, CallNotes, Outcome, ToolExecution};

impl RunTree<'_> {
    /// Records the notes of a call in flight. Returns the run that has changed.
    pub(super) async fn record_notes(
        &mut self,
        id: NodeId,
        noted: Noted,
    ) -> Result<Option<NodeId>, RunErrorKind> {
        let Noted { call_id, notes, noted } = noted;
        // The run may have stopped meanwhile.
        let Some(Calling { mut driver, calls, .. }) = self.calling(id) else { return Ok(None) };
        // A call can have left a task that records something after its end.
        if !driver.run.is_in_flight(&call_id) {
            return Ok(None);
        }
        driver.change_run().record_notes(&call_id, notes).map_err(RunErrorKind::Step)?;
        driver.update_elapsed();
        if calls.has_ended(&driver.run) {
            return Ok(Some(id));
        }
        drop(driver);
        let stopped = self.save(id).await?;
        if stopped.is_none() {
            // The call may have been dropped meanwhile.
            let _ = noted.send(());
        }
        Ok(stopped)
    }

    /// Begins the run of the agent that a call has asked, or goes on with it. Returns the run that has changed.
    pub(super) fn begin_agent(
        &mut self,
        id: NodeId,
        question: String,
        asked_by: AskedCall,
    ) -> Result<Option<NodeId>, RunErrorKind> {
        let Some(Calling { mut driver, calls, .. }) = self.calling(id) else { return Ok(None) };
        if !driver.run.is_in_flight(&asked_by.call.id) {
            // The run has stopped meanwhile.
            return Ok(Some(id));
        }
        let asked = driver.ask_agent_inside(&calls.executor, &asked_by.call, question);
        if asked.is_ok() {
            let notes = CallNotes::of_agent(asked_by.note.clone());
            driver.change_run().record_notes(&asked_by.call.id, notes).map_err(RunErrorKind::Step)?;
        }
        drop(driver);
        match asked {
            Ok(asked) => {
                self.add(AgentNode {
                    outer: id,
                    asked_by,
                    asked: Box::new(asked),
                    output: None,
                    panic: None,
                });
            }
            Err(error) => self.answer(id, asked_by, Err(error)),
        }
        Ok(None)
    }

    /// Executes a call again with the answer of the agent that it has asked.
    pub(super) fn answer(&mut self, id: NodeId, asked_by: AskedCall, answer: Outcome) {
        let Some(Calling { calls, running, .. }) = self.calling(id) else { return };
        let executor = Arc::clone(&calls.executor);
        let answered = async move { Ok(executor.answer(asked_by, answer).await) };
        running.push(contained(id, answered.boxed()));
    }

    /// Ends a call that was executed, or waits.
    pub(super) async fn end_call(
        &mut self,
        id: NodeId,
        execution: ToolExecution,
    ) -> Result<(), RunErrorKind> {
        let Some(Calling { mut driver, calls, .. }) = self.calling(id) else { return Ok(()) };
        // It can have been suspended before.
        if !driver.run.is_in_flight(&execution.call().id) {
            return Ok(());
        }
        if execution.is_waiting() {
            let call_id = execution.call().id.clone();
            driver.change_run().record_result(execution).map_err(RunErrorKind::Step)?;
            calls.suspend(&mut driver.run, &call_id, RunErrorKind::Waiting);
            return Ok(());
        }
        drop(driver);
        self.judge(id, execution).await
    }

    /// Lets the layers judge the outcome of a call, and records it. They judge one at a time, while the other calls continue: a layer can
    /// wait for something that one of them holds.
    pub(super) async fn judge(&mut self, id: NodeId, execution: ToolExecution) -> Result<(), RunErrorKind> {
        let is_alone = id == OUTERMOST && self.nodes.iter().flatten().all(|node| node.running.is_empty());
        let Some(Calling { driver, calls, running }) = self.calling(id) else { return Ok(()) };
        let judging = match driver.ruling_without_layers(&execution) {
            Some(ruling) => {
                drop(driver);
                return self.record_outcome(id, execution, ruling);
            }
            None if calls.is_judging => {
                calls.to_judge.push_back(execution);
                return Ok(());
            }
            None => driver.judge_output(execution),
        };
        if !is_alone {
            calls.is_judging = true;
            running.push(judging.map(|judged| Progress::Judged(Box::new(judged))).boxed());
            return Ok(());
        }
        drop(driver);
        let (execution, ruling) = judging.await;
        self.record_outcome(id, execution, ruling)
    }

    pub(super) fn record_outcome(
        &mut self,
        id: NodeId,
        execution: ToolExecution,
        ruling: OutputRuling,
    ) -> Result<(), RunErrorKind> {
        let Some(Calling { mut driver, calls, .. }) = self.calling(id) else { return Ok(()) };
        calls.is_judging = false;
        let call_id = execution.call().id.clone();
        match driver.record_outcome(execution, ruling) {
            Err(why @ (RunErrorKind::Layer { .. } | RunErrorKind::Store(_))) => {
                calls.suspend(&mut driver.run, &call_id, why);
            }
            recorded => calls.events.extend(recorded?),
        }
        Ok(())
    }

    /// Starts the calls of a run that can start now, and lets the layers judge the next outcome. The calls of a run that has stopped end.
    pub(super) fn start(&mut self, id: NodeId) -> Result<(), RunErrorKind> {
        let Some(Calling { driver, calls, .. }) = self.calling(id) else { return Ok(()) };
        let (has_ended, is_held) = (calls.has_ended(&driver.run), calls.is_held(&driver.run));
        drop(driver);
        if has_ended {
            self.end_calls(id);
            return Ok(());
        }
        if !is_held {
            return Ok(());
        }
        for call in self.startable(id) {
            let Some(Calling { mut driver, .. }) = self.calling(id) else { break };
            let attempt = driver.begin_attempt(&call)?;
            driver.run.set_executing(&call.id);
            drop(driver);
            self.execute(id, call, attempt);
        }
        Ok(())
    }

    /// Executes a call that was started.
    pub(super) fn execute(&mut self, id: NodeId, call: ToolCall, attempt: Attempt) {
        let sender = self.sender.clone();
        let Some(Calling { driver, calls, running }) = self.calling(id) else { return };
        let executed = execute_call(&driver.run, &calls.executor, call, attempt, (sender, id));
        running.push(contained(id, executed));
    }
}

/// Reports what a call has come to, and a panic in a run of an agent; one in the outermost run is the caller's.
fn contained(id: NodeId, executed: BoxFuture<'static, Executed>) -> BoxFuture<'static, Progress> {
    let executed = executed.map(|executed| match executed {
        Ok(execution) => Progress::Executed(Box::new(execution)),
        Err((question, asked)) => Progress::Asked(question, asked),
    });
    match id {
        OUTERMOST => executed.boxed(),
        _ => {
            let executed = AssertUnwindSafe(executed).catch_unwind();
            executed.map(|executed| executed.unwrap_or_else(Progress::Panicked)).boxed()
        }
    }
}
