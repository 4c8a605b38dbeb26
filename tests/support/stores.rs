//! Stores for tests.

use std::sync::{Arc, Mutex};

use tool_core::memory::{RunStore, SaveOutcome, StoreFuture};
use tool_core::run::{Run, RunRevision};

/// A run store that records every state.
#[derive(Clone, Debug, Default)]
pub struct EveryState(Arc<Mutex<Vec<String>>>);

impl EveryState {
    /// Returns the states in JSON, and forgets them.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl RunStore for EveryState {
    fn replace_run<'a>(
        &'a self,
        _id: &'a str,
        _expected: Option<&'a RunRevision>,
        run: &'a Run,
    ) -> StoreFuture<'a, SaveOutcome> {
        self.0.lock().unwrap().push(serde_json::to_string(run).unwrap());
        Box::pin(async { Ok(SaveOutcome::Saved) })
    }

    fn load_run<'a>(&'a self, _id: &'a str) -> StoreFuture<'a, Option<Run>> {
        Box::pin(async { Ok(None) })
    }

    fn remove_run<'a>(&'a self, _id: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn runs(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
