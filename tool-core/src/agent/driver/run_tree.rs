//! Drives the calls of a run and the runs of the agents that they ask, in one loop.
//!
//! - A call that asks an agent ends with its question (`AskingAgent`). The driver begins the run of the agent, drives it in one loop for all
//!   runs of the tree, and executes the call again with the answer. A run works until it has to be saved or its calls are to be executed
//!   (`Phase` and `Work` in `work`), or something is to be awaited (`Job`), then returns to the loop. The loop checks the limits of the runs
//!   around it, saves the outermost run, and only then lets it go on. If the inner run has to wait, the call stays `Running` and is continued,
//!   not attempted again, when the outer run is resumed. An undo call of it continues that run.
//! - Each run of a tree has a driver of its own, and exists once, in the outermost run: a driver has its run only while it works on it
//!   (`HeldRun`), and never while something is awaited. So a save at any time has all of it, and a future that is dropped takes nothing with it
//!   whose calls must still be undone.
//! - Calls of one turn are polled in the caller's task, because nothing may outlive the dropped future.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Poll;
use std::time::Duration;

use futures_channel::mpsc;
use futures_util::future::{BoxFuture, Either, ready};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::agent_call::AskedAgent;
use super::call_in_flight::Noted;
use super::held::HeldRun;
use super::job::{Applied, Apply, Job};
use super::open_calls::OpenCalls;
use super::review::OutputRuling;
use super::work::{Phase, Work};
use crate::agent::RunDriver;
use crate::agent::executor::AskedCall;
use crate::agent::interruption::{Interruption, run_until_interrupted};
use crate::agent::trace::Scope;
use crate::model::ToolCall;
use crate::run::{Run, RunErrorKind};
use crate::tool::{Attempt, ToolError, ToolExecution, ToolOutput, panic_text};

/// Runs that are driven together: one whose calls are executed, and those of the agents that these ask, at any depth.
///
/// The calls and the work of all runs are polled here. What one of them returns is recorded in its run and in those around it, and saved,
/// before anything follows from it.
pub(super) struct RunTree<'d> {
    outermost: &'d mut RunDriver,
    /// The runs, the outermost first, and nothing in the places of those that have ended.
    pub(super) nodes: Vec<Option<Node>>,
    pub(super) sender: mpsc::Sender<(NodeId, Noted)>,
    notes: mpsc::Receiver<(NodeId, Noted)>,
    /// The caller records the outcome of the only call.
    leaves_outcome: bool,
}

/// The place of a run.
pub(super) type NodeId = usize;

/// The place of the outermost run.
pub(super) const OUTERMOST: NodeId = 0;

type Panic = Box<dyn Any + Send>;

/// A run.
#[derive(Default)]
pub(super) struct Node {
    /// What the run of an agent has, other than the outermost.
    pub(super) agent: Option<AgentNode>,
    /// Its calls, while they are executed.
    pub(super) calls: Option<OpenCalls>,
    pub(super) running: FuturesUnordered<BoxFuture<'static, Progress>>,
}

/// The run of an agent that a call asked.
pub(super) struct AgentNode {
    /// The run around it.
    pub(super) outer: NodeId,
    pub(super) asked_by: AskedCall,
    pub(super) asked: Box<AskedAgent>,
    /// What the agent has answered, while that is saved.
    pub(super) output: Option<ToolOutput>,
    /// It has panicked, and its calls are undone.
    pub(super) panic: Option<Panic>,
}

/// A run whose calls are executed.
pub(super) struct Calling<'a> {
    pub(super) driver: HeldRun<'a>,
    pub(super) calls: &'a mut OpenCalls,
    pub(super) running: &'a mut FuturesUnordered<BoxFuture<'static, Progress>>,
}

/// What has happened in a run.
pub(super) enum Progress {
    Executed(Box<ToolExecution>),
    /// A call asks its agent this, or nothing if the run of the agent goes on.
    Asked(String, Box<AskedCall>),
    /// The layers have judged an outcome.
    Judged(Box<(ToolExecution, OutputRuling)>),
    /// A job of the run of an agent is done.
    Performed(Result<Apply<Work>, Panic>),
    /// A hook has panicked.
    Panicked(Panic),
}

/// What is next in a run.
enum Next {
    Progress(Progress),
    Noted(Noted),
    Interrupted(Interruption),
}

impl<'d> RunTree<'d> {
    pub(super) fn new(outermost: &'d mut RunDriver, calls: Vec<ToolCall>) -> Self {
        let (sender, notes) = mpsc::channel(0);
        let calls = Some(OpenCalls::new(outermost, calls));
        let nodes = vec![Some(Node { calls, ..Node::default() })];
        Self { outermost, nodes, sender, notes, leaves_outcome: false }
    }

    /// Executes the calls, and records their outcomes.
    pub(super) async fn drive(mut self) -> Result<(), RunErrorKind> {
        self.advance(OUTERMOST).await?;
        self.run().await.map(drop)
    }

    /// Executes one call that was started. Returns its outcome for the caller to record, unless its run ended meanwhile.
    pub(super) async fn drive_one(
        mut self,
        call: ToolCall,
        attempt: Attempt,
    ) -> Result<Option<ToolExecution>, RunErrorKind> {
        self.leaves_outcome = true;
        if let Some(Calling { mut driver, calls, .. }) = self.calling(OUTERMOST) {
            calls.is_settled = true;
            driver.run.set_executing(&call.id);
        }
        self.execute(OUTERMOST, call, attempt);
        self.run().await
    }

    async fn run(&mut self) -> Result<Option<ToolExecution>, RunErrorKind> {
        while self.is_busy(OUTERMOST) {
            let (id, next) = self.next().await;
            let happened = match next {
                Next::Progress(Progress::Executed(execution)) if self.leaves_outcome && id == OUTERMOST => {
                    return self.failure().map_or(Ok(Some(*execution)), Err);
                }
                Next::Progress(progress) => self.record(id, progress).await,
                Next::Noted(noted) => self.record_notes(id, noted).await,
                Next::Interrupted(interruption) => {
                    self.calling(id).into_iter().for_each(|mut run| run.driver.interrupt(&interruption));
                    Ok(Some(id))
                }
            };
            let changed = match happened {
                Ok(changed) => changed,
                Err(why) => self.suspend(id, why).await?,
            };
            if let Some(id) = changed {
                self.advance(id).await?;
            }
            for id in self.held() {
                self.advance(id).await?;
            }
        }
        self.failure().map_or(Ok(None), Err)
    }

    /// Returns the reason why a call of the outermost run has no outcome.
    fn failure(&mut self) -> Option<RunErrorKind> {
        self.calling(OUTERMOST)?.calls.failure.take()
    }

    /// Returns the runs at their places, without those that are no longer part of the ones around them.
    fn runs(&self) -> Vec<Option<&Run>> {
        let mut runs: Vec<Option<&Run>> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            runs.push(match node {
                Some(Node { agent: Some(AgentNode { outer, asked_by, .. }), .. }) => {
                    runs[*outer].and_then(|outer| outer.open_inner_run(&asked_by.call.id))
                }
                Some(_) => Some(&self.outermost.run),
                None => None,
            });
        }
        runs
    }

    /// Returns for each run whether calls inside of it are undone.
    fn undoes_inside(&self, runs: &[Option<&Run>]) -> Vec<bool> {
        let mut undoes = vec![false; runs.len()];
        let is_executed = |id: NodeId| self.nodes[id].as_ref().is_some_and(|node| node.calls.is_some());
        // A run is behind the ones around it.
        for (id, run) in runs.iter().enumerate().rev() {
            let agent = self.nodes[id].as_ref().and_then(|node| node.agent.as_ref());
            if let Some(AgentNode { outer, .. }) = agent
                && (undoes[id] || is_executed(id) && run.is_some_and(Run::is_undoing))
            {
                undoes[*outer] = true;
            }
        }
        undoes
    }

    /// Returns the driver at a place, which does not have its run.
    fn driver(&self, id: NodeId) -> &RunDriver {
        let agent = self.nodes[id].as_ref().and_then(|node| node.agent.as_ref());
        agent.map_or(self.outermost, |agent| &agent.asked.driver)
    }

    /// Returns the runs whose calls are executed.
    fn all_calling<'a>(&'a self, runs: &'a [Option<&'a Run>]) -> impl Iterator<Item = (NodeId, &'a Run)> {
        let calling = |id: &NodeId| self.nodes[*id].as_ref().is_some_and(|node| node.calls.is_some());
        (0..runs.len()).filter(calling).filter_map(|id| Some((id, runs[id]?)))
    }

    /// Returns the runs with calls that others hold back.
    fn held(&self) -> Vec<NodeId> {
        let runs = self.runs();
        let held = self.all_calling(&runs).filter(|(_, run)| !run.can_start().is_empty());
        held.map(|(id, _)| id).collect()
    }

    /// Waits for what is next. The time of agents with limits of their own and of persons does not count, and what undoes a call is not
    /// interrupted.
    async fn next(&mut self) -> (NodeId, Next) {
        let cancellation = self.outermost.question.cancellation.clone();
        let runs = self.runs();
        let undoes_inside = self.undoes_inside(&runs);
        let is_undoing = self.outermost.run.is_undoing() || undoes_inside[OUTERMOST];
        let cancellation = cancellation.filter(|_| !is_undoing);
        let (mut first, mut uncounted): (Option<(Duration, NodeId)>, _) = (None, Vec::new());
        for (id, run) in self.all_calling(&runs) {
            if !run.counts_time(run.is_working()) {
                uncounted.push(id);
            } else if let Some(left) = self.driver(id).time_left_of(run).filter(|_| !undoes_inside[id]) {
                first = first.into_iter().chain([(left, id)]).min();
            }
        }
        for id in &uncounted {
            let Some(Calling { mut driver, calls, .. }) = self.calling(*id) else { continue };
            driver.update_elapsed();
            if calls.has_ended(&driver.run) {
                drop(driver);
                return (*id, Next::Interrupted(Interruption::TimeLimit));
            }
        }
        let (nodes, notes) = (&mut self.nodes, &mut self.notes);
        let progress = poll_fn(|context| {
            if let Poll::Ready(Some((id, noted))) = notes.poll_next_unpin(context) {
                return Poll::Ready((id, Next::Noted(noted)));
            }
            for (id, node) in nodes.iter_mut().enumerate() {
                let running = node.as_mut().map(|node| node.running.poll_next_unpin(context));
                if let Some(Poll::Ready(Some(progress))) = running {
                    return Poll::Ready((id, Next::Progress(progress)));
                }
            }
            Poll::Pending
        });
        let next = run_until_interrupted(progress, cancellation.as_ref(), first.map(|(left, _)| left)).await;
        for id in uncounted {
            if let Some(Calling { mut driver, .. }) = self.calling(id) {
                driver.clock = Some(Instant::now());
            }
        }
        next.unwrap_or_else(|interruption| {
            let of_limit = first.filter(|_| matches!(interruption, Interruption::TimeLimit));
            (of_limit.map_or(OUTERMOST, |(_, id)| id), Next::Interrupted(interruption))
        })
    }

    /// Records what has happened in a run. Returns the run that has changed.
    async fn record(&mut self, id: NodeId, progress: Progress) -> Result<Option<NodeId>, RunErrorKind> {
        match progress {
            Progress::Executed(execution) => self.end_call(id, *execution).await?,
            Progress::Asked(question, asked) => return self.begin_agent(id, question, *asked),
            Progress::Judged(judged) => {
                let (execution, ruling) = *judged;
                self.record_outcome(id, execution, ruling)?;
                while let Some(next) =
                    self.calling(id).and_then(|run| run.calls.next_to_judge(&run.driver.run))
                {
                    self.judge(id, next).await?;
                }
            }
            Progress::Performed(performed) => return self.apply(id, performed).await,
            Progress::Panicked(panic) => return Ok(Some(self.stop(id, panic))),
        }
        Ok(Some(id))
    }

    /// Applies what follows from a job of the run of an agent, and lets it work until something is awaited. Returns the run that has changed.
    async fn apply(
        &mut self,
        id: NodeId,
        performed: Result<Apply<Work>, Panic>,
    ) -> Result<Option<NodeId>, RunErrorKind> {
        let mut worked = performed.and_then(|apply| self.let_work(id, apply));
        loop {
            let applied = match worked {
                Ok(applied) => applied?,
                Err(panic) => return Ok(Some(self.stop(id, panic))),
            };
            let work = match applied {
                Some(Applied::Done(work)) => work,
                Some(Applied::Next(job)) => Work::Job(job),
                // The run around it has stopped.
                None => return Ok(self.remove(id).map(|agent| agent.outer)),
            };
            let phase = match work {
                Work::Job(job) => {
                    self.perform(id, job);
                    return Ok(None);
                }
                Work::Calls(calls) => {
                    let open = self.agent(id).map(|(mut asked, _)| OpenCalls::new(&mut asked.driver, calls));
                    if let Some(node) = &mut self.nodes[id] {
                        node.calls = open;
                    }
                    return Ok(Some(id));
                }
                Work::Waiting => return Err(RunErrorKind::Waiting),
                Work::Replied(reply) => {
                    let record = |driver: &mut RunDriver| driver.record_reply(*reply).map(Applied::Done);
                    worked = self.let_work(id, record);
                    continue;
                }
                Work::Done => match self.take_answer(id) {
                    Some(output) => {
                        self.end(id, output);
                        return Ok(None);
                    }
                    None => {
                        worked = self.read_answer(id);
                        continue;
                    }
                },
                Work::Asked => Phase::Beginning,
                // Nobody posts commands to it.
                Work::Posted(phase) => phase,
                Work::Prepared => Phase::Prepared,
                Work::Save(phase) => phase,
            };
            if !matches!(phase, Phase::Beginning | Phase::Deciding(_)) {
                let stopped = self.save(id).await?;
                if stopped.is_some() {
                    return Ok(stopped);
                }
            }
            worked = self.let_work(id, |driver| driver.work(phase).map(Applied::Done));
        }
    }

    /// Lets an agent work on its run. Returns nothing if the run is no longer part of the one around it.
    fn let_work(
        &mut self,
        id: NodeId,
        work: impl FnOnce(&mut RunDriver) -> Result<Applied<Work>, RunErrorKind>,
    ) -> Result<Result<Option<Applied<Work>>, RunErrorKind>, Panic> {
        let Some((mut asked, scope)) = self.agent(id) else { return Ok(Ok(None)) };
        let driver = &mut asked.driver;
        let work = || {
            let scope = driver.scope().unwrap_or_else(|| scope.in_scope(|| driver.enter_span()));
            scope.in_scope(|| work(driver)).map(Some)
        };
        catch_unwind(AssertUnwindSafe(work))
    }

    /// Reads the answer of an agent whose run is done. It is saved, unless the model answers again.
    fn read_answer(&mut self, id: NodeId) -> Result<Result<Option<Applied<Work>>, RunErrorKind>, Panic> {
        let Some((mut asked, scope)) = self.agent(id) else { return Ok(Ok(None)) };
        let read = catch_unwind(AssertUnwindSafe(|| scope.in_scope(|| asked.read_answer())))?;
        drop(asked);
        let read = match read {
            Ok(read) => read,
            Err(kind) => return Ok(Err(kind)),
        };
        let has_answered = read.is_some();
        if let Some(Node { agent: Some(agent), .. }) = &mut self.nodes[id] {
            agent.output = read;
        }
        self.let_work(id, |driver| {
            let work = match has_answered {
                true => driver.commit_inside(),
                false => driver.work(Phase::Beginning),
            };
            work.map(Applied::Done)
        })
    }

    /// Returns what an agent has answered, once that is saved.
    fn take_answer(&mut self, id: NodeId) -> Option<ToolOutput> {
        self.nodes[id].as_mut()?.agent.as_mut()?.output.take()
    }

    /// Ends the call of an agent whose answer is saved.
    fn end(&mut self, id: NodeId, output: ToolOutput) {
        let agent = self.nodes[id].as_mut().and_then(|node| node.agent.as_mut());
        // Of an agent that has panicked before, nothing is an answer.
        let ended = match agent.and_then(|agent| agent.panic.take()) {
            Some(panic) => Err(panic),
            None => {
                let Some((mut asked, _)) = self.agent(id) else { return };
                catch_unwind(AssertUnwindSafe(|| asked.finish(output)))
            }
        };
        let Some(AgentNode { outer, asked_by, .. }) = self.remove(id) else { return };
        let outcome = ended.unwrap_or_else(|panic| {
            let text = format!("panicked: {}", panic_text(&*panic));
            Err(ToolError::panicked(&asked_by.call.id, &text))
        });
        self.answer(outer, asked_by, outcome);
    }

    /// Leaves the run of an agent that cannot continue now, and its call without an outcome.
    ///
    /// # Errors
    ///
    /// Fails with this reason if it is the outermost run.
    async fn suspend(&mut self, id: NodeId, why: RunErrorKind) -> Result<Option<NodeId>, RunErrorKind> {
        if id == OUTERMOST {
            return Err(why);
        }
        if why.keeps_run()
            && let Some(stopped) = self.save(id).await?
        {
            return Ok(Some(stopped));
        }
        if let Some(AgentNode { outer, asked_by, .. }) = self.remove(id)
            && let Some(Calling { mut driver, calls, running }) = self.calling(outer)
        {
            calls.suspend(&mut driver.run, &asked_by.call.id, why);
            asked_by.span.suspend();
            let waiting = ToolExecution::waiting(asked_by.call, None);
            running.push(ready(Progress::Executed(Box::new(waiting))).boxed());
        }
        Ok(None)
    }

    /// Stops a run after a panic, and undoes its calls. If it panics again, the run around it stops. Returns the run that has changed.
    fn stop(&mut self, id: NodeId, panic: Panic) -> NodeId {
        self.end_calls(id);
        let outer = match &mut self.nodes[id] {
            Some(Node { agent: Some(agent @ AgentNode { panic: None, .. }), calls, .. }) => {
                agent.panic = Some(panic);
                *calls = None;
                self.agent(id).into_iter().for_each(|(mut asked, _)| asked.driver.cancel());
                self.begin_step(id);
                return id;
            }
            Some(Node { agent: Some(AgentNode { outer, .. }), .. }) => *outer,
            _ => resume_unwind(panic),
        };
        self.remove(id);
        self.stop(outer, panic)
    }

    /// Adds the run of an agent, which begins to work.
    pub(super) fn add(&mut self, agent: AgentNode) {
        // A place is not used again, because messages for a run that has ended can be on their way.
        let id = self.nodes.len();
        self.nodes.push(Some(Node { agent: Some(agent), ..Node::default() }));
        self.begin_step(id);
    }

    /// Lets an agent work on its run, once everything that has happened before is recorded.
    fn begin_step(&mut self, id: NodeId) {
        self.perform(id, Job::new(ready(()), |driver, ()| driver.work(Phase::Beginning)));
    }

    fn perform(&mut self, id: NodeId, job: Job<Work>) {
        let scope = self.agent(id).map(|(asked, scope)| asked.driver.scope().unwrap_or(scope));
        if let Some((node, scope)) = self.nodes[id].as_mut().zip(scope) {
            let performed = AssertUnwindSafe(scope.instrument(job.0)).catch_unwind();
            node.running.push(performed.map(Progress::Performed).boxed());
        }
    }

    /// Advances a changed run, and then every run that changes as a result.
    async fn advance(&mut self, id: NodeId) -> Result<(), RunErrorKind> {
        let mut changed = Some(id);
        while let Some(id) = changed {
            changed = match self.take_step(id).await {
                Ok(changed) => changed,
                Err(why) => self.suspend(id, why).await?,
            };
        }
        Ok(())
    }

    /// Starts what can start in a run, saves that, and emits what is new. A run whose calls have ended takes its next step. Returns the run
    /// that has changed.
    async fn take_step(&mut self, id: NodeId) -> Result<Option<NodeId>, RunErrorKind> {
        self.start(id)?;
        let mut stopped = self.save(id).await?;
        if stopped.is_none() {
            stopped = self.emit(id).await?;
        }
        let is_over = stopped.is_none() && id != OUTERMOST && !self.is_busy(id);
        let is_held = |run: Calling<'_>| run.calls.is_held(&run.driver.run);
        if is_over && !self.calling(id).is_none_or(is_held) {
            let ended = self.nodes[id].as_mut().and_then(|node| node.calls.take());
            if let Some(why) = ended.and_then(|ended| ended.failure) {
                return Err(why);
            }
            self.begin_step(id);
        }
        Ok(stopped)
    }

    /// Emits what is new in a run. Returns the run that has changed, if a hook panics.
    async fn emit(&mut self, id: NodeId) -> Result<Option<NodeId>, RunErrorKind> {
        let Some(Calling { mut driver, calls, .. }) = self.calling(id) else { return Ok(None) };
        let (events, was_settled) =
            (std::mem::take(&mut calls.events), std::mem::replace(&mut calls.is_settled, true));
        let giving_up = if was_settled { None } else { driver.give_up_apart() };
        drop(driver);
        if let Some(job) = giving_up {
            match AssertUnwindSafe(job.0).catch_unwind().await {
                // It only reports.
                Ok(_) => {}
                Err(panic) => return Ok(Some(self.stop(id, panic))),
            }
        }
        let emitting = |tree: &mut Self| {
            let Some(Calling { mut driver, .. }) = tree.calling(id) else {
                return Either::Left(ready(Ok(())));
            };
            if !was_settled {
                driver.queue_news();
            }
            driver.events.extend(events);
            driver.emit_queued()
        };
        if id == OUTERMOST {
            return emitting(self).await.map(|()| None);
        }
        let emitted = match catch_unwind(AssertUnwindSafe(|| emitting(self))) {
            Ok(emitting) => AssertUnwindSafe(emitting).catch_unwind().await,
            Err(panic) => Err(panic),
        };
        match emitted {
            Ok(emitted) => emitted.map(|()| None),
            Err(panic) => Ok(Some(self.stop(id, panic))),
        }
    }

    /// Records what has changed in a run in those around it, and saves it. If one of these stops by that, nothing is saved yet, and that one is
    /// returned.
    pub(super) async fn save(&mut self, id: NodeId) -> Result<Option<NodeId>, RunErrorKind> {
        let (mut inner, mut stopped) = (id, None);
        while let Some(Node { agent: Some(AgentNode { outer, .. }), .. }) = &self.nodes[inner] {
            let outer = *outer;
            let has_changed = self.agent(inner).is_some_and(|(mut asked, _)| asked.driver.take_unsaved());
            let Some(Calling { mut driver, calls, .. }) = self.calling(outer) else { break };
            if has_changed {
                driver.note_change_inside();
            }
            if calls.has_ended(&driver.run) {
                stopped = Some(outer);
            }
            inner = outer;
        }
        if stopped.is_none() {
            self.outermost.store_run().await?;
        }
        Ok(stopped)
    }

    /// Drops the calls of a run and the runs inside.
    pub(super) fn end_calls(&mut self, id: NodeId) {
        if let Some(node) = &mut self.nodes[id] {
            node.running.clear();
            node.calls.iter_mut().for_each(OpenCalls::clear);
        }
        let inside: Vec<_> = (0..self.nodes.len()).filter(|inner| self.is_inside(*inner, id)).collect();
        inside.into_iter().for_each(|inner| drop(self.remove(inner)));
    }

    /// Returns `true` if something is in flight in a run, or in one of an agent that its calls have asked.
    fn is_busy(&self, id: NodeId) -> bool {
        let is_running = self.nodes[id].as_ref().is_some_and(|node| !node.running.is_empty());
        is_running || (0..self.nodes.len()).any(|inner| self.is_inside(inner, id))
    }

    /// Returns `true` if a run is of an agent that a call of the other one has asked.
    fn is_inside(&self, inner: NodeId, outer: NodeId) -> bool {
        let agent = self.nodes[inner].as_ref().and_then(|node| node.agent.as_ref());
        agent.is_some_and(|agent| agent.outer == outer)
    }

    /// Removes the run of an agent, and the runs inside.
    fn remove(&mut self, id: NodeId) -> Option<AgentNode> {
        self.end_calls(id);
        self.nodes[id].take()?.agent
    }

    /// Returns the calls of a run that can start beside those of the other runs whose calls are executed.
    pub(super) fn startable(&self, id: NodeId) -> Vec<ToolCall> {
        let runs = self.runs();
        let calling = self.all_calling(&runs).map(|(id, run)| (self.place(id), run));
        Run::startable_at(&self.place(id), calling)
    }

    /// Returns the calls that lead to a run.
    pub(super) fn place(&self, id: NodeId) -> Vec<&str> {
        let mut place = Vec::new();
        let mut node = self.nodes[id].as_ref();
        while let Some(Node { agent: Some(agent), .. }) = node {
            place.push(&*agent.asked_by.call.id);
            node = self.nodes[agent.outer].as_ref();
        }
        place.reverse();
        place
    }

    /// Returns a run whose calls are executed, unless it is no longer part of the one around it.
    pub(super) fn calling(&mut self, id: NodeId) -> Option<Calling<'_>> {
        let path = self.path(id);
        let Node { agent, calls, running } = self.nodes[id].as_mut()?;
        let calls = calls.as_mut()?;
        let driver = match agent {
            Some(agent) => {
                HeldRun::inside(&mut agent.asked.driver, self.outermost.run.inner_run_slot(&path)?)
            }
            None => HeldRun::outermost(&mut *self.outermost),
        };
        Some(Calling { driver, calls, running })
    }

    /// Returns the agent of a run inside, with the scope of its call, unless the run is no longer part of the one around it.
    fn agent(&mut self, id: NodeId) -> Option<(HeldRun<'_, AskedAgent>, Scope)> {
        let path = self.path(id);
        let agent = self.nodes[id].as_mut()?.agent.as_mut()?;
        let slot = self.outermost.run.inner_run_slot(&path)?;
        Some((HeldRun::inside(&mut *agent.asked, slot), agent.asked_by.span.scope()))
    }

    /// Returns the calls that lead to a run.
    fn path(&self, id: NodeId) -> Vec<String> {
        self.place(id).into_iter().map(str::to_owned).collect()
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::future::pending;

    use super::*;
    use crate::agent::Agent;
    use crate::model::ToolDefinition;
    use crate::run::InnerRun;
    use crate::testing::ScriptedModel;
    use crate::tool::{Tool, ToolContext, ToolFuture};

    /// Never returns.
    struct Wait(ToolDefinition);

    impl Tool for Wait {
        fn definition(&self) -> &ToolDefinition {
            &self.0
        }

        fn call<'a>(&'a self, _arguments: &'a str, _context: &'a ToolContext) -> ToolFuture<'a> {
            ToolFuture::boxed(pending())
        }
    }

    /// Each run inside is in the outermost run alone, also while its calls are executed: a change of its history copies nothing.
    #[tokio::test]
    async fn each_run_inside_exists_once() {
        let clerk = ScriptedModel::new().calls("wait", "{}");
        let clerk = Agent::builder(clerk).tool(Wait(ToolDefinition::new("wait"))).build().unwrap();
        let question = r#"{"question": "?"}"#;
        let desk = ScriptedModel::new().calls_all([("clerk", question)]);
        let desk = Agent::builder(desk).tool(clerk.as_tool("clerk", "Waits")).build().unwrap();
        let mut driver = desk.start("Go");
        assert!(driver.take_whole_step().await.unwrap());
        driver.prepare().await.unwrap();
        let calls = driver.run.open_calls();
        let mut tree = RunTree::new(&mut driver, calls);
        tree.advance(OUTERMOST).await.unwrap();
        let inside = |tree: &RunTree<'_>| {
            let run = tree.outermost.run.inner_runs().next().map(InnerRun::run)?;
            let is_executing = run.open_calls().iter().any(|call| run.is_in_flight(&call.id));
            is_executing.then(|| run.is_history_unshared())
        };
        let is_unshared = loop {
            // Whatever of it is dropped here is nothing of a run.
            assert!(tree.run().now_or_never().is_none());
            if let Some(is_unshared) = inside(&tree) {
                break is_unshared;
            }
        };
        assert!(is_unshared);
        assert!(tree.outermost.run.is_history_unshared());
    }
}
