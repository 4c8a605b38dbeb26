//! Tasks: calls that wait, or take long, for hosts that fetch their results later.
//!
//! A task is a stored run with one call, because approvals, questions, leases, undo and recovery are rules of a run. Everything that a host asks
//! for is read from the store, so each process that has it answers. The store finds a run only by a digest of the id of its task and its
//! caller: the id of another caller is unknown like any other.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use rmcp::model::{CreateTaskResult, DetailedTask, ErrorData, InputResponses, TaskStatus};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tool_core::agent::{Ask, CommandErrorKind, RecoveryTask, RunDriver};
use tool_core::engine::{CallRequest, RunDriverExt, ToolSetExt};
use tool_core::memory::{RunFilter, RunStatus, RunSummary};
use tool_core::signatures::Timestamp;
use tool_core::{Agent, Message, ToolContext, ToolError, ToolSet};
use tool_http::server::{Caller, SenderPermits};

use super::authorize::Principal;
use super::found_task::{FoundTask, task_of};
use super::output::OutputSchema;
use super::questions::{HostCall, decision_of, has_long_arguments, read_response, why_not_asked};
use super::shares::{RequestPermits, Shares};
use super::task_driver::{TaskDriver, start};
use super::task_id::TaskId;

/// The most open tasks of one caller, its most tasks with those that have ended, and the most open tasks of all callers.
const MAX_OPEN_TASKS_OF_CALLER: usize = 100;
const MAX_TASKS_OF_CALLER: usize = 1_000;
const MAX_OPEN_TASKS: usize = 10_000;
/// The most tasks of one caller that have ended, and the bytes of their arguments and outputs. The oldest are removed.
const MAX_ENDED_TASKS_OF_CALLER: usize = MAX_TASKS_OF_CALLER - MAX_OPEN_TASKS_OF_CALLER;
const MAX_ENDED_BYTES_OF_CALLER: usize = 64 << 20;
/// The most expired tasks that are ended with each that begins.
const MAX_EXPIRED_AT_ONCE: usize = 8;
/// The time for which the tasks of all callers are known. To read them for each task would make it as expensive as all others.
const OVERVIEW_LIFETIME: Duration = Duration::from_secs(60);
/// The most calls that wait to be stored, and those of one caller.
const MAX_STORING: usize = 1_024;
const MAX_STORING_OF_CALLER: usize = 64;

/// What is known of the tasks of all callers.
struct Overview {
    listed: Instant,
    /// The open ones, with those that this process has begun since.
    open: usize,
    /// Those that nothing else ends.
    expired: Vec<RunSummary>,
}

/// The tasks of a server.
pub(super) struct Tasks {
    driver: TaskDriver,
    /// How long a task is kept after its last change.
    lifetime: Duration,
    recovery: Lock<Option<RecoveryTask>>,
    /// Limits the calls that wait to be stored, also those of streams.
    storing: SenderPermits,
    /// Held while a task is counted and stored, so that a caller does not exceed its limits, and makes no other wait.
    beginning: Shares,
    overview: Lock<Option<Overview>>,
}

impl Drop for Tasks {
    /// Leaves what runs to the next server, unless this one stops and gives it time to end.
    fn drop(&mut self) {
        self.driver.end_unless_stopping();
        if let Some(recovery) = self.recovery.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            recovery.stop();
        }
    }
}

impl Tasks {
    pub(super) fn new(driver: TaskDriver, lifetime: Duration) -> Self {
        let storing = SenderPermits::new(MAX_STORING, MAX_STORING_OF_CALLER);
        let beginning = Shares::new(1);
        Self { driver, lifetime, recovery: Lock::default(), storing, beginning, overview: Lock::default() }
    }

    /// Continues tasks that nobody drives, from now on.
    pub(super) fn recover_on(&self, host: &Handle) {
        let mut recovery = self.recovery.lock().unwrap_or_else(PoisonError::into_inner);
        // Its runtime may have ended.
        if recovery.as_ref().is_none_or(RecoveryTask::is_finished) {
            let _entered = host.enter();
            *recovery = Some(self.driver.recover());
        }
    }

    /// Makes a call of one of these tools a task. It is stored before the host reads its id. If the returned future is dropped, no host has the
    /// id, and the task is cancelled. The permits of its request are held until it is stored.
    pub(super) async fn begin(
        self: &Arc<Self>,
        host: Handle,
        caller: Caller,
        call: HostCall,
        tools: ToolSet,
        context: ToolContext,
        permits: Option<Arc<RequestPermits>>,
    ) -> Result<CreateTaskResult, ToolError> {
        let (sender, created) = oneshot::channel();
        let (tasks, permit) = (Arc::clone(self), self.storing.acquire(TaskId::run_prefix(caller)));
        host.spawn(async move {
            let (mut surplus, is_deferred) = (Vec::new(), call.is_deferred());
            let executed = call.was_executed().then(|| call.run.clone());
            let stored = match &permit {
                Ok(_) => tasks.store(caller, call, &context, &mut surplus).await,
                Err(_) => Err(too_many()),
            };
            drop(permits);
            match stored {
                Ok((result, driver)) => {
                    let (announced, is_announced) = oneshot::channel();
                    let _ = sender.send(Ok((result, announced)));
                    match is_announced.await {
                        // A person decides first.
                        Ok(()) if is_deferred => {}
                        Ok(()) => tasks.drive(driver),
                        Err(_) => drop(tasks.cancel_run(driver).await),
                    }
                }
                Err(error) => {
                    let error = match executed {
                        Some(executed) => {
                            if let Some(request) = CallRequest::of_run(&executed) {
                                tools.give_up(request, &context);
                            }
                            ToolError::outcome_unknown()
                        }
                        None => error,
                    };
                    drop(sender.send(Err(error)));
                }
            }
            tasks.remove(surplus).await;
        });
        let (result, announced) = created.await.map_err(|_| not_stored())??;
        let _ = announced.send(());
        Ok(result)
    }

    /// Stores a task, unless there are too many. `surplus` receives those that nothing else removes: those of all callers that have expired, and
    /// the oldest of this caller that have ended.
    async fn store(
        &self,
        caller: Caller,
        call: HostCall,
        context: &ToolContext,
        surplus: &mut Vec<RunSummary>,
    ) -> Result<(CreateTaskResult, RunDriver), ToolError> {
        let is_deferred = call.is_deferred();
        let (id, mut run) = call.into_task().ok_or_else(not_stored)?;
        let mut calls =
            run.messages().iter().filter_map(Message::as_assistant).flat_map(|one| &one.tool_calls);
        if calls.any(has_long_arguments) {
            return Err(ToolError::failed(
                "the call has to wait, and its arguments are too long to be stored",
            ));
        }
        let prefix = TaskId::run_prefix(caller);
        let _beginning = self.beginning.acquire(&prefix).await;
        let agent = self.agent();
        let all = agent.name().into_iter().fold(RunFilter::new(), RunFilter::agent);
        // The tasks of a caller have the same user, if it has one.
        let filter = run.user().into_iter().fold(all.clone(), |filter, user| filter.user(user.clone()));
        let listed = agent.list_runs(&filter).await.map_err(|_| not_stored())?;
        if run.user().is_none() {
            self.note_all(&listed);
        } else if !self.knows_all() {
            self.note_all(&agent.list_runs(&all).await.map_err(|_| not_stored())?);
        }
        let own = || listed.iter().filter(|run| run.id.starts_with(&prefix));
        let ended = surplus_of(own().filter(|run| run.status == RunStatus::Finished));
        let remaining = own().count() - ended.len();
        surplus.extend(ended.into_iter().cloned());
        let open_of_caller = own().filter(|run| !has_ended(run.status)).count();
        let has_room = self.count_of_all(surplus);
        if open_of_caller >= MAX_OPEN_TASKS_OF_CALLER || remaining >= MAX_TASKS_OF_CALLER || !has_room {
            return Err(too_many());
        }
        if is_deferred {
            let (run_id, store) = (run.id().to_string(), agent.run_store().ok_or_else(not_stored)?);
            if store.save_run(&run_id, &mut run).await.is_err() {
                return Err(self.withdraw(&run_id).await);
            }
        }
        let ask = agent.resume(run);
        let mut driver = start(context.get::<Principal>().cloned().into_iter().fold(ask, Ask::context));
        // Without a lease, another process would continue it before this one does.
        if !is_deferred && driver.store_under_lease().await.is_err() {
            return Err(self.withdraw(driver.run().id().as_str()).await);
        }
        let created = task_of(&id, TaskStatus::Working, Timestamp::now(), self.lifetime);
        Ok((CreateTaskResult::new(created), driver))
    }

    fn overview(&self) -> MutexGuard<'_, Option<Overview>> {
        self.overview.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if the tasks of all callers were listed a short time ago.
    fn knows_all(&self) -> bool {
        self.overview().as_ref().is_some_and(|overview| overview.listed.elapsed() < OVERVIEW_LIFETIME)
    }

    /// Records what is to be known of the tasks of all callers.
    fn note_all(&self, listed: &[RunSummary]) {
        let open = listed.iter().filter(|run| !has_ended(run.status)).count();
        let expired = listed.iter().filter(|run| self.has_expired(run)).cloned().collect();
        *self.overview() = Some(Overview { listed: Instant::now(), open, expired });
    }

    /// Counts a further task among those of all callers, and moves some that have expired to `surplus`. Returns `false` if there are too many.
    fn count_of_all(&self, surplus: &mut Vec<RunSummary>) -> bool {
        let mut overview = self.overview();
        let Some(overview) = &mut *overview else { return true };
        let kept = overview.expired.len().saturating_sub(MAX_EXPIRED_AT_ONCE);
        surplus.extend(overview.expired.drain(kept..));
        let has_room = overview.open < MAX_OPEN_TASKS;
        overview.open += usize::from(has_room);
        has_room
    }

    /// Cancels a run that may be stored although its store has failed, because the host calls again. Returns what the host reads.
    async fn withdraw(&self, run: &str) -> ToolError {
        match self.agent().cancel(run).await {
            Ok(()) => not_stored(),
            Err(error) if matches!(error.kind(), CommandErrorKind::UnknownRun) => not_stored(),
            Err(_) => ToolError::outcome_unknown(),
        }
    }

    /// Removes tasks that have ended, and ends those that have expired after effects, or could not be undone.
    async fn remove(&self, surplus: Vec<RunSummary>) {
        for run in surplus {
            match (run.status, self.agent().run_store()) {
                (RunStatus::Finished, Some(store)) => drop(store.remove_run(&run.id).await),
                _ => {
                    self.end(&run).await;
                }
            }
        }
    }

    /// Returns `true` for a task that nothing else ends.
    fn has_expired(&self, run: &RunSummary) -> bool {
        match run.status {
            RunStatus::Expired => true,
            RunStatus::Cancelled | RunStatus::NotUndone => run.age >= self.lifetime,
            _ => false,
        }
    }

    /// Ends a task that has expired, and leaves what its call has done. Returns `false` if somebody has continued it meanwhile.
    async fn end(&self, run: &RunSummary) -> bool {
        match self.agent().stored_run(&run.id).await {
            Ok(Some(stored)) if stored.run.revision() == Some(&run.revision) => {
                self.agent().end(stored.run).await.is_ok()
            }
            _ => false,
        }
    }

    fn agent(&self) -> &Agent {
        &self.driver.agent
    }

    fn drive(&self, driver: RunDriver) {
        let (id, cancellation) = (driver.run().id().to_string(), driver.cancellation());
        tokio::spawn(self.driver.clone().drive(id, ready(Some(driver)).boxed(), cancellation));
    }

    /// Returns a task of this caller, if `may_use` admits its tool.
    pub(super) async fn find(
        &self,
        caller: Caller,
        id: &str,
        may_use: impl Fn(&str) -> bool,
    ) -> Result<FoundTask, ErrorData> {
        let unknown = || ErrorData::invalid_params("there is no such task, or it has expired", None);
        let id = TaskId::parse(id).ok_or_else(unknown)?;
        let run = id.run_id(caller);
        let listed = self.agent().list_runs(&RunFilter::new().id(&run)).await.map_err(not_read)?.pop();
        let (listed, store) = listed.zip(self.agent().run_store()).ok_or_else(unknown)?;
        let run = store.load_run(&listed.id).await.map_err(not_read)?.ok_or_else(unknown)?;
        let found = FoundTask { id, run, listed };
        match may_use(found.tool().ok_or_else(unknown)?) {
            true => Ok(found),
            false => Err(ErrorData::invalid_request("the task needs further scopes", None)),
        }
    }

    /// Returns a task as [hosts read it](FoundTask::describe). One that has expired ends first, because a person could continue it otherwise, and
    /// what a host has read as the end is final.
    pub(super) async fn describe(
        &self,
        mut found: FoundTask,
        schemas: &BTreeMap<String, OutputSchema>,
        unable: Option<&'static str>,
    ) -> DetailedTask {
        if self.has_expired(&found.listed) {
            found.listed.status = match self.end(&found.listed).await {
                true => RunStatus::Expired,
                false => RunStatus::RunningElsewhere,
            };
        }
        found.describe(schemas, unable, self.lifetime)
    }

    /// Records what the user of the host has answered. Other answers are ignored.
    pub(super) async fn answer(&self, task: &FoundTask, responses: &InputResponses) -> Result<(), ErrorData> {
        let mut decisions = Vec::new();
        for wait in task.run.waits() {
            let Some(response) = responses.get(wait.id.as_str()) else { continue };
            let decision = decision_of(&wait, read_response(response)?);
            // What does not fit is asked for again. The host does not decide about anything else.
            if why_not_asked(&wait).is_none() && wait.question().is_some() && wait.check(&decision).is_ok() {
                decisions.push((wait.id, decision));
            }
        }
        if decisions.is_empty() {
            return Ok(());
        }
        // Somebody else may have answered first, or nobody can any more.
        if let Ok(decided) = self.agent().decide_all(task.run.id().as_str(), decisions).await
            && let Some(ask) = decided.resume()
        {
            self.drive(start(ask));
        }
        Ok(())
    }

    /// Cancels a task, unless it has ended or is cancelled already.
    pub(super) async fn cancel(&self, task: FoundTask) -> Result<(), ErrorData> {
        match task.listed.status {
            _ if task.listed.is_cancellation_posted => Ok(()),
            RunStatus::Expired => {
                self.end(&task.listed).await;
                Ok(())
            }
            status if has_ended(status) => Ok(()),
            _ => self.cancel_run(start(self.agent().resume(task.run))).await,
        }
    }

    async fn cancel_run(&self, mut driver: RunDriver) -> Result<(), ErrorData> {
        let id = driver.run().id().to_string();
        let cancelled = self.agent().cancel(&id).await;
        if cancelled.is_err() {
            driver.cancel();
        }
        // Unless another driver works on it, and takes the command.
        self.drive(driver);
        match cancelled {
            Err(error) if matches!(error.kind(), CommandErrorKind::Store(_)) => Err(not_read(error)),
            _ => Ok(()),
        }
    }
}

/// Returns `true` for what hosts read as ended, or that is about to end.
fn has_ended(status: RunStatus) -> bool {
    matches!(status, RunStatus::Finished | RunStatus::Expired | RunStatus::Cancelled | RunStatus::NotUndone)
}

/// Returns the oldest of the tasks of a caller that have ended, as far as there are too many, or they are too large.
fn surplus_of<'a>(ended: impl Iterator<Item = &'a RunSummary>) -> Vec<&'a RunSummary> {
    let mut ended: Vec<_> = ended.collect();
    ended.sort_by_key(|run| run.age);
    let mut bytes = 0;
    let fits = |run: &&RunSummary| {
        bytes += run.bytes.unwrap_or_default();
        bytes <= MAX_ENDED_BYTES_OF_CALLER
    };
    let fitting = ended.iter().copied().take(MAX_ENDED_TASKS_OF_CALLER).take_while(fits).count();
    ended.split_off(fitting)
}

fn not_stored() -> ToolError {
    ToolError::failed("the call has to wait and cannot be stored; try again later")
}

fn too_many() -> ToolError {
    ToolError::failed("too many calls wait; try again later")
}

/// The error says nothing about the store.
fn not_read<E>(_: E) -> ErrorData {
    ErrorData::internal_error("the task cannot be read; try again later", None)
}
