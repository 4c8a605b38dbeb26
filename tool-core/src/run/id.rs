//! Unique ids of runs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{impl_id, unique_id};

/// The unique id of a run, which the run retains when it is stored and restored.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct RunId(Arc<str>);

impl RunId {
    pub(crate) fn unique() -> Self {
        Self(unique_id("run").into())
    }

    /// Returns the id as a string slice.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl_id!(RunId);

impl From<String> for RunId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}
