//! Saves of a run. Each gives it a new revision.

use super::revision::{RunRevision, StoredState};
use super::state::Run;
use crate::model::unique_id;

impl Run {
    /// Returns the revision of the stored state that this run was loaded from or last saved as, or `None` if it was never
    /// stored. During a save, it is the revision of the new state, which a [store](crate::memory::RunStore) has to store.
    #[must_use]
    pub fn revision(&self) -> Option<&RunRevision> {
        self.stored.in_doubt.as_ref().or(self.stored.confirmed.as_ref())
    }

    /// Gives the run a new revision. Returns the one that the stored state must have to be replaced.
    pub(crate) fn begin_save(&mut self) -> Option<RunRevision> {
        self.stored.in_doubt = Some(unique_id("revision").into());
        self.stored.confirmed.clone()
    }

    /// Returns `true` if it is unknown whether the last save replaced the stored state.
    pub(crate) fn is_save_in_doubt(&self) -> bool {
        self.stored.in_doubt.is_some()
    }

    /// Ends a save, given the revision of the stored state after it.
    pub(crate) fn end_save(&mut self, stored: Option<&RunRevision>) {
        if let Some(revision) = self.stored.in_doubt.take()
            && stored == Some(&revision)
        {
            self.stored.confirmed = Some(revision);
        }
    }

    pub(crate) fn with_revision(mut self, revision: Option<RunRevision>) -> Self {
        self.stored = StoredState { confirmed: revision, in_doubt: None, ..self.stored };
        self
    }

    /// Returns `true` if the last attempt to drive the run failed, and can be repeated.
    pub(crate) fn has_failed(&self) -> bool {
        self.stored.has_failed
    }

    pub(crate) fn set_failed(&mut self, has_failed: bool) {
        self.stored.has_failed = has_failed;
    }
}
