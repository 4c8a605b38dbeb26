//! What others read of a stored run: its log, without its state.

use std::fmt;

use crate::memory::RunSummary;

/// What a store returns of the log of a run, by [`RunStore::entries`](super::RunStore::entries). A [`RunReader`](super::run_reader::RunReader) makes events of it.
///
/// Entries contain what layers have replaced, such as secrets; the events do not.
#[derive(Clone)]
pub struct RunLog {
    pub(super) summary: RunSummary,
    pub(super) entries: Vec<(u64, String)>,
    pub(super) rest: Option<String>,
}

impl RunLog {
    /// Creates the answer of a store: the summary of the last save, the entries with their positions, in this order, and the
    /// [part](crate::store::RunChanges::REST) that states how the run rests, if there is one.
    #[must_use]
    pub fn new(summary: RunSummary, entries: Vec<(u64, String)>, rest: Option<String>) -> Self {
        Self { summary, entries, rest }
    }

    /// Returns the summary of the last save.
    #[must_use]
    pub fn summary(&self) -> &RunSummary {
        &self.summary
    }

    /// Returns the positions of the entries.
    pub fn positions(&self) -> impl Iterator<Item = u64> {
        self.entries.iter().map(|(position, _)| *position)
    }
}

/// Omits the entries, because conversations are private.
impl fmt::Debug for RunLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunLog")
            .field("positions", &self.positions().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
