//! The rows of the stored runs, which are read in the background.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::log::Row;

/// The pause between two readings of the stores, and its factor for slow ones.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_FACTOR: u32 = 5;

/// The rows of the stored runs.
#[derive(Debug, Default)]
pub(crate) struct Index {
    state: Mutex<IndexState>,
    pub(crate) finished: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct IndexState {
    pub(crate) rows: BTreeMap<String, Row>,
    pub(crate) is_reading: bool,
    /// The stores have been read at least once.
    pub(crate) is_complete: bool,
    /// When, and for how long, the stores were read last.
    pub(crate) last: Option<(Instant, Duration)>,
}

impl Index {
    pub(crate) fn lock(&self) -> MutexGuard<'_, IndexState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the row of a run that has changed, until the stores are read again.
    pub(crate) fn forget(&self, id: &str) {
        let mut state = self.lock();
        state.rows.remove(id);
        state.last = None;
    }

    /// Returns `true` if the stores are to be read by the caller.
    pub(crate) fn begin_reading(&self) -> bool {
        let mut state = self.lock();
        let is_due = state.last.is_none_or(|(at, took)| at.elapsed() > PAUSE.max(took * PAUSE_FACTOR));
        let begins = is_due && !state.is_reading;
        state.is_reading |= begins;
        begins
    }
}
