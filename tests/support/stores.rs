//! Stores for tests.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::task::yield_now;
use tool_core::memory::{InMemoryStore, RunFilter, RunStatus, RunSummary};
use tool_core::run::Run;
use tool_core::signatures::StoredRun;
use tool_core::store::{
    ChatStore, DriverId, LeaseRequest, LeaseState, PostOutcome, PostedCommand, RunChanges, RunCommand,
    RunLog, RunRevision, RunStore, SaveOutcome, StoreFuture,
};
use tool_core::{Agent, SqliteStore};
use tool_postgres::PostgresStore;

/// Returns a store in a schema of its own of the PostgreSQL database at the URL in `POSTGRES_URL`. Without that variable, tests have the other stores
/// alone; the script `tool-postgres/run` sets it.
pub async fn postgres() -> Option<PostgresStore> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let url = std::env::var("POSTGRES_URL").ok()?;
    let schema = format!("runs {} {}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    Some(PostgresStore::connect(url).schema(schema).max_connections(4).migrate().await.unwrap())
}

/// A store of conversations and runs.
pub trait ChatAndRunStore: ChatStore + RunStore {}

impl<S: ChatStore + RunStore> ChatAndRunStore for S {}

/// A store of conversations and runs of any kind.
pub type AnyStore = Arc<dyn ChatAndRunStore>;

/// Returns a store of runs of each kind.
pub async fn run_stores() -> Vec<(&'static str, Arc<dyn RunStore>)> {
    let mut stores: Vec<(_, Arc<dyn RunStore>)> = vec![
        ("in memory", Arc::new(InMemoryStore::new())),
        ("sqlite", Arc::new(SqliteStore::in_memory().await.unwrap())),
    ];
    if let Some(postgres) = postgres().await {
        stores.push(("postgres", Arc::new(postgres)));
    }
    stores
}

/// Returns the ids of all stored runs, sorted, also of those that cannot be read.
pub async fn run_ids(store: &(impl RunStore + ?Sized)) -> Vec<String> {
    let listed = store.list_runs(&RunFilter::new()).await.unwrap().into_iter().map(|run| run.id);
    let mut ids: Vec<_> = listed.collect();
    ids.extend(store.unreadable_runs().await.unwrap().into_iter().map(|run| run.id));
    ids.sort_unstable();
    ids
}

/// Posts a command to a stored run, as another process does.
pub async fn post_command(agent: &Agent, run: &str, command: RunCommand) -> PostOutcome {
    agent.run_store().unwrap().post(run, &PostedCommand::new(command)).await.unwrap()
}

/// Loads the stored runs of an agent that have not finished.
pub async fn stored_runs(agent: &Agent) -> Vec<StoredRun> {
    let mut stored = Vec::new();
    for listed in agent.list_runs(&RunFilter::new()).await.unwrap() {
        if listed.status != RunStatus::Finished {
            stored.extend(agent.stored_run(listed.id).await.unwrap());
        }
    }
    stored
}

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

    fn entries<'a>(
        &'a self,
        _id: &'a str,
        _after: Option<u64>,
        _limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
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

    fn entries<'a>(
        &'a self,
        id: &'a str,
        after: Option<u64>,
        limit: usize,
    ) -> StoreFuture<'a, Option<RunLog>> {
        self.record("entries").entries(id, after, limit)
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
