//! The cache of a run's requests, which requests apart from the run share.

use std::ops::Deref;
use std::sync::Arc;

use crate::model::RequestCache;

/// What a provider keeps of a run's messages. A clone of the run has none of it, because the two diverge.
#[derive(Debug, Default)]
pub(super) struct SharedCache(Arc<RequestCache>);

impl Clone for SharedCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl SharedCache {
    pub(super) fn share(&self) -> Arc<RequestCache> {
        Arc::clone(&self.0)
    }
}

impl Deref for SharedCache {
    type Target = RequestCache;

    fn deref(&self) -> &RequestCache {
        &self.0
    }
}
