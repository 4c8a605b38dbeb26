//! Drives the calls of a run and the runs of the agents that they ask, in one loop.
//!
//! - The outermost run, which contains the others, decides what is done (`Engine::poll`) and what follows from it (`Engine::handle`). The tree saves it
//!   before anything is done, and performs what was polled: calls, judgements of their outcomes, and steps of runs inside.
//! - A call that asks an agent ends with its question (`AskingAgent`). The run of the agent begins, and the call is executed again with the answer.
//!   A step of it works until it has to be saved or its calls are to be executed (`StepPhase` and `Work` in `work`), or something is to be awaited
//!   (`Job`). If the run has to wait, the call stays `Running` and is continued, not attempted again, when the outer run is resumed. An undo
//!   call of it continues that run.
//! - Each run of a tree has a driver of its own, and exists once, in the outermost run: a driver has its run only while it works on it
//!   (`HeldRun`), and never while something is awaited. So a save at any time has all of it, and a future that is dropped takes nothing with it
//!   whose calls must still be undone.
//! - Everything is polled in the caller's task, because nothing may outlive the dropped future.
//! - A step of the outermost run is taken while nothing else is in flight. Its calls, one by one, and its model are the caller's step by step.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_channel::{mpsc, oneshot};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};

use super::agent_call::AskedAgent;
use super::held::HeldRun;
use super::job::Apply;
use super::review::OutputRuling;
use super::work::Work;
use crate::agent::executor::{AskedCall, CallExecutor};
use crate::agent::interruption::{Interruption, run_until_interrupted};
use crate::agent::trace::Scope;
use crate::agent::{Event, RunDriver};
use crate::model::ToolCall;
use crate::run::{Effect, EffectId, EffectResult, GivenUp, LayerSubject, Run, RunErrorKind, RunPath};
use crate::tool::{Attempt, CallNotes, ToolExecution, ToolOutput, panic_text};

/// Runs that are driven together: one whose calls are executed, and those of the agents that these ask, at any depth.
pub(super) struct RunTree<'d> {
    pub(super) outermost: &'d mut RunDriver,
    own: Place,
    pub(super) inside: BTreeMap<RunPath, AskedRun>,
    /// Of the present step: a task that an earlier call has left behind has nobody to record something.
    pub(super) sender: mpsc::Sender<(RunPath, Noted)>,
    notes: mpsc::Receiver<(RunPath, Noted)>,
    /// The runs in which something has changed that the runs around them do not know yet.
    pub(super) changed: BTreeSet<RunPath>,
    /// Calls whose notes are to be saved before they go on.
    pub(super) noted: Vec<oneshot::Sender<()>>,
    /// What is emitted once it is saved.
    pub(super) events: Vec<(RunPath, Event)>,
    /// Tools are to know which calls are given up, once that is saved.
    gives_up: Option<(EffectId, Vec<GivenUp>)>,
    /// The step of the outermost run is announced.
    is_settled: bool,
    /// When the loop ends.
    until: Until,
    /// Why nothing further is done for runs, other than that they wait.
    pub(super) failures: Vec<(RunPath, RunErrorKind)>,
}

/// When the loop of a tree ends.
#[derive(PartialEq)]
enum Until {
    /// Nothing is left to do, or nothing can be done now.
    End,
    /// The outermost run has taken a step.
    Step,
    /// This call is executed, whose outcome the caller records.
    Executed(ToolCall),
}

type Panic = Box<dyn Any + Send>;

/// What is done for a run, and what executes its calls.
#[derive(Default)]
pub(super) struct Place {
    pub(super) running: FuturesUnordered<RunningEffect>,
    pub(super) executor: Option<Arc<CallExecutor>>,
}

/// What is done for an effect.
pub(super) struct RunningEffect {
    id: EffectId,
    done: BoxFuture<'static, TreeProgress>,
}

impl Future for RunningEffect {
    type Output = (EffectId, TreeProgress);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.done.poll_unpin(context).map(|progress| (self.id.clone(), progress))
    }
}

/// The run of an agent that a call asked.
pub(super) struct AskedRun {
    pub(super) place: Place,
    pub(super) asked_by: AskedCall,
    pub(super) asked: Box<AskedAgent>,
    /// What the agent has answered, while that is saved.
    pub(super) output: Option<ToolOutput>,
    /// A step of it is taken, which limits its time itself.
    pub(super) is_in_step: bool,
    /// Persons were asked, and it waits for others.
    pub(super) has_asked_persons: bool,
    /// What has happened before its step cannot be reported to a layer.
    pub(super) failure: Option<RunErrorKind>,
}

/// What was done.
pub(super) enum TreeProgress {
    Executed(Box<ToolExecution>),
    /// A call asks its agent this, or nothing if the run of the agent goes on.
    Asked(String, Box<AskedCall>),
    /// The layers have judged an outcome.
    Judged(Box<(ToolExecution, OutputRuling)>),
    /// A job of the run of an agent is done.
    Performed(Apply<Work>),
    /// Tools know which calls are given up.
    Reported,
    /// A hook has panicked.
    Panicked(Panic),
}

/// How the loop of a tree has ended.
enum Ended {
    /// Nothing is left to do.
    Done,
    /// The outermost run has taken a step.
    Step,
    /// The call has an outcome.
    Executed(Box<ToolExecution>),
}

/// A call in flight has recorded a value, and continues once these notes are saved.
pub(super) struct Noted {
    pub(super) call_id: String,
    pub(super) notes: CallNotes,
    pub(super) noted: oneshot::Sender<()>,
}

/// What is next.
enum NextMove {
    /// Something was done, at this place.
    Progress(RunPath, EffectId, TreeProgress),
    Noted(RunPath, Noted),
    Interrupted(RunPath, Interruption),
}

impl RunDriver {
    /// Drives the run until nothing is left to do.
    pub(in crate::agent) async fn drive_to_end(&mut self) -> Result<(), RunErrorKind> {
        loop {
            let Err(kind) = self.drive_tree().await else { return Ok(()) };
            self.store_failure(&kind).await;
            // Nobody resumes the run for a command that was posted while this driver had the lease.
            if !matches!(kind, RunErrorKind::Waiting) || !self.has_posted().await {
                return Err(kind);
            }
        }
    }

    /// Drives the run until nothing is left to do, or it cannot go on.
    pub(super) async fn drive_tree(&mut self) -> Result<(), RunErrorKind> {
        let span = self.enter_span();
        span.instrument(RunTree::new(self, Until::End).run()).await.map(drop)
    }

    /// Takes a step of the run: asks its model, or executes calls and records their outcomes. Returns `false` if nothing is left to do.
    pub(super) async fn take_step(&mut self) -> Result<bool, RunErrorKind> {
        let span = self.enter_span();
        let taken = span.instrument(RunTree::new(self, Until::Step).run()).await;
        if let Err(kind) = &taken {
            self.store_failure(kind).await;
        }
        Ok(!matches!(taken?, Ended::Done))
    }

    /// Executes one call that was started, with the run of an agent that it asks. Returns its outcome, unless the run ended meanwhile.
    pub(super) async fn execute_one(
        &mut self,
        call: ToolCall,
        attempt: Attempt,
    ) -> Result<Option<ToolExecution>, RunErrorKind> {
        let mut tree = RunTree::new(self, Until::Executed(call.clone()));
        tree.open_step(Vec::new());
        let id = tree.outermost.run.engine().begin_started_call(call.clone(), attempt.clone());
        tree.execute(id, call, attempt);
        match tree.run().await? {
            Ended::Executed(execution) => Ok(Some(*execution)),
            Ended::Done | Ended::Step => Ok(None),
        }
    }
}

impl<'d> RunTree<'d> {
    fn new(outermost: &'d mut RunDriver, until: Until) -> Self {
        let (sender, notes) = mpsc::channel(0);
        Self {
            outermost,
            own: Place::default(),
            inside: BTreeMap::new(),
            sender,
            notes,
            changed: BTreeSet::new(),
            noted: Vec::new(),
            events: Vec::new(),
            gives_up: None,
            is_settled: true,
            until,
            failures: Vec::new(),
        }
    }

    async fn run(&mut self) -> Result<Ended, RunErrorKind> {
        if !matches!(self.until, Until::Executed(_))
            && let Some(ended) = self.take_own_steps().await?
        {
            return Ok(ended);
        }
        loop {
            self.begin_effects().await?;
            if !self.is_running(&RunPath::default()) {
                let ended = self.end()?;
                match self.until {
                    Until::Step | Until::Executed(_) => return Ok(ended),
                    Until::End => {}
                }
                if let Some(ended) = self.take_own_steps().await? {
                    return Ok(ended);
                }
                continue;
            }
            match self.next().await {
                NextMove::Progress(place, _, TreeProgress::Executed(execution))
                    if matches!(self.until, Until::Executed(_)) && place.depth() == 0 =>
                {
                    return Ok(Ended::Executed(execution));
                }
                NextMove::Progress(place, id, progress) => self.record(place, id, progress).await?,
                NextMove::Noted(path, noted) => self.record_notes(path, noted)?,
                NextMove::Interrupted(path, interruption) => {
                    self.driver(&path).into_iter().for_each(|mut driver| driver.interrupt(&interruption));
                    self.changed.insert(path);
                }
            }
        }
    }

    /// Returns how the loop ends if nothing is in flight.
    fn end(&mut self) -> Result<Ended, RunErrorKind> {
        // What is left waits.
        for inside in std::mem::take(&mut self.inside).into_values() {
            inside.asked_by.span.suspend();
        }
        let run = &mut self.outermost.run;
        let is_stalled = |path: &RunPath| run.inner_run_at(path.calls()).is_some_and(Run::is_stalled);
        let failure = std::mem::take(&mut self.failures).into_iter().find(|(path, _)| is_stalled(path));
        if let Until::Executed(call) = &self.until
            && let Some(outcome) = run.take_outcome_to_judge(&call.id)
        {
            return Ok(Ended::Executed(outcome.into()));
        }
        match (failure, &self.until) {
            (Some((_, why)), _) => Err(why),
            (None, Until::Executed(call)) if run.has_open_call(&call.id) => Err(RunErrorKind::Waiting),
            (None, _) => Ok(Ended::Step),
        }
    }

    /// Begins what is next in the tree, saves that, and emits what is new.
    async fn begin_effects(&mut self) -> Result<(), RunErrorKind> {
        loop {
            let changed = self.note_changes();
            let mut has_begun = self.ask_persons(&changed);
            let group: Vec<_> = iter::from_fn(|| self.outermost.run.engine().poll()).collect();
            has_begun |= !group.is_empty();
            for (id, effect) in group {
                self.begin_effect(id, effect).await?;
            }
            if has_begun {
                continue;
            }
            self.outermost.store_run().await?;
            for noted in self.noted.drain(..) {
                // The call may have been dropped meanwhile.
                let _ = noted.send(());
            }
            self.settle();
            if !self.emit().await? {
                return Ok(());
            }
        }
    }

    async fn begin_effect(&mut self, id: EffectId, effect: Effect) -> Result<(), RunErrorKind> {
        match effect {
            Effect::Call(request) | Effect::Begin(request) => {
                let path = id.path().clone();
                // A run that exists goes on once its agent is there.
                if self.outermost.run.inner_run_at(path.inside(&request.call.id).calls()).is_none() {
                    self.outermost.run.engine().set_executing_at(&id);
                }
                self.set_unsaved(&path);
                self.contain(&path, |tree| tree.execute(id, request.call, request.attempt));
            }
            Effect::Judge(LayerSubject::Execution(execution)) => self.judge(id, *execution).boxed().await?,
            Effect::GiveUp => self.gives_up = Some((id, self.outermost.run.given_up_calls())),
            Effect::CallModel | Effect::End | Effect::Judge(_) => {
                self.begin_step(id);
            }
        }
        Ok(())
    }

    /// Takes steps of the outermost run, while nothing else is in flight, until its calls can start, or the loop ends.
    async fn take_own_steps(&mut self) -> Result<Option<Ended>, RunErrorKind> {
        loop {
            self.outermost.run.clear_stall();
            match self.outermost.take_step_to_calls().await? {
                Work::Calls(calls) => {
                    self.open_step(calls);
                    return Ok(None);
                }
                Work::Waiting => return Err(RunErrorKind::Waiting),
                Work::Done => return Ok(Some(Ended::Done)),
                _ if self.until == Until::Step => return Ok(Some(Ended::Step)),
                _ => {}
            }
        }
    }

    /// Lets these calls of the outermost run start.
    fn open_step(&mut self, calls: Vec<ToolCall>) {
        let is_executed = matches!(self.until, Until::Executed(_));
        self.outermost.run.engine().track_changes(is_executed);
        (self.sender, self.notes) = mpsc::channel(0);
        self.own.executor = Some(self.outermost.open_step(calls));
        self.is_settled = is_executed;
    }

    /// Asks the deciders of runs inside that wait, innermost first.
    fn ask_persons(&mut self, changed: &BTreeSet<RunPath>) -> bool {
        let mut places: Vec<_> = changed.iter().filter(|path| path.depth() > 0).collect();
        places.sort_by_key(|path| Reverse(path.depth()));
        let mut has_begun = false;
        for path in places {
            let has_asked = self.inside.get(path).is_none_or(|inside| inside.has_asked_persons);
            let waits = |run: &Run| run.is_blocked() && !run.is_stalled();
            let waits = || self.outermost.run.inner_run_at(path.calls()).is_some_and(waits);
            if !has_asked
                && waits()
                && !self.is_running(path)
                && !self.outermost.run.engine_view().awaits_at(path)
            {
                let id = self.outermost.run.engine().begin_step_at(path);
                self.begin_step(id);
                has_begun = true;
            }
        }
        has_begun
    }

    /// Reports to tools which calls are given up, and queues what is new in the outermost run, once both are saved.
    fn settle(&mut self) {
        if let Some((id, given_up)) = self.gives_up.take() {
            let job = self.outermost.give_up_calls(given_up);
            self.push(&RunPath::default(), id, job.0.map(|_| TreeProgress::Reported).boxed());
        }
        if !std::mem::replace(&mut self.is_settled, true) {
            self.outermost.queue_news();
            let news = std::mem::take(&mut self.outermost.news.events);
            self.events.extend(news.into_iter().map(|event| (RunPath::default(), event)));
        }
    }

    /// Emits what is saved. Returns `true` if a hook of a run inside has panicked.
    async fn emit(&mut self) -> Result<bool, RunErrorKind> {
        match self.events.is_empty() {
            true => Ok(false),
            // Boxed, because events are large, and runs that wait as well.
            false => self.emit_new().boxed().await,
        }
    }

    async fn emit_new(&mut self) -> Result<bool, RunErrorKind> {
        let (mut has_panicked, mut failed) = (false, Ok(()));
        let mut events = std::mem::take(&mut self.events).into_iter().peekable();
        while let Some((path, first)) = events.next() {
            let others = iter::from_fn(|| events.next_if(|(other, _)| *other == path));
            let of_run: Vec<_> = iter::once(first).chain(others.map(|(_, event)| event)).collect();
            let Some(driver) = self.driver(&path) else { continue };
            let emitting = driver.emit_all(of_run);
            drop(driver);
            if path.depth() == 0 {
                failed = failed.and(emitting.await);
                continue;
            }
            match AssertUnwindSafe(emitting).catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => match self.inside.get_mut(&path).filter(|inside| inside.is_in_step) {
                    // Its step ends with it.
                    Some(inside) => inside.failure = Some(why),
                    None => self.stall(&path, why),
                },
                Err(panic) => {
                    self.stop(&path, panic);
                    has_panicked = true;
                }
            }
        }
        failed.map(|()| has_panicked)
    }

    /// Waits for what is next. What undoes a call is not interrupted.
    async fn next(&mut self) -> NextMove {
        self.count_time();
        let root = RunPath::default();
        let first = self.outermost.run.engine_view().limit_of(iter::once(&root).chain(self.inside.keys()));
        let first = first.map(|(path, left)| (path.clone(), left));
        let cancellation = self.outermost.question.cancellation.clone();
        let cancellation = cancellation.filter(|_| self.outermost.run.engine_view().is_interruptible());
        let (own, inside, notes) = (&mut self.own, &mut self.inside, &mut self.notes);
        let progress = poll_fn(|context| {
            if let Poll::Ready(Some((path, noted))) = notes.poll_next_unpin(context) {
                return Poll::Ready(NextMove::Noted(path, noted));
            }
            if let Poll::Ready(Some((id, progress))) = own.running.poll_next_unpin(context) {
                return Poll::Ready(NextMove::Progress(RunPath::default(), id, progress));
            }
            for (path, inside) in &mut *inside {
                if let Poll::Ready(Some((id, progress))) = inside.place.running.poll_next_unpin(context) {
                    return Poll::Ready(NextMove::Progress(path.clone(), id, progress));
                }
            }
            Poll::Pending
        });
        let left = first.as_ref().map(|(_, left)| *left);
        let next = run_until_interrupted(progress, cancellation.as_ref(), left).await;
        self.count_time();
        next.unwrap_or_else(|interruption| {
            let of_limit = first.filter(|_| matches!(interruption, Interruption::TimeLimit));
            NextMove::Interrupted(of_limit.map(|(path, _)| path).unwrap_or_default(), interruption)
        })
    }

    /// Counts the time that has passed.
    fn count_time(&mut self) {
        let root = RunPath::default();
        if let Some(passed) = self.outermost.read_clock() {
            self.outermost.run.engine().advance_at(passed, iter::once(&root).chain(self.inside.keys()));
        }
    }

    /// Records what was done.
    async fn record(
        &mut self,
        place: RunPath,
        id: EffectId,
        progress: TreeProgress,
    ) -> Result<(), RunErrorKind> {
        self.changed.insert(place.clone());
        match progress {
            TreeProgress::Executed(execution) => {
                self.contain(&place, |tree| tree.end_call(&place, &id, *execution));
            }
            TreeProgress::Asked(question, asked_by) => {
                return self
                    .contain(&place, |tree| tree.begin_agent(id, question, *asked_by))
                    .unwrap_or(Ok(()));
            }
            TreeProgress::Judged(judged) => {
                let (execution, ruling) = *judged;
                return self
                    .contain(&place, |tree| tree.record_outcome(&id, execution, ruling))
                    .unwrap_or(Ok(()));
            }
            TreeProgress::Performed(apply) => self.apply(&id, apply).boxed().await,
            TreeProgress::Reported => drop(self.outermost.run.engine().handle(&id, EffectResult::Nothing)),
            TreeProgress::Panicked(panic) => {
                self.inside.get_mut(id.path()).into_iter().for_each(|inside| inside.is_in_step = false);
                let _ = self.outermost.run.engine().handle(&id, EffectResult::Nothing);
                self.stop(&place, panic);
            }
        }
        Ok(())
    }

    /// Does something for a run, which stops if it is inside and its agent panics.
    pub(super) fn contain<T>(&mut self, path: &RunPath, act: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if path.depth() == 0 {
            return Some(act(self));
        }
        match catch_unwind(AssertUnwindSafe(|| act(self))) {
            Ok(done) => Some(done),
            Err(panic) => {
                self.stop(path, panic);
                None
            }
        }
    }

    /// Stops a run whose agent has panicked, and undoes its calls. A panic of the outermost agent is the caller's.
    pub(super) fn stop(&mut self, path: &RunPath, panic: Panic) {
        // A run around can stop as well.
        (0..=path.depth()).for_each(|depth| self.set_unsaved(&path.at_depth(depth)));
        if self.outermost.run.engine().stop_panicked(path, panic_text(&*panic).to_owned()) {
            resume_unwind(panic);
        }
    }

    /// Does nothing further for a run, for this reason.
    pub(super) fn stall(&mut self, path: &RunPath, why: RunErrorKind) {
        self.outermost.run.engine().stall_at(path);
        self.changed.insert(path.clone());
        self.failures.push((path.clone(), why));
    }

    /// Records what has changed in runs in those around them, which stop if their limits are exceeded by that. What is no longer awaited is
    /// dropped. Returns the runs.
    pub(super) fn note_changes(&mut self) -> BTreeSet<RunPath> {
        let (mut changed, mut noted) = (std::mem::take(&mut self.changed), BTreeSet::new());
        if changed.is_empty() {
            return noted;
        }
        while let Some(path) = changed.iter().max_by_key(|path| path.depth()).cloned() {
            changed.remove(&path);
            let outer = path.depth().checked_sub(1).map(|depth| path.at_depth(depth));
            if let Some(outer) = outer {
                let has_changed = self.driver(&path).is_some_and(|mut driver| driver.take_unsaved());
                if has_changed && let Some(mut driver) = self.driver(&outer) {
                    driver.note_change_inside();
                }
                changed.insert(outer);
            }
            noted.insert(path);
        }
        self.outermost.run.engine().note_changed(&noted);
        self.drop_abandoned(&noted);
        noted
    }

    /// Drops what is done for effects that are no longer awaited, and the agents of runs that are no longer part of the tree.
    fn drop_abandoned(&mut self, changed: &BTreeSet<RunPath>) {
        let mut places = BTreeSet::new();
        while let Some(id) = self.outermost.run.engine().poll_abandoned() {
            // The call of an agent that has answered ends where it was begun.
            places.extend(id.path().depth().checked_sub(1).map(|depth| id.path().at_depth(depth)));
            places.insert(id.path().clone());
        }
        for path in changed {
            if !self.outermost.run.inner_run_at(path.calls()).is_some_and(Run::is_calling) {
                let below = self.inside.range(path.clone()..).map(|(path, _)| path);
                let below = below.take_while(|other| other.is_below(path)).filter(|other| *other != path);
                places.extend(below.cloned());
            }
        }
        for path in places {
            if self.outermost.run.inner_run_at(path.calls()).is_none() {
                self.remove(&path);
                continue;
            }
            let run = &self.outermost.run;
            let place = match path.depth() {
                0 => Some(&mut self.own),
                _ => self.inside.get_mut(&path).map(|inside| &mut inside.place),
            };
            if let Some(place) = place {
                let running = std::mem::take(&mut place.running).into_iter();
                place.running = running.filter(|job| run.engine_view().is_awaited(&job.id)).collect();
            }
        }
    }

    /// Removes the runs of an agent and of those that it has asked.
    pub(super) fn remove(&mut self, path: &RunPath) -> Option<AskedRun> {
        let is_below = |other: &&RunPath| other.is_below(path);
        let below: Vec<_> =
            self.inside.range(path.clone()..).map(|(path, _)| path).take_while(is_below).cloned().collect();
        let mut removed = below.iter().map(|path| self.inside.remove(path)).collect::<Vec<_>>().into_iter();
        removed.next().flatten().filter(|_| below.first() == Some(path))
    }

    /// Returns `true` if something is done for a run, or for one of an agent that its calls have asked.
    pub(super) fn is_running(&self, path: &RunPath) -> bool {
        let is_own = path.depth() == 0 && !self.own.running.is_empty();
        let mut below = self.inside.range(path.clone()..).take_while(|(other, _)| other.is_below(path));
        is_own || below.any(|(_, inside)| !inside.place.running.is_empty())
    }

    /// Returns the driver of a run, with the run, unless it is no longer part of the tree.
    pub(super) fn driver(&mut self, path: &RunPath) -> Option<HeldRun<'_>> {
        if path.depth() == 0 {
            return Some(HeldRun::outermost(&mut *self.outermost));
        }
        let inside = self.inside.get_mut(path)?;
        Some(HeldRun::inside(&mut inside.asked.driver, self.outermost.run.inner_run_slot(path.ids())?))
    }

    /// Returns the agent of a run inside, with the scope of its call, unless the run is no longer part of the tree.
    pub(super) fn agent(&mut self, path: &RunPath) -> Option<(HeldRun<'_, AskedAgent>, Scope)> {
        let inside = self.inside.get_mut(path)?;
        let slot = self.outermost.run.inner_run_slot(path.ids())?;
        Some((HeldRun::inside(&mut *inside.asked, slot), inside.asked_by.span.scope()))
    }

    pub(super) fn place(&mut self, path: &RunPath) -> Option<&mut Place> {
        match path.depth() {
            0 => Some(&mut self.own),
            _ => self.inside.get_mut(path).map(|inside| &mut inside.place),
        }
    }

    /// Does something for a run at its place. Nothing of it happens before it is polled.
    pub(super) fn push(&mut self, path: &RunPath, id: EffectId, done: BoxFuture<'static, TreeProgress>) {
        let Some(place) = self.place(path) else { return };
        let done = match path.depth() {
            0 => done,
            _ => {
                let done = AssertUnwindSafe(done).catch_unwind();
                done.map(|progress| progress.unwrap_or_else(TreeProgress::Panicked)).boxed()
            }
        };
        place.running.push(RunningEffect { id, done });
    }

    /// States that a run has changed.
    pub(super) fn set_unsaved(&mut self, path: &RunPath) {
        self.driver(path).into_iter().for_each(|mut driver| driver.storage.has_unsaved_changes = true);
        self.changed.insert(path.clone());
    }
}

impl Drop for RunTree<'_> {
    fn drop(&mut self) {
        self.outermost.run.engine().forget_awaited();
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
        let clerk = Agent::builder(clerk).tools(Wait(ToolDefinition::new("wait"))).build().unwrap();
        let question = r#"{"question": "?"}"#;
        let desk = ScriptedModel::new().calls_all([("clerk", question)]);
        let desk = Agent::builder(desk).tools(clerk.as_tool("clerk", "Waits")).build().unwrap();
        let mut driver = desk.ask("Go").start();
        let mut tree = RunTree::new(&mut driver, Until::End);
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
