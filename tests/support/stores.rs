//! Stores for tests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tool_core::memory::{RunStore, SaveOutcome, StoreFuture};
use tool_core::run::{Run, RunChanges, RunRevision};

/// A run store that records every state.
#[derive(Clone, Debug, Default)]
pub struct EveryState(Arc<Mutex<States>>);

/// The serialized states, and the runs of the inner store.
type States = (Vec<String>, HashMap<String, Run>);

impl EveryState {
    /// Returns the states in JSON, and forgets them.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap().0)
    }
}

impl RunStore for EveryState {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        _expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        let (states, runs) = &mut *self.0.lock().unwrap();
        let run = runs.entry(id.to_owned()).or_insert_with(|| Run::new([]));
        run.apply_changes(changes).unwrap();
        states.push(serde_json::to_string(run).unwrap());
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
