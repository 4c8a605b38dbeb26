//! Stores for tests.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use tokio::task::yield_now;
use tool_core::memory::{
    DriverId, LeaseRequest, LeaseState, PostOutcome, PostedCommand, RunFilter, RunStore, RunSummary,
    SaveOutcome, StoreFuture,
};
use tool_core::run::{Run, RunChanges, RunRevision};

/// A run store that records every state. Others can work before and after an operation.
#[derive(Clone, Debug, Default)]
pub struct EveryState(Arc<Mutex<States>>);

/// The states, and the runs of the inner store.
type States = (Vec<Run>, HashMap<String, Run>);

impl EveryState {
    /// Returns the states in JSON, and forgets them.
    pub fn take(&self) -> Vec<String> {
        let states = std::mem::take(&mut self.0.lock().unwrap().0);
        states.iter().map(|run| serde_json::to_string(run).unwrap()).collect()
    }

    /// Returns the last state in JSON.
    pub fn last(&self) -> Option<String> {
        self.0.lock().unwrap().0.last().map(|run| serde_json::to_string(run).unwrap())
    }
}

impl RunStore for EveryState {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        _expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(async {
            yield_now().await;
            {
                let (states, runs) = &mut *self.0.lock().unwrap();
                let run = runs.entry(id.to_owned()).or_insert_with(|| Run::new([]));
                run.apply_changes(changes).unwrap();
                states.push(run.clone());
            }
            yield_now().await;
            Ok(SaveOutcome::Saved)
        })
    }

    fn load_run<'a>(&'a self, _id: &'a str) -> StoreFuture<'a, Option<Run>> {
        Box::pin(async { Ok(None) })
    }

    fn remove_run<'a>(&'a self, _id: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn list_runs<'a>(&'a self, _: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// A run store that records the names of the operations on another one.
#[derive(Clone)]
pub struct Counting(Arc<dyn RunStore>, Arc<Mutex<Vec<String>>>);

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counting").field(&self.1).finish()
    }
}

impl Counting {
    /// Records the operations on this store.
    pub fn new(store: Arc<dyn RunStore>) -> Self {
        Self(store, Arc::default())
    }

    /// Returns the names of the operations so far.
    pub fn operations(&self) -> Vec<String> {
        self.1.lock().unwrap().clone()
    }

    /// Returns the names of the operations so far, and forgets them.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.1.lock().unwrap())
    }

    fn record(&self, operation: &str) -> &dyn RunStore {
        self.1.lock().unwrap().push(operation.to_owned());
        &*self.0
    }
}

impl RunStore for Counting {
    fn append_run<'a>(
        &'a self,
        id: &'a str,
        expected: Option<&'a RunRevision>,
        changes: &'a RunChanges,
    ) -> StoreFuture<'a, SaveOutcome> {
        self.record("append_run").append_run(id, expected, changes)
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        self.record("load_run").load_run(id)
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        self.record("remove_run").remove_run(id)
    }

    fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
        self.record("list_runs").list_runs(filter)
    }

    fn lease<'a>(
        &'a self,
        id: &'a str,
        driver: &'a DriverId,
        request: LeaseRequest,
    ) -> StoreFuture<'a, LeaseState> {
        self.record("lease").lease(id, driver, request)
    }

    fn post<'a>(&'a self, id: &'a str, command: &'a PostedCommand) -> StoreFuture<'a, PostOutcome> {
        self.record("post").post(id, command)
    }

    fn posted<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Vec<PostedCommand>> {
        self.record("posted").posted(id)
    }
}
