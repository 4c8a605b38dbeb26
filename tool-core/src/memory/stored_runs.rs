//! The runs in a store.

use std::time::Duration;

use super::error::Operation;
use crate::memory::{MemoryError, RunFilter, RunStatus, RunStore, RunSummary, UnreadableRun};
use crate::run::Run;
use crate::run::summary::may_drive;

/// A stored run and its status.
#[derive(Debug)]
#[non_exhaustive]
pub struct StoredRun {
    /// The run, which can be [resumed](crate::Agent::resume) unless another driver works on it.
    pub run: Run,
    /// The status of the run when it was loaded.
    pub status: RunStatus,
}

/// Loads the run that is stored under an id, for a program that has the store without the agent.
///
/// # Errors
///
/// Fails if the run cannot be read.
pub async fn stored_run(store: &dyn RunStore, id: &str) -> Result<Option<StoredRun>, MemoryError> {
    StoredRun::load(store, id, None).await
}

impl StoredRun {
    /// Loads the run that is stored under an id, which has expired at `max_age`. Returns `None` if there is none, for example
    /// because it has ended.
    ///
    /// # Errors
    ///
    /// Fails if the run cannot be read.
    pub(crate) async fn load(
        store: &dyn RunStore,
        id: &str,
        max_age: Option<Duration>,
    ) -> Result<Option<Self>, MemoryError> {
        let unreadable = |error| MemoryError::new(Operation::LoadRun(id.to_owned()), error);
        let listed = store.list_runs(&RunFilter::new().id(id)).await.map_err(unreadable)?;
        let Some(listed) = listed.first() else { return Ok(None) };
        // Listed first: a driver that ends meanwhile has stored the state that is loaded.
        let run = store.load_run(id).await.map_err(unreadable)?;
        Ok(run.map(|run| Self { status: listed.status_of(run.status(), max_age), run }))
    }
}

/// Lists stored runs.
///
/// # Errors
///
/// Fails if the runs cannot be listed.
pub(crate) async fn list(store: &dyn RunStore, filter: &RunFilter) -> Result<Vec<RunSummary>, MemoryError> {
    store.list_runs(filter).await.map_err(|error| MemoryError::new(Operation::StoredRuns, error))
}

/// Lists the runs whose summaries cannot be read and that an agent of this name may drive.
///
/// # Errors
///
/// Fails if the runs cannot be listed.
pub(crate) async fn list_unreadable(
    store: &dyn RunStore,
    agent: Option<&str>,
) -> Result<Vec<UnreadableRun>, MemoryError> {
    let listed = store.unreadable_runs().await;
    let mut runs = listed.map_err(|error| MemoryError::new(Operation::StoredRuns, error))?;
    runs.retain(|run| may_drive(agent, run.agent.as_deref()));
    Ok(runs)
}
