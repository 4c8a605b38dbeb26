//! Revisions of the stored state of a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{impl_id, unique_id};
use crate::run::Run;

/// Identifies one stored state of a run. Each save gives the run a new revision, so a copy with another revision than the stored
/// one is outdated.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct RunRevision(Arc<str>);

impl RunRevision {
    /// Returns the revision as a string slice.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl_id!(RunRevision);

impl From<String> for RunRevision {
    fn from(revision: String) -> Self {
        Self(revision.into())
    }
}

/// The relation of a run to its stored state.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredState {
    /// The revision that was loaded, or that the store confirmed last.
    pub(super) confirmed: Option<RunRevision>,
    /// The revision of a save without a known outcome: it is in progress, has failed, or its future was dropped.
    pub(super) in_doubt: Option<RunRevision>,
    /// The last attempt to drive the run failed, and can be repeated.
    pub(super) has_failed: bool,
}

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
