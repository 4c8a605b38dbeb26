//! Drives the runs of tasks: those of this process, and those that nobody drives.
//!
//! The server counts a run as a request in flight, so that it has the same time to end when the server stops. What has not been started by
//! then stays stored, for the next process.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Semaphore;
use tool_core::agent::{Ask, Outcome, RecoveryTask, RunDriver};
use tool_core::engine::AskExt;
use tool_core::memory::RunFilter;
use tool_core::run::Wait;
use tool_core::signatures::Timestamp;
use tool_core::store::{DriverId, LeaseRequest};
use tool_core::{Agent, CancellationToken, RunErrorKind};
use tool_http::server::{Shutdown, ShutdownPhase};

use super::shares::Shares;
use super::task_id::TaskId;

/// The most tasks that this process drives at a time, and those of one caller. Others wait for their turn.
const MAX_DRIVEN: usize = 256;
const MAX_DRIVEN_OF_CALLER: usize = 32;

/// The time between two looks at tasks that nobody drives.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(10);

/// How long a server that stops waits for the store to release a lease.
const MAX_CHECK: Duration = Duration::from_secs(1);

/// Drives the tasks of a server. Clones share the limits.
#[derive(Clone)]
pub(super) struct TaskDriver {
    pub(super) agent: Agent,
    shutdown: Shutdown,
    driven: Arc<Semaphore>,
    driven_of_caller: Shares,
}

impl TaskDriver {
    pub(super) fn new(agent: Agent, shutdown: Shutdown) -> Self {
        let (driven, driven_of_caller) = (Semaphore::new(MAX_DRIVEN), Shares::new(MAX_DRIVEN_OF_CALLER));
        Self { agent, shutdown, driven: Arc::new(driven), driven_of_caller }
    }

    /// Continues tasks that nobody drives, from now on.
    pub(super) fn recover(&self) -> RecoveryTask {
        let driver = self.clone();
        let recovery = self.agent.recover().interval(RECOVERY_INTERVAL);
        let recovery = recovery.drive_by(move |id, ask| {
            let loading = ask.map(|ask| ask.map(start)).boxed();
            driver.clone().drive(id, loading, CancellationToken::new()).boxed()
        });
        recovery.start()
    }

    /// Stops driving, unless the server stops already and gives runs time to end.
    pub(super) fn end_unless_stopping(&self) {
        if !self.shutdown.has_reached(ShutdownPhase::Draining) {
            self.shutdown.advance_to(ShutdownPhase::ClosingStreams);
        }
    }

    /// Drives a run until it has ended, a person has to decide, or it is parked for long. It is loaded when it has its turn, or is cancelled.
    /// Returns `None` if the server stops before, or if the run is left to others.
    pub(super) async fn drive(
        self,
        id: String,
        mut loading: BoxFuture<'static, Option<RunDriver>>,
        mut cancellation: CancellationToken,
    ) -> Option<Outcome> {
        loop {
            let outcome = self.take_turn(&id, loading, &cancellation).await?;
            let waits = match &outcome {
                Outcome::Waiting(run) => run.waits(),
                // Otherwise the host would ask for its result until it expires.
                Outcome::Failed(error) if is_permanent(error.kind()) => {
                    let _ = self.agent.end(error.run().clone()).await;
                    return Some(outcome);
                }
                _ => return Some(outcome),
            };
            if !waits.is_empty() && waits.iter().all(Wait::is_until) {
                let until = waits.iter().filter_map(|wait| wait.deadline).min().unwrap_or_default();
                let remaining = until.since(Timestamp::now());
                if remaining > RECOVERY_INTERVAL {
                    // Recovery continues it then, or once it is cancelled.
                    return Some(outcome);
                }
                // Not kept in memory.
                drop(outcome);
                tokio::select! {
                    () = tokio::time::sleep(remaining) => {}
                    () = self.shutdown.requested() => return None,
                }
            } else {
                // Decided while the driver ended.
                let listed = self.agent.list_runs(&RunFilter::new().id(&*id)).await.unwrap_or_default().pop();
                if !listed.is_some_and(|listed| listed.is_command_posted) {
                    return Some(outcome);
                }
            }
            let (agent, id) = (self.agent.clone(), id.clone());
            cancellation = CancellationToken::new();
            loading =
                async move { Some(start(agent.resume(agent.stored_run(&id).await.ok()??.run))) }.boxed();
        }
    }

    /// Drives a run until it waits or has ended, in its turn. Its lease is released before a server that stops has stopped.
    async fn take_turn(
        &self,
        id: &str,
        loading: BoxFuture<'static, Option<RunDriver>>,
        cancellation: &CancellationToken,
    ) -> Option<Outcome> {
        // Counted before it is known that the server runs: a shutdown from now on waits for it.
        let _in_flight = self.shutdown.track_request();
        let outcome = self.drive_in_turn(id, loading, cancellation).await;
        if let (None, Some(store)) = (&outcome, self.agent.run_store()) {
            // It sees that the lease was released, because that was started earlier.
            let checker = DriverId::unique();
            let checking = store.lease(id, &checker, LeaseRequest::Check);
            let _ = tokio::time::timeout(MAX_CHECK, checking).await;
        }
        outcome
    }

    /// Drives a run once fewer others are driven than is allowed, or it is cancelled.
    async fn drive_in_turn(
        &self,
        id: &str,
        loading: BoxFuture<'static, Option<RunDriver>>,
        cancellation: &CancellationToken,
    ) -> Option<Outcome> {
        // The callers that have most tasks do not make others wait.
        let turn = async {
            (self.driven_of_caller.acquire(TaskId::prefix_of(id)).await, self.driven.acquire().await)
        };
        let _driven = tokio::select! {
            biased;
            () = self.shutdown.requested() => return None,
            () = cancellation.cancelled() => None,
            permits = turn => Some(permits),
        };
        // Boxed, because runs that wait for their turn take little memory.
        let driving = async { Some(loading.await?.outcome().boxed().await) };
        tokio::select! {
            outcome = driving => outcome,
            () = self.shutdown.reached(ShutdownPhase::ClosingStreams) => None,
        }
    }
}

/// Returns `true` for the failure of a run that no further attempt gets over.
fn is_permanent(error: &RunErrorKind) -> bool {
    matches!(error, RunErrorKind::Tools { .. } | RunErrorKind::MissingContext(_) | RunErrorKind::RunSetup(_))
}

/// Starts to drive a task. One that is parked for a time is left then.
pub(super) fn start(ask: Ask) -> RunDriver {
    ask.return_when_parked().start()
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tool_core::engine::CallRequest;
    use tool_core::memory::{InMemoryStore, RunStatus, RunSummary};
    use tool_core::run::Run;
    use tool_core::store::{LeaseState, RunChanges, RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture};
    use tool_core::tool::Asker;
    use tool_core::toolset::{ToolProvider, ToolProviderFuture, ToolProviderRequest};
    use tool_core::{ToolCall, ToolError, tool, tools};

    use super::super::task_model::NothingToSay;
    use super::*;

    struct Fails;

    impl ToolProvider for Fails {
        fn tools<'a>(&'a self, _: &'a ToolProviderRequest<'_>) -> ToolProviderFuture<'a> {
            Box::pin(async { Err("the line is dead".into()) })
        }

        fn name(&self) -> &str {
            "fails"
        }
    }

    #[tokio::test]
    async fn a_run_that_cannot_go_on_ends() {
        let agent = Agent::builder(NothingToSay)
            .tool_provider(Fails)
            .run_store(InMemoryStore::new())
            .keep_finished(Duration::from_secs(60))
            .build()
            .unwrap();
        let request = CallRequest::standalone(ToolCall::new("call_1", "work", "{}"));
        let run = request.into_run(agent.name(), "Go on").unwrap();
        let id = run.id().to_string();
        let loading = ready(Some(start(agent.resume(run)))).boxed();
        let driver = TaskDriver::new(agent.clone(), Shutdown::new());
        let outcome = driver.drive(id.clone(), loading, CancellationToken::new()).await;
        assert!(matches!(outcome, Some(Outcome::Failed(error)) if is_permanent(error.kind())));
        assert_eq!(agent.stored_run(&id).await.unwrap().unwrap().status, RunStatus::Finished);
    }

    /// Recovery continues it. It could be cancelled or decided meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_run_that_is_parked_for_long_is_left() {
        #[tool("Waits for an hour")]
        async fn park(#[inject] user: &Asker) -> ToolError {
            user.park(&7, Timestamp::now().after(Duration::from_secs(3_600))).await.into()
        }
        let builder = Agent::builder(NothingToSay).tools(tools![park]).run_store(InMemoryStore::new());
        let agent = builder.build().unwrap();
        let request = CallRequest::standalone(ToolCall::new("call_1", "park", "{}"));
        let run = request.into_run(agent.name(), "Go on").unwrap();
        let (id, loading) = (run.id().to_string(), ready(Some(start(agent.resume(run)))).boxed());
        let driving = TaskDriver::new(agent, Shutdown::new()).drive(id, loading, CancellationToken::new());
        let outcome = tokio::time::timeout(RECOVERY_INTERVAL, driving).await.expect("the run is left");
        assert!(matches!(outcome, Some(Outcome::Waiting(_))));
    }

    struct Hangs;

    impl RunStore for Hangs {
        fn append_run<'a>(
            &'a self,
            _: &'a str,
            _: Option<&'a RunRevision>,
            _: &'a RunChanges,
        ) -> StoreFuture<'a, SaveOutcome> {
            pending().boxed()
        }

        fn load_run<'a>(&'a self, _: &'a str) -> StoreFuture<'a, Option<Run>> {
            pending().boxed()
        }

        fn entries<'a>(
            &'a self,
            _id: &'a str,
            _after: Option<u64>,
            _limit: usize,
        ) -> StoreFuture<'a, Option<RunLog>> {
            pending().boxed()
        }

        fn remove_run<'a>(&'a self, _: &'a str) -> StoreFuture<'a, ()> {
            pending().boxed()
        }

        fn list_runs<'a>(&'a self, _: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
            pending().boxed()
        }

        fn lease<'a>(&'a self, _: &'a str, _: &'a DriverId, _: LeaseRequest) -> StoreFuture<'a, LeaseState> {
            pending().boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stops_does_not_wait_for_a_store_that_hangs() {
        let agent = Agent::builder(NothingToSay).run_store(Hangs).build().unwrap();
        let shutdown = Shutdown::new();
        shutdown.advance_to(ShutdownPhase::Draining);
        let driving = TaskDriver::new(agent, shutdown).drive(
            "task_ada_1".into(),
            pending().boxed(),
            CancellationToken::new(),
        );
        let outcome = tokio::time::timeout(Duration::from_secs(60), driving).await.expect("it stops");
        assert!(outcome.is_none());
    }
}
