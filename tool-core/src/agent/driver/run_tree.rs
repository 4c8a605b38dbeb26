//! Drives the calls of a run and the runs of the agents that they ask, in one loop.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::task::Poll;
use std::time::Duration;

use futures_channel::mpsc;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::time::Instant;

use super::agent_call::{AgentPhase, AgentWork, AskedAgent};
use super::call_in_flight::{AskedBy, Message, execute_call};
use super::open_calls::{Executing, OpenCalls};
use super::review::OutputRuling;
use super::steps::Phase;
use crate::agent::RunDriver;
use crate::agent::interruption::{Interruption, run_until_interrupted};
use crate::model::ToolCall;
use crate::run::{RunErrorKind, TreeInFlight};
use crate::tool::{Attempt, ToolError, ToolExecution, panic_text};

/// Runs that are driven together: one whose calls are executed, and those of the agents that these ask, at any depth.
///
/// The calls and the work of all runs are polled here. What one of them returns is recorded in its run and in those around it, and saved,
/// before anything follows from it.
pub(super) struct RunTree<'d> {
    outermost: &'d mut RunDriver,
    /// The runs, the outermost first, and nothing in the places of those that have ended.
    nodes: Vec<Option<Node>>,
    sender: mpsc::Sender<(NodeId, Message)>,
    messages: mpsc::Receiver<(NodeId, Message)>,
    /// The caller records the outcome of the only call.
    leaves_outcome: bool,
}

/// The place of a run.
type NodeId = usize;

/// The place of the outermost run.
const OUTERMOST: NodeId = 0;

type Panic = Box<dyn Any + Send>;

/// A run.
#[derive(Default)]
struct Node {
    /// What the run of an agent has, other than the outermost.
    agent: Option<AgentNode>,
    /// Its calls, while they are executed.
    calls: Option<OpenCalls>,
    running: FuturesUnordered<BoxFuture<'static, Progress>>,
}

/// The run of an agent that a call asked.
struct AgentNode {
    /// The run around it.
    outer: NodeId,
    asked_by: AskedBy,
    /// Nothing, while the agent works.
    asked: Option<Box<AskedAgent>>,
    /// It has panicked, and its calls are undone.
    panic: Option<Panic>,
}

/// A run whose calls are executed.
struct Calling<'a> {
    driver: &'a mut RunDriver,
    calls: &'a mut OpenCalls,
    running: &'a mut FuturesUnordered<BoxFuture<'static, Progress>>,
}

/// What has happened in a run.
enum Progress {
    Executed(ToolExecution),
    /// The layers have judged an outcome.
    Judged(Box<(ToolExecution, OutputRuling)>),
    /// An agent has worked on its run.
    Worked(Box<AskedAgent>, Result<Result<AgentWork, RunErrorKind>, Panic>),
    /// A hook has panicked.
    Panicked(Panic),
}

/// What is next in a tree.
enum Next {
    Progress(NodeId, Progress),
    Message(NodeId, Message),
    Interrupted(NodeId, Interruption),
}

impl<'d> RunTree<'d> {
    pub(super) fn new(outermost: &'d mut RunDriver, calls: Vec<ToolCall>) -> Self {
        let (sender, messages) = mpsc::channel(0);
        let calls = Some(OpenCalls::new(outermost, calls));
        let nodes = vec![Some(Node { calls, ..Node::default() })];
        Self { outermost, nodes, sender, messages, leaves_outcome: false }
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
        if let Some(Calling { calls, .. }) = self.calling(OUTERMOST) {
            calls.is_settled = true;
        }
        self.execute(OUTERMOST, call, attempt);
        self.run().await
    }

    async fn run(&mut self) -> Result<Option<ToolExecution>, RunErrorKind> {
        while self.nodes[OUTERMOST].as_ref().is_some_and(|node| !node.running.is_empty()) {
            let changed = match self.next().await {
                Next::Progress(OUTERMOST, Progress::Executed(execution)) if self.leaves_outcome => {
                    return self.failure().map_or(Ok(Some(execution)), Err);
                }
                Next::Progress(id, progress) => self.record(id, progress).await?,
                Next::Message(id, message) => self.accept(id, message).await?,
                Next::Interrupted(id, interruption) => {
                    if let Some(Calling { driver, .. }) = self.calling(id) {
                        driver.interrupt(&interruption);
                    }
                    Some(id)
                }
            };
            if let Some(id) = changed {
                self.advance(id).await?;
            }
            let is_held = |id: &NodeId| {
                let calls = self.nodes[*id].as_ref().and_then(|node| node.calls.as_ref());
                calls.is_some_and(|calls| calls.is_held)
            };
            for id in (0..self.nodes.len()).filter(is_held).collect::<Vec<_>>() {
                self.advance(id).await?;
            }
        }
        self.failure().map_or(Ok(None), Err)
    }

    /// Returns the reason why a call of the outermost run has no outcome.
    fn failure(&mut self) -> Option<RunErrorKind> {
        self.calling(OUTERMOST)?.calls.failure.take()
    }

    /// Waits for what is next. The time of agents with limits of their own does not count.
    async fn next(&mut self) -> Next {
        let cancellation = self.outermost.question.cancellation.clone();
        let cancellation = cancellation.filter(|_| !self.outermost.run.is_undoing());
        let (mut first, mut uncounted): (Option<(Duration, NodeId)>, _) = (None, Vec::new());
        for id in 0..self.nodes.len() {
            let Some(Calling { driver, calls, .. }) = self.calling(id) else { continue };
            if driver.run.waits_only_for_own_limits() {
                driver.update_elapsed();
                uncounted.push(id);
                if calls.has_ended(&driver.run) {
                    return Next::Interrupted(id, Interruption::TimeLimit);
                }
            } else if let Some(left) = driver.time_left() {
                first = first.into_iter().chain([(left, id)]).min();
            }
        }
        let (nodes, messages) = (&mut self.nodes, &mut self.messages);
        let progress = poll_fn(|context| {
            if let Poll::Ready(Some((id, message))) = messages.poll_next_unpin(context) {
                return Poll::Ready(Next::Message(id, message));
            }
            for (id, node) in nodes.iter_mut().enumerate() {
                let running = node.as_mut().map(|node| node.running.poll_next_unpin(context));
                if let Some(Poll::Ready(Some(progress))) = running {
                    return Poll::Ready(Next::Progress(id, progress));
                }
            }
            Poll::Pending
        });
        let next = run_until_interrupted(progress, cancellation.as_ref(), first.map(|(left, _)| left)).await;
        for id in uncounted {
            if let Some(Calling { driver, .. }) = self.calling(id) {
                driver.clock = Some(Instant::now());
            }
        }
        next.unwrap_or_else(|interruption| {
            let of_limit = first.filter(|_| matches!(interruption, Interruption::TimeLimit));
            Next::Interrupted(of_limit.map_or(OUTERMOST, |(_, id)| id), interruption)
        })
    }

    /// Records what has happened in a run. Returns the run that has changed.
    async fn record(&mut self, id: NodeId, progress: Progress) -> Result<Option<NodeId>, RunErrorKind> {
        let recorded = match progress {
            Progress::Executed(execution) => self.end_call(id, execution).await,
            Progress::Judged(judged) => {
                let (execution, ruling) = *judged;
                let recorded = self.record_outcome(id, execution, ruling);
                match self.calling(id).and_then(|one| one.calls.to_judge.pop_front()) {
                    Some(next) if recorded.is_ok() => self.judge(id, next).await,
                    _ => recorded,
                }
            }
            Progress::Worked(asked, worked) => {
                if let Some(Node { agent: Some(agent), .. }) = &mut self.nodes[id] {
                    agent.asked = Some(asked);
                }
                return self.go_on(id, worked).await;
            }
            Progress::Panicked(panic) => return Ok(Some(self.stop(id, panic))),
        };
        match recorded {
            Ok(()) => Ok(Some(id)),
            Err(why) => self.suspend(id, why).await,
        }
    }

    /// Ends a call that was executed, or waits.
    async fn end_call(&mut self, id: NodeId, execution: ToolExecution) -> Result<(), RunErrorKind> {
        let Some(Calling { driver, calls, .. }) = self.calling(id) else { return Ok(()) };
        if !calls.end_execution(&execution.call().id) {
            return Ok(());
        }
        if execution.is_waiting() {
            calls.suspend(&execution.call().id, RunErrorKind::Waiting);
            driver.judged_calls.remove(&execution.call().id);
            return driver.change_run().record_result(execution).map_err(RunErrorKind::Step);
        }
        self.judge(id, execution).await
    }

    /// Lets the layers judge the outcome of a call, and records it. They judge one at a time, while the other calls continue: a layer can
    /// wait for something that one of them holds.
    async fn judge(&mut self, id: NodeId, mut execution: ToolExecution) -> Result<(), RunErrorKind> {
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

    fn record_outcome(
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
            Err(why @ RunErrorKind::Layer { .. }) => calls.suspend(&call_id, why),
            recorded => calls.events.extend(recorded?),
        }
        Ok(())
    }

    /// Goes on with the run of an agent that has worked. Returns the run that has changed.
    async fn go_on(
        &mut self,
        id: NodeId,
        worked: Result<Result<AgentWork, RunErrorKind>, Panic>,
    ) -> Result<Option<NodeId>, RunErrorKind> {
        let work = match worked {
            Ok(Ok(work)) => work,
            Ok(Err(why)) => return self.suspend(id, why).await,
            Err(panic) => return Ok(Some(self.stop(id, panic))),
        };
        match work {
            AgentWork::Save(phase) => {
                let stopped = self.save(id).await?;
                if stopped.is_none() {
                    self.work(id, phase);
                }
                Ok(stopped)
            }
            AgentWork::Calls(calls) => {
                if let Some(Node { agent: Some(agent), calls: open, .. }) = &mut self.nodes[id] {
                    *open = agent.asked.as_mut().map(|asked| OpenCalls::new(&mut asked.driver, calls));
                }
                Ok(Some(id))
            }
            AgentWork::Waiting => self.suspend(id, RunErrorKind::Waiting).await,
            AgentWork::Done(output) => {
                if let Some(AgentNode { asked_by, asked: Some(asked), panic, .. }) = self.remove(id) {
                    let outcome = match panic {
                        None => asked.finish(output),
                        Some(panic) => {
                            let text = format!("panicked: {}", panic_text(&*panic));
                            Err(ToolError::panicked(&asked_by.call.id, &text))
                        }
                    };
                    // The call waits for it.
                    let _ = asked_by.answer.send(outcome);
                }
                Ok(None)
            }
        }
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
        if let Some(AgentNode { outer, asked_by, .. }) = self.remove(id) {
            if let Some(Calling { calls, .. }) = self.calling(outer) {
                calls.suspend(&asked_by.call.id, why);
                calls.leave(asked_by);
            }
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
                agent.asked.iter_mut().for_each(|asked| asked.driver.cancel());
                self.work(id, AgentPhase::Driving(Phase::Beginning));
                return id;
            }
            Some(Node { agent: Some(AgentNode { outer, .. }), .. }) => *outer,
            _ => resume_unwind(panic),
        };
        self.remove(id);
        self.stop(outer, panic)
    }

    /// Accepts what a call in flight needs. Returns the run that has changed.
    async fn accept(&mut self, id: NodeId, message: Message) -> Result<Option<NodeId>, RunErrorKind> {
        // The run may have stopped meanwhile.
        let Some(Calling { driver, calls, .. }) = self.calling(id) else { return Ok(None) };
        match message {
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
                let agent_call = driver.agent_call(&calls.executor, &asked_by.call);
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

    /// Adds the run of an agent, which begins to work.
    fn add(&mut self, agent: AgentNode) {
        let free = self.nodes.iter().position(Option::is_none);
        let id = free.unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() - 1
        });
        self.nodes[id] = Some(Node { agent: Some(agent), ..Node::default() });
        self.work(id, AgentPhase::Driving(Phase::Beginning));
    }

    /// Lets an agent work on its run.
    fn work(&mut self, id: NodeId, phase: AgentPhase) {
        let Some(Node { agent: Some(agent), running, .. }) = &mut self.nodes[id] else { return };
        let Some(mut asked) = agent.asked.take() else { return };
        let scope = agent.asked_by.scope.clone();
        let work = async move {
            let worked = AssertUnwindSafe(scope.instrument(asked.work(phase))).catch_unwind().await;
            Progress::Worked(asked, worked)
        };
        running.push(work.boxed());
    }

    /// Starts what can start in a run that has changed, saves that, and emits what is new. A run whose calls have ended takes its next
    /// step.
    async fn advance(&mut self, mut id: NodeId) -> Result<(), RunErrorKind> {
        loop {
            if let Err(why) = self.start(id) {
                match self.suspend(id, why).await? {
                    Some(stopped) => id = stopped,
                    None => return Ok(()),
                }
                continue;
            }
            if let Some(stopped) = self.save(id).await? {
                id = stopped;
                continue;
            }
            match self.emit(id).await {
                Ok(None) => {}
                Ok(Some(stopped)) => {
                    id = stopped;
                    continue;
                }
                Err(why) => match self.suspend(id, why).await? {
                    Some(stopped) => {
                        id = stopped;
                        continue;
                    }
                    None => return Ok(()),
                },
            }
            let failure = match &mut self.nodes[id] {
                Some(Node { agent: Some(_), calls: Some(open), running })
                    if running.is_empty() && !open.is_held =>
                {
                    open.failure.take()
                }
                _ => return Ok(()),
            };
            if let Some(Node { calls, .. }) = &mut self.nodes[id] {
                *calls = None;
            }
            match failure {
                Some(why) => match self.suspend(id, why).await? {
                    Some(stopped) => id = stopped,
                    None => return Ok(()),
                },
                None => {
                    self.work(id, AgentPhase::Driving(Phase::Beginning));
                    return Ok(());
                }
            }
        }
    }

    /// Starts the calls of a run that can start now, and lets the layers judge the next outcome. The calls of a run that has stopped end.
    fn start(&mut self, id: NodeId) -> Result<(), RunErrorKind> {
        let Some(Calling { driver, calls, .. }) = self.calling(id) else { return Ok(()) };
        if calls.has_ended(&driver.run) {
            self.end_calls(id);
            return Ok(());
        }
        calls.is_held = false;
        let startable = calls.startable(&driver.run);
        if startable.is_empty() {
            return Ok(());
        }
        let (place, in_flight, exclusive_agents) =
            (self.place(id), self.in_flight(), self.exclusive_agents());
        let in_flight = TreeInFlight::new(in_flight, exclusive_agents.iter().map(Vec::as_slice));
        for call in startable {
            let Some(Calling { driver, calls, .. }) = self.calling(id) else { break };
            let is_exclusive = driver.run.is_exclusive(&call.id);
            let asks_agent = calls.executor.agent_of(&call).is_some();
            if !in_flight.leaves_room(&place, is_exclusive, asks_agent) {
                calls.is_held = true;
                continue;
            }
            let attempt = driver.begin_attempt(&call)?;
            calls.begin(&call, is_exclusive);
            self.execute(id, call, attempt);
        }
        Ok(())
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
    fn execute(&mut self, id: NodeId, call: ToolCall, attempt: Attempt) {
        let sender = self.sender.clone();
        let Some(Calling { driver, calls, running }) = self.calling(id) else { return };
        let executed = execute_call(&driver.run, &calls.executor, call, attempt, (sender, id));
        let executed = match id {
            OUTERMOST => executed.map(Progress::Executed).boxed(),
            _ => {
                let executed = AssertUnwindSafe(executed).catch_unwind();
                executed.map(|executed| executed.map_or_else(Progress::Panicked, Progress::Executed)).boxed()
            }
        };
        running.push(executed);
    }

    /// Emits what is new in a run. Returns the run that has changed, if a hook panics.
    async fn emit(&mut self, id: NodeId) -> Result<Option<NodeId>, RunErrorKind> {
        let Some(Calling { driver, calls, .. }) = self.calling(id) else { return Ok(None) };
        let (events, was_settled) =
            (std::mem::take(&mut calls.events), std::mem::replace(&mut calls.is_settled, true));
        let emitted = async {
            if !was_settled {
                driver.settle_step().await?;
            }
            driver.emit_all(events).await
        };
        if id == OUTERMOST {
            return emitted.await.map(|()| None);
        }
        match AssertUnwindSafe(emitted).catch_unwind().await {
            Ok(emitted) => emitted.map(|()| None),
            Err(panic) => Ok(Some(self.stop(id, panic))),
        }
    }

    /// Records what has changed in a run in those around it, and saves it. If one of these stops by that, nothing is saved yet, and that one is
    /// returned.
    async fn save(&mut self, id: NodeId) -> Result<Option<NodeId>, RunErrorKind> {
        let (mut inner, mut stopped) = (id, None);
        while let Some(Node { agent: Some(agent), .. }) = &mut self.nodes[inner] {
            let (outer, call_id) = (agent.outer, agent.asked_by.call.id.clone());
            let state = agent.asked.as_mut().and_then(|asked| asked.driver.take_state());
            let Some(Calling { driver, calls, .. }) = self.calling(outer) else { break };
            if let Some(state) = state {
                driver.record_state(&call_id, state)?;
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
    fn end_calls(&mut self, id: NodeId) {
        if let Some(node) = &mut self.nodes[id] {
            node.running.clear();
            node.calls.iter_mut().for_each(OpenCalls::clear);
        }
        let is_inside = |node: &Option<Node>| {
            node.as_ref().and_then(|node| node.agent.as_ref()).is_some_and(|agent| agent.outer == id)
        };
        let inside: Vec<_> = (0..self.nodes.len()).filter(|inner| is_inside(&self.nodes[*inner])).collect();
        inside.into_iter().for_each(|inner| drop(self.remove(inner)));
    }

    /// Removes the run of an agent, and the runs inside.
    fn remove(&mut self, id: NodeId) -> Option<AgentNode> {
        self.end_calls(id);
        self.nodes[id].take()?.agent
    }

    /// Returns a run whose calls are executed.
    fn calling(&mut self, id: NodeId) -> Option<Calling<'_>> {
        let Node { agent, calls, running } = self.nodes[id].as_mut()?;
        let driver = match agent {
            Some(agent) => &mut agent.asked.as_mut()?.driver,
            None => &mut *self.outermost,
        };
        Some(Calling { driver, calls: calls.as_mut()?, running })
    }
}
