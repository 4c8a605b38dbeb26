//! Revisions of the stored state of a run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::impl_id;

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
