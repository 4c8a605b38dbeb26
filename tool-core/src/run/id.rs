//! Unique ids of runs.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::{impl_from_application, impl_id, unique_id};

/// The unique id of a run, which the run retains when it is stored and restored.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct RunId(Arc<str>);

impl RunId {
    pub(crate) fn unique() -> Self {
        Self(unique_id("run").into())
    }
}

impl_id!(RunId);
impl_from_application!(RunId:);
