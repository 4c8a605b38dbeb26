//! The runs in a store.

use super::error::Operation;
use crate::memory::{MemoryError, RunStore};
use crate::run::Run;

/// The runs in a store, ordered by id. One that cannot be read does not hide the others.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct StoredRuns {
    /// The runs that can be resumed.
    pub runs: Vec<Run>,
    /// The errors of the runs that could not be loaded, each with the [id](MemoryError::run) under which the run is stored.
    pub unreadable: Vec<MemoryError>,
}

impl StoredRuns {
    /// Loads all runs of a store.
    ///
    /// # Errors
    ///
    /// Fails if the runs cannot be listed.
    pub async fn load(store: &dyn RunStore) -> Result<Self, MemoryError> {
        let mut stored = Self::default();
        let ids = store.runs().await.map_err(|error| MemoryError::new(Operation::StoredRuns, error))?;
        for id in ids {
            match store.load_run(&id).await {
                // A run can end, and be removed, in the meantime.
                Ok(run) => stored.runs.extend(run),
                Err(error) => stored.unreadable.push(MemoryError::new(Operation::LoadRun(id), error)),
            }
        }
        Ok(stored)
    }
}
