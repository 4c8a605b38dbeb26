//! The rows of the stored runs, which are read in the background.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use crate::bounded::lock;
use crate::row::Row;

/// The pause between two readings of the stores, and its factor for slow ones.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_FACTOR: u32 = 5;

/// The rows of the stored runs.
#[derive(Debug, Default)]
pub(crate) struct Index {
    state: Mutex<IndexState>,
    /// Held while the stores are read.
    reading: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug, Default)]
pub(crate) struct IndexState {
    pub(crate) rows: BTreeMap<String, Row>,
    /// The stores have been read at least once.
    pub(crate) is_complete: bool,
    /// When, and for how long, the stores were read last.
    pub(crate) last: Option<(Instant, Duration)>,
}

impl Index {
    pub(crate) fn lock(&self) -> MutexGuard<'_, IndexState> {
        lock(&self.state)
    }

    /// Drops the row of a run that has changed, until the stores are read again.
    pub(crate) fn forget(&self, id: &str) {
        let mut state = self.lock();
        state.rows.remove(id);
        state.last = None;
    }

    /// Returns a guard, to be held meanwhile, if the stores are to be read by the caller.
    pub(crate) fn begin_reading(&self) -> Option<OwnedMutexGuard<()>> {
        let last = self.lock().last;
        let is_due = last.is_none_or(|(at, took)| at.elapsed() > PAUSE.max(took * PAUSE_FACTOR));
        Arc::clone(&self.reading).try_lock_owned().ok().filter(|_| is_due)
    }
}
