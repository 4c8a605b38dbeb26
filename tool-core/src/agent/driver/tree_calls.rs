//! What a tree of runs does: calls, judgements of their outcomes, and steps of the runs of agents.
//!
//! While an output is judged, the other calls in flight are driven, and the states of agents among them stored, because a layer can wait
//! for what they hold.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_channel::{mpsc, oneshot};
use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, SinkExt};

use super::job::{Applied, Apply, Job};
use super::review::{OutputRuling, Report};
use super::run_tree::{AskedRun, Noted, Place, RunTree, TreeProgress};
use super::work::{StepPhase, Work};
use crate::agent::RunDriver;
use crate::agent::executor::{AskedCall, CallExecutor};
use crate::model::ToolCall;
use crate::run::{EffectId, EffectResult, Run, RunErrorKind, RunPath};
use crate::tool::{Asking, Attempt, CallNotes, Outcome, ToolError, ToolExecution, ToolOutput, panic_text};

/// What a run has worked. Nothing, if it is no longer part of the tree.
type Worked = Result<Option<Applied<Work>>, RunErrorKind>;

impl RunTree<'_> {
    /// Executes a call that was started.
    pub(super) fn execute(&mut self, id: EffectId, call: ToolCall, attempt: Attempt) {
        let (path, sender) = (id.path().clone(), self.sender.clone());
        let Some(executor) = self.place(&path).and_then(|place| place.executor.clone()) else { return };
        let Some(driver) = self.driver(&path) else { return };
        let executed = execute_call(&driver.run, &executor, call, attempt, (sender, path.clone()));
        drop(driver);
        let executed = executed.map(|executed| match executed {
            Ok(execution) => TreeProgress::Executed(Box::new(execution)),
            Err((question, asked)) => TreeProgress::Asked(question, asked),
        });
        self.push(&path, id, executed.boxed());
    }

    /// Records the notes of a call in flight, which goes on once they are saved.
    pub(super) fn record_notes(&mut self, path: RunPath, noted: Noted) -> Result<(), RunErrorKind> {
        let Noted { call_id, notes, noted } = noted;
        // The run may have stopped meanwhile.
        let Some(mut driver) = self.driver(&path) else { return Ok(()) };
        // A call can have left a task that records something after its end.
        if !driver.run.is_in_flight(&call_id) {
            return Ok(());
        }
        driver.change_run().record_notes(&call_id, notes).map_err(RunErrorKind::Step)?;
        drop(driver);
        self.set_unsaved(&path);
        self.noted.push(noted);
        Ok(())
    }

    /// Ends a call that was executed, or waits.
    pub(super) fn end_call(&mut self, path: &RunPath, id: &EffectId, execution: ToolExecution) {
        if !self.outermost.run.engine_view().is_awaited(id) {
            return;
        }
        let Some(mut driver) = self.driver(path) else { return };
        // Otherwise it is known once the layers have judged it.
        let is_judged = driver.run.must_be_judged(&execution, driver.run.sees());
        let report = match is_judged {
            true => Report::Nothing,
            false => {
                driver.note_result(&execution);
                driver.report_of(&execution)
            }
        };
        drop(driver);
        let result = match path == id.path() {
            true => EffectResult::Finished(Box::new(execution)),
            // Of an agent that has answered.
            false => EffectResult::Ended(path.depth(), Box::new(execution)),
        };
        // Fails for recorded steps alone.
        let _ = self.outermost.run.engine().handle(id, result);
        self.set_unsaved(path);
        let Some(mut driver) = self.driver(path).filter(|_| !is_judged) else { return };
        let event = driver.report(report);
        drop(driver);
        self.events.extend(event.map(|event| (path.clone(), event)));
    }

    /// Lets the layers judge the outcome of a call, and records it. They judge one at a time, while the other calls continue: a layer can
    /// wait for something that one of them holds.
    pub(super) async fn judge(&mut self, id: EffectId, execution: ToolExecution) -> Result<(), RunErrorKind> {
        let path = id.path().clone();
        let is_alone = path.depth() == 0 && !self.is_running(&path);
        let Some(driver) = self.driver(&path) else { return Ok(()) };
        let mut judging = driver.judge_output(execution);
        drop(driver);
        let judged = match is_alone {
            true => {
                let judged = (&mut judging).await;
                self.outermost.count_time();
                Some(judged)
            }
            // If no layer sees it, among others.
            false => match self.contain(&path, |_| (&mut judging).now_or_never()) {
                Some(judged) => judged,
                None => {
                    return self
                        .outermost
                        .run
                        .engine()
                        .handle(&id, EffectResult::Nothing)
                        .map_err(RunErrorKind::Step);
                }
            },
        };
        if let Some((execution, ruling)) = judged {
            return self.contain(&path, |tree| tree.record_outcome(&id, execution, ruling)).unwrap_or(Ok(()));
        }
        let judging = judging.map(|judged| TreeProgress::Judged(Box::new(judged)));
        self.push(&path, id, judging.boxed());
        Ok(())
    }

    /// Records an outcome that the layers have judged.
    pub(super) fn record_outcome(
        &mut self,
        id: &EffectId,
        execution: ToolExecution,
        ruling: OutputRuling,
    ) -> Result<(), RunErrorKind> {
        let path = id.path().clone();
        if !self.outermost.run.engine_view().is_awaited(id) {
            return Ok(());
        }
        let Some(mut driver) = self.driver(&path) else { return Ok(()) };
        driver.run.take_outcome_to_judge(&execution.call().id);
        let recorded = driver.record_outcome(execution, ruling);
        drop(driver);
        self.set_unsaved(&path);
        let result = match recorded {
            Err(why @ (RunErrorKind::Layer { .. } | RunErrorKind::Store(_))) => {
                self.failures.push((path, why));
                EffectResult::Stalled
            }
            recorded => {
                self.events.extend(recorded?.map(|event| (path.clone(), event)));
                EffectResult::Nothing
            }
        };
        self.outermost.run.engine().handle(id, result).map_err(RunErrorKind::Step)
    }

    /// Begins the run of the agent that a call has asked, or goes on with it.
    pub(super) fn begin_agent(
        &mut self,
        id: EffectId,
        question: String,
        asked_by: AskedCall,
    ) -> Result<(), RunErrorKind> {
        let path = id.path().clone();
        if !self.outermost.run.engine_view().is_awaited(&id) {
            // The run has stopped meanwhile.
            return Ok(());
        }
        let executor = self.place(&path).and_then(|place| place.executor.clone());
        let Some((executor, mut driver)) = executor.zip(self.driver(&path)) else { return Ok(()) };
        let asked = driver.ask_agent_inside(&executor, &asked_by.call, question);
        if asked.is_ok() {
            let notes = CallNotes::of_agent(asked_by.note.clone());
            driver.change_run().record_notes(&asked_by.call.id, notes).map_err(RunErrorKind::Step)?;
        }
        drop(driver);
        match asked {
            Ok(asked) => {
                self.outermost.run.engine().handle(&id, EffectResult::Nothing).map_err(RunErrorKind::Step)?;
                let inside = path.inside(&asked_by.call.id);
                self.changed.insert(inside.clone());
                let agent = AskedRun {
                    place: Place::default(),
                    asked_by,
                    asked: Box::new(asked),
                    output: None,
                    is_in_step: false,
                    has_asked_persons: false,
                    failure: None,
                };
                self.inside.insert(inside, agent);
            }
            Err(error) => self.answer(&path, id, asked_by, Err(error)),
        }
        Ok(())
    }

    /// Executes a call of a run again with the answer of the agent that it has asked.
    fn answer(&mut self, path: &RunPath, id: EffectId, asked_by: AskedCall, answer: Outcome) {
        let Some(executor) = self.place(path).and_then(|place| place.executor.clone()) else { return };
        let answered =
            async move { TreeProgress::Executed(Box::new(executor.answer(asked_by, answer).await)) };
        self.push(path, id, answered.boxed());
    }

    /// Lets an agent take a step of its run, once everything that has happened before is recorded.
    pub(super) fn begin_step(&mut self, id: EffectId) {
        if let Some(inside) = self.inside.get_mut(id.path()) {
            (inside.is_in_step, inside.has_asked_persons) = (true, false);
        }
        self.perform(id, Job::new(ready(()), |driver, ()| driver.work(StepPhase::Beginning)), false);
    }

    fn perform(&mut self, id: EffectId, job: Job<Work>, asks_persons: bool) {
        self.outermost.run.engine().set_step(&id, asks_persons);
        let path = id.path().clone();
        let scope = self.agent(&path).map(|(asked, scope)| asked.driver.scope().unwrap_or(scope));
        if let Some(scope) = scope {
            self.push(&path, id, scope.instrument(job.0).map(TreeProgress::Performed).boxed());
        }
    }

    /// Applies what follows from a job of the run of an agent, and lets it work until something is awaited.
    pub(super) async fn apply(&mut self, id: &EffectId, apply: Apply<Work>) {
        let path = id.path();
        if let Some(why) = self.inside.get_mut(path).and_then(|inside| inside.failure.take()) {
            return self.end_stalled(id, why);
        }
        let mut worked = self.let_work(path, apply);
        loop {
            let work = match worked {
                Some(Ok(Some(Applied::Done(work)))) => work,
                Some(Ok(Some(Applied::Next(job)))) => Work::Job(job),
                Some(Err(why)) => return self.end_stalled(id, why),
                // It has panicked, or the run around it has stopped.
                None | Some(Ok(None)) => return self.end_step(id),
            };
            let phase = match work {
                Work::Job(job) => return self.perform(id.clone(), job, false),
                Work::Persons(job) => return self.perform(id.clone(), job, true),
                Work::Calls(calls) => {
                    let executor = self.driver(path).map(|mut driver| driver.open_step(calls));
                    self.place(path).into_iter().for_each(|place| place.executor.clone_from(&executor));
                    return self.end_step(id);
                }
                Work::Waiting => {
                    let inside = self.inside.get_mut(path);
                    inside.into_iter().for_each(|inside| inside.has_asked_persons = true);
                    return self.end_step(id);
                }
                Work::Replied(reply) => {
                    worked = self.let_work(path, |driver| driver.record_reply(*reply).map(Applied::Done));
                    continue;
                }
                Work::Done => match self.inside.get_mut(path).and_then(|inside| inside.output.take()) {
                    Some(output) => return self.end_agent(id, output),
                    None => {
                        worked = self.read_answer(path);
                        continue;
                    }
                },
                Work::Asked => StepPhase::Beginning,
                // Nobody posts commands to it.
                Work::Posted(phase) => phase,
                Work::Prepared => StepPhase::Prepared,
                Work::Save(phase) => phase,
            };
            if !matches!(phase, StepPhase::Beginning | StepPhase::Deciding(_)) {
                self.changed.insert(path.clone());
                self.note_changes();
                if !self.inside.contains_key(path) {
                    return;
                }
                let stored = self.outermost.store_run().await;
                self.outermost.count_time();
                if let Err(why) = stored {
                    return self.end_stalled(id, why);
                }
            }
            worked = self.let_work(path, |driver| driver.work(phase).map(Applied::Done));
        }
    }

    /// Ends a step of a run.
    fn end_step(&mut self, id: &EffectId) {
        // A decider of the run can have decided about what those inside wait for.
        let below = self.inside.range(id.path().clone()..).map(|(path, _)| path);
        self.changed.extend(below.take_while(|path| path.is_below(id.path())).cloned());
        let inside = self.inside.get_mut(id.path());
        inside.into_iter().for_each(|inside| inside.is_in_step = false);
        let _ = self.outermost.run.engine().handle(id, EffectResult::Nothing);
    }

    /// Leaves the run of an agent that cannot continue now, and its call without an outcome.
    fn end_stalled(&mut self, id: &EffectId, why: RunErrorKind) {
        self.changed.insert(id.path().clone());
        self.note_changes();
        if !self.outermost.run.engine_view().is_awaited(id) {
            // A run around has stopped by what it has used.
            return;
        }
        let _ = self.outermost.run.engine().handle(id, EffectResult::Stalled);
        self.changed.insert(id.path().clone());
        if let Some(inside) = self.remove(id.path()) {
            inside.asked_by.span.suspend();
        }
        self.failures.push((id.path().clone(), why));
    }

    /// Lets an agent work on its run. Returns nothing if it panics.
    fn let_work(
        &mut self,
        path: &RunPath,
        work: impl FnOnce(&mut RunDriver) -> Result<Applied<Work>, RunErrorKind>,
    ) -> Option<Worked> {
        self.contain(path, |tree| {
            let Some((mut asked, scope)) = tree.agent(path) else { return Ok(None) };
            let driver = &mut asked.driver;
            let scope = driver.scope().unwrap_or_else(|| scope.in_scope(|| driver.enter_span()));
            scope.in_scope(|| work(driver)).map(Some)
        })
    }

    /// Reads the answer of an agent whose run is done. It is saved, unless the model answers again.
    fn read_answer(&mut self, path: &RunPath) -> Option<Worked> {
        let read = self.contain(path, |tree| {
            let Some((mut asked, scope)) = tree.agent(path) else { return Ok(None) };
            scope.in_scope(|| asked.read_answer())
        });
        let read = match read? {
            Ok(read) => read,
            Err(kind) => return Some(Err(kind)),
        };
        let has_answered = read.is_some();
        self.inside.get_mut(path)?.output = read;
        self.let_work(path, |driver| {
            let work = match has_answered {
                true => driver.commit_inside(),
                false => driver.work(StepPhase::Beginning),
            };
            work.map(Applied::Done)
        })
    }

    /// Ends the call of an agent whose answer is saved.
    fn end_agent(&mut self, id: &EffectId, output: ToolOutput) {
        let path = id.path();
        // Of an agent that has panicked before, nothing is an answer.
        let outcome = match self.outermost.run.engine_view().outcome_of_panic(path) {
            Some(panicked) => panicked.outcome,
            None => {
                let Some((mut asked, _)) = self.agent(path) else { return };
                let ended = catch_unwind(AssertUnwindSafe(|| asked.finish(output)));
                drop(asked);
                ended.unwrap_or_else(|panic| {
                    let panicked = self.outermost.run.panicked_call(path, panic_text(&*panic));
                    panicked.map_or_else(|| Err(ToolError::interrupted()), |panicked| panicked.outcome)
                })
            }
        };
        let Some(AskedRun { asked_by, .. }) = self.remove(path) else { return };
        let outer = path.at_depth(path.depth().saturating_sub(1));
        self.answer(&outer, id.clone(), asked_by, outcome);
    }
}

/// The execution of a call, or the call that asks its agent this; nothing if the run of the agent goes on.
type Executed = Result<ToolExecution, (String, Box<AskedCall>)>;

/// Executes a call that was started.
fn execute_call(
    run: &Run,
    executor: &Arc<CallExecutor>,
    call: ToolCall,
    attempt: Attempt,
    sender: (mpsc::Sender<(RunPath, Noted)>, RunPath),
) -> BoxFuture<'static, Executed> {
    let tool = executor.tools.get(&call.name);
    let executor = Arc::clone(executor);
    if executor.agent_of(&call).is_some() {
        return match run.open_inner_run(&call.id) {
            Some(_) => {
                let note = run.notes(&call.id).and_then(CallNotes::agent).cloned().unwrap_or_default();
                let reopened = async move {
                    executor.announce(&call, &attempt).await;
                    Err((String::new(), Box::new(executor.reopen(call, attempt, note))))
                };
                reopened.boxed()
            }
            None => async move { executor.ask(call, attempt).await }.boxed(),
        };
    }
    if tool.is_some() && run.open_inner_run(&call.id).is_some() {
        // Another tool has the name now, and cannot continue the run.
        let interrupted = ToolExecution::new(call, Err(ToolError::interrupted()));
        return ready(Ok(interrupted)).boxed();
    }
    let mut asking = Asking::new(run.notes(&call.id).cloned().unwrap_or_default());
    if tool.is_some_and(CallExecutor::has_asker) {
        let call_id = call.id.clone();
        asking = asking.store(Arc::new(move |notes| {
            let ((mut sender, path), call_id) = (sender.clone(), call_id.clone());
            let stored = async move {
                let (noted, is_noted) = oneshot::channel();
                let sent = sender.send((path, Noted { call_id, notes, noted })).await;
                sent.is_ok() && is_noted.await.is_ok()
            };
            stored.boxed()
        }));
    }
    async move { Ok(executor.execute(call, attempt, asking).await) }.boxed()
}
