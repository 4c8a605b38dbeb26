//! The runs in a store.

use std::time::Duration;

use super::error::Operation;
use crate::memory::{
    DriverId, LeaseRequest, LeaseState, MemoryError, PostOutcome, PostedCommand, RunCommand, RunStore,
    StoreFuture,
};
use crate::run::Run;

/// The runs in a store, ordered by id. One that cannot be read does not hide the others.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct StoredRuns {
    /// The runs that are stored, in any [status](RunStatus).
    pub runs: Vec<StoredRun>,
    /// The errors of the runs that could not be loaded, each with the [id](MemoryError::run) under which the run is stored.
    pub unreadable: Vec<MemoryError>,
}

/// A stored run and its status.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoredRun {
    /// The run, which can be [resumed](crate::Agent::resume) unless another driver works on it.
    pub run: Run,
    /// The status of the run when it was loaded.
    pub status: RunStatus,
}

/// The status of a stored run.
///
/// ```
/// use tool_core::Agent;
/// use tool_core::memory::{InMemoryStore, RunStatus};
/// use tool_core::testing::ScriptedModel;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new().fails("the line is dead").says("Good morning!");
/// let agent = Agent::builder(model).run_store(InMemoryStore::new()).build()?;
/// agent.ask("Hello").await.unwrap_err();
/// for stored in agent.stored_runs().await?.runs {
///     assert_eq!(stored.status, RunStatus::Failed);
///     assert_eq!(agent.resume(stored.run).await?.text(), "Good morning!");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RunStatus {
    /// Another driver works on the run, in this process or in another one. It cannot be resumed now; commands can be
    /// [posted](crate::Agent::post) to it.
    RunningElsewhere,
    /// The driver of the run has ended without a result, for example because its process has died. Resuming it continues it.
    Interrupted,
    /// Every open call awaits an approval or a result. Resolve them, and resume the run.
    Waiting,
    /// The last attempt to drive the run failed, for example because the model could not be reached. Resuming it tries again.
    Failed,
    /// The run was cancelled, or its future was dropped. Resuming it undoes what its tools can undo, and ends it.
    Cancelled,
    /// The run has not been continued for the [maximal age](crate::agent::AgentBuilder::max_run_age). Resuming it cancels it.
    Expired,
}

impl StoredRuns {
    /// Loads all runs of a store. Runs older than `max_age` have [expired](RunStatus::Expired).
    ///
    /// # Errors
    ///
    /// Fails if the runs cannot be listed.
    pub async fn load(store: &dyn RunStore, max_age: Option<Duration>) -> Result<Self, MemoryError> {
        let mut stored = Self::default();
        let ids = store.runs().await.map_err(|error| MemoryError::new(Operation::StoredRuns, error))?;
        for id in ids {
            match StoredRun::load(store, &id, max_age).await {
                // A run can end, and be removed, in the meantime.
                Ok(run) => stored.runs.extend(run),
                Err(error) => stored.unreadable.push(error),
            }
        }
        Ok(stored)
    }
}

impl StoredRun {
    /// Loads the run that is stored under an id, which has expired at `max_age`. Returns `None` if there is none, for example
    /// because it has ended.
    ///
    /// # Errors
    ///
    /// Fails if the run cannot be read.
    pub async fn load(
        store: &dyn RunStore,
        id: &str,
        max_age: Option<Duration>,
    ) -> Result<Option<Self>, MemoryError> {
        let loaded: StoreFuture<'_, _> = Box::pin(async {
            // Checked first: a driver that ends meanwhile has stored the state that is loaded.
            let lease = store.lease(id, &DriverId::unique(), LeaseRequest::Check).await?;
            let Some(run) = store.load_run(id).await? else { return Ok(None) };
            let status = match lease {
                LeaseState::HeldElsewhere => RunStatus::RunningElsewhere,
                _ if run.is_cancelled() || is_cancellation_posted(store, id).await? => RunStatus::Cancelled,
                _ if has_expired(store, id, max_age).await? => RunStatus::Expired,
                _ if run.is_blocked() => RunStatus::Waiting,
                _ if run.has_failed() => RunStatus::Failed,
                _ => RunStatus::Interrupted,
            };
            Ok(Some(Self { run, status }))
        });
        loaded.await.map_err(|error| MemoryError::new(Operation::LoadRun(id.to_owned()), error))
    }
}

async fn is_cancellation_posted(store: &dyn RunStore, id: &str) -> Result<bool, BoxError> {
    Ok(store.posted(id).await?.iter().any(|posted| posted.command == RunCommand::Cancel))
}

/// Returns `true` if a run has not been stored for this time.
pub(crate) async fn has_expired(
    store: &dyn RunStore,
    id: &str,
    max_age: Option<Duration>,
) -> Result<bool, BoxError> {
    let Some(max_age) = max_age else { return Ok(false) };
    Ok(store.age(id).await?.is_some_and(|age| age >= max_age))
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Posts a command to a stored run, under a new id.
///
/// # Errors
///
/// Fails if the command cannot be stored.
pub(crate) async fn post(
    store: &dyn RunStore,
    id: &str,
    command: RunCommand,
) -> Result<PostOutcome, MemoryError> {
    let posted = store.post(id, &PostedCommand::new(command)).await;
    posted.map_err(|error| MemoryError::new(Operation::Post(id.to_owned()), error))
}
