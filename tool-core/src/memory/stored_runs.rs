//! The runs in a store.

use std::time::Duration;

use super::error::Operation;
use crate::memory::{
    MemoryError, PostOutcome, PostedCommand, RunCommand, RunFilter, RunStatus, RunStore, RunSummary,
};
use crate::run::Run;
use crate::run::summary::may_drive;

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

impl StoredRuns {
    /// Loads the runs of a store that an agent of this name may drive, except for those that have finished. Runs older than `max_age` have
    /// [expired](RunStatus::Expired).
    ///
    /// # Errors
    ///
    /// Fails if the runs cannot be listed.
    pub(crate) async fn load(
        store: &dyn RunStore,
        agent: Option<&str>,
        max_age: Option<Duration>,
    ) -> Result<Self, MemoryError> {
        let mut stored = Self::default();
        let is_open = |run: &&RunSummary| run.is_driven_by(agent) && run.status != RunStatus::Finished;
        for listed in list(store, &RunFilter::new()).await?.iter().filter(is_open) {
            match StoredRun::load_listed(store, listed, max_age).await {
                // A run can end, and be removed, in the meantime.
                Ok(run) => stored.runs.extend(run),
                Err(error) => stored.unreadable.push(error),
            }
        }
        let left_out =
            store.unreadable_runs().await.map_err(|error| MemoryError::new(Operation::StoredRuns, error))?;
        let left_out = left_out.into_iter().filter(|run| may_drive(agent, run.agent.as_deref()));
        stored.unreadable.extend(left_out.map(|run| unreadable(&run.id, run.error)));
        stored.unreadable.sort_by(|one, other| one.run().cmp(&other.run()));
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
        let filter = RunFilter::new().id(id);
        let listed = store.list_runs(&filter).await.map_err(|error| unreadable(id, error))?;
        match listed.first() {
            Some(listed) => Self::load_listed(store, listed, max_age).await,
            None => Ok(None),
        }
    }

    async fn load_listed(
        store: &dyn RunStore,
        listed: &RunSummary,
        max_age: Option<Duration>,
    ) -> Result<Option<Self>, MemoryError> {
        // Listed first: a driver that ends meanwhile has stored the state that is loaded.
        let run = store.load_run(&listed.id).await.map_err(|error| unreadable(&listed.id, error))?;
        Ok(run.map(|run| Self { status: listed.status_of(run.status(), max_age), run }))
    }
}

#[cold]
fn unreadable(id: &str, error: BoxError) -> MemoryError {
    MemoryError::new(Operation::LoadRun(id.to_owned()), error)
}

/// Lists stored runs.
///
/// # Errors
///
/// Fails if the runs cannot be listed.
pub(crate) async fn list(store: &dyn RunStore, filter: &RunFilter) -> Result<Vec<RunSummary>, MemoryError> {
    store.list_runs(filter).await.map_err(|error| MemoryError::new(Operation::StoredRuns, error))
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
