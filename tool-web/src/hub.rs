//! All that is watched: the logs of the runs that are driven in this process, and the stored runs.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::time::Instant;
use tool_core::Event;
use tool_core::memory::{InMemoryStore, MemoryError, StoredRun};
use tool_core::model::ChatRequest;
use tool_core::run::Run;
use tool_http::server::SenderPermits;

use crate::bounded::lock;
use crate::decisions::Decisions;
use crate::guard::HttpError;
use crate::index::Index;
use crate::log::RunLog;
use crate::source::{Loaded, Source};

/// The number of logs, and their total size in bytes.
const MAX_LOGS: usize = 1_000;
const MAX_LOG_BYTES: usize = 64 << 20;

/// The number of runs that are driven at once for all senders, and for each of them, also if nobody reads them any more.
const MAX_DRIVEN: usize = 1_000;
const MAX_DRIVEN_FOR_SENDER: usize = 100;

/// The time between two readings of a stored run that is shown.
pub(crate) const POLL: Duration = Duration::from_millis(1_500);

/// The memory that the conversations of agents without a memory take.
const MAX_HISTORY_BYTES: usize = 64 << 20;

pub(crate) struct Hub {
    pub(crate) sources: Vec<Arc<Source>>,
    pub(crate) index: Index,
    pub(crate) decisions: Decisions,
    /// The conversations of agents without a memory.
    pub(crate) histories: InMemoryStore,
    /// The runs that are driven for senders.
    pub(crate) driven: SenderPermits,
    logs: Mutex<Logs>,
}

#[derive(Default)]
struct Logs {
    /// The oldest first.
    logs: VecDeque<Arc<RunLog>>,
    /// The logs of other stored runs, as long as somebody reads them.
    shown: HashMap<String, Weak<RunLog>>,
}

fn request_json(request: &ChatRequest<'_>) -> String {
    let json = serde_json::json!({
        "messages": request.messages(), "tools": request.tools()[..], "tool_choice": request.tool_choice(),
        "parallel_tool_calls": request.parallel_tool_calls(), "options": request.options(),
        "response_format": request.response_format(),
    });
    json.to_string()
}

impl Hub {
    /// Creates a hub that watches all later runs of the agents, and records the requests to their models if that is wanted.
    pub(crate) fn new(sources: Vec<Arc<Source>>, records_requests: bool) -> Arc<Self> {
        Arc::new_cyclic(|hub: &Weak<Self>| {
            for source in &sources {
                let Some(agent) = &source.agent else { continue };
                if records_requests {
                    let hub = hub.clone();
                    agent.watch_requests(move |run, turn, request| {
                        if let Some(log) = hub.upgrade().and_then(|hub| hub.log(run.as_str())) {
                            log.record_request(turn, request_json(request));
                        }
                    });
                }
                let (hub, source) = (hub.clone(), Arc::downgrade(source));
                agent.watch(move |run| {
                    let hub = hub.upgrade().zip(source.upgrade());
                    let follower = hub.map(|(hub, source)| Follower::new(&hub, &source, run));
                    move |event: &Event| follower.iter().for_each(|Follower(log)| log.receive(event))
                });
            }
            let (index, decisions, logs) = (Index::default(), Decisions::default(), Mutex::default());
            let histories = InMemoryStore::new().max_conversation_bytes(MAX_HISTORY_BYTES);
            let driven = SenderPermits::new(MAX_DRIVEN, MAX_DRIVEN_FOR_SENDER);
            Self { sources, index, decisions, histories, driven, logs }
        })
    }

    pub(crate) fn log(&self, id: &str) -> Option<Arc<RunLog>> {
        self.lock().log(id)
    }

    /// Returns all logs.
    pub(crate) fn logs(&self) -> VecDeque<Arc<RunLog>> {
        self.lock().logs.clone()
    }

    /// Returns the log of a run, which begins with what the run has done so far.
    pub(crate) fn log_of(&self, source: &Source, run: &Run) -> Arc<RunLog> {
        let mut state = self.lock();
        state.log(run.id().as_str()).unwrap_or_else(|| {
            let log = Arc::new(RunLog::new(run.id().as_str(), &source.name, run));
            state.add(Arc::clone(&log));
            log
        })
    }

    /// Returns the log to show a run with: this process's, or one of what is stored now, which its readers share.
    pub(crate) async fn shown_log(&self, id: &str) -> Option<Arc<RunLog>> {
        if let Some(log) = self.log(id) {
            return Some(log);
        }
        let Loaded { source, run, .. } = self.load(id).await.ok()??;
        let shown = &mut self.lock().shown;
        shown.retain(|_, log| log.strong_count() > 0);
        let known = shown.get(id).and_then(Weak::upgrade);
        let log = known.unwrap_or_else(|| Arc::new(RunLog::new(id, &source.name, &run)));
        log.follow(&run);
        shown.insert(id.to_owned(), Arc::downgrade(&log));
        Some(log)
    }

    /// Adds what another process has done to a log, whose readers read the store once for all of them. Returns `false` if the run is
    /// gone, and the log has no end.
    pub(crate) async fn refresh(&self, log: &RunLog) -> bool {
        let mut last = log.refreshed.lock().await;
        if let Some((_, is_there)) = last.filter(|(at, _)| at.elapsed() < POLL) {
            return is_there;
        }
        let loaded = self.load(&log.id).await;
        // A driver that has joined meanwhile can be ahead of what is stored.
        let followed = loaded.iter().flatten().filter(|_| !log.is_driven());
        followed.for_each(|loaded| log.follow(&loaded.run));
        let is_there = !matches!(loaded, Ok(None)) || log.is_driven() || log.status().is_end();
        *last = Some((Instant::now(), is_there));
        is_there
    }

    /// Loads a stored run, with the source that shows and drives it: of those that share its store, the one whose agent was asked.
    pub(crate) async fn load(&self, id: &str) -> Result<Option<Loaded>, MemoryError> {
        self.find(id).await.map_err(|(_, error)| error)
    }

    /// Like [`load`](Self::load), with the source of a run that cannot be read.
    pub(crate) async fn find(&self, id: &str) -> Result<Option<Loaded>, (Arc<Source>, MemoryError)> {
        let (mut found, mut failure) = (None, None);
        for source in &self.sources {
            match source.load(id).await {
                Ok(Some(StoredRun { run, status, .. })) => {
                    // The agent was asked, as far as names say so.
                    let was_asked =
                        source.agent.as_ref().is_some_and(|agent| agent.name() == run.agent_name());
                    let loaded = Loaded { source: Arc::clone(source), run, status };
                    if was_asked {
                        return Ok(Some(loaded));
                    }
                    found.get_or_insert(loaded);
                }
                Ok(None) => {}
                Err(error) => drop(failure.get_or_insert((Arc::clone(source), error))),
            }
        }
        match failure {
            Some(failure) if found.is_none() => Err(failure),
            _ => Ok(found),
        }
    }

    /// Returns the source of a run: of those that share its store, the one whose agent was asked.
    pub(crate) async fn source_of(&self, id: &str) -> Result<Option<Arc<Source>>, MemoryError> {
        if let [source] = &*self.sources {
            return Ok(Some(Arc::clone(source)));
        }
        let shown = self.log(id).map(|log| log.row().agent);
        match self.sources.iter().find(|source| Some(&source.name) == shown.as_ref()) {
            Some(source) => Ok(Some(Arc::clone(source))),
            None => Ok(self.load(id).await?.map(|loaded| loaded.source)),
        }
    }

    /// Explains why nothing can be done with a run.
    pub(crate) async fn refusal(&self, id: &str) -> HttpError {
        let is_stored = matches!(self.load(id).await, Ok(Some(_)));
        match self.log(id).map(|log| log.status()) {
            None if !is_stored => HttpError::unknown_run(),
            Some(status) if !is_stored && status.is_end() => HttpError::conflict("the run has ended"),
            _ => HttpError::conflict("the run is in progress, or its agent is in another program"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Logs> {
        lock(&self.logs)
    }
}

impl Logs {
    fn log(&self, id: &str) -> Option<Arc<RunLog>> {
        self.logs.iter().find(|log| log.id == id).cloned()
    }

    /// Adds a log, and drops the oldest ones of runs that nobody drives.
    fn add(&mut self, log: Arc<RunLog>) {
        let mut bytes: usize = self.logs.iter().map(|log| log.bytes()).sum();
        while (self.logs.len() >= MAX_LOGS || bytes > MAX_LOG_BYTES)
            && let Some(index) = self.logs.iter().position(|log| !log.is_driven())
        {
            bytes -= self.logs.remove(index).map_or(0, |log| log.bytes());
        }
        self.logs.push_back(log);
    }
}

/// Follows one driver of a run, until it is dropped with the driver.
pub(crate) struct Follower(pub(crate) Arc<RunLog>);

impl Follower {
    pub(crate) fn new(hub: &Hub, source: &Source, run: &Run) -> Self {
        let log = hub.log_of(source, run);
        log.driver_joined(run);
        Self(log)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.driver_left();
    }
}

#[cfg(test)]
mod tests {
    use tool_core::Message;
    use tool_core::memory::RunStore;
    use tool_core::model::{AssistantMessage, ChatResponse};

    use super::*;

    /// Fifty readers cost no more than one.
    #[tokio::test(start_paused = true)]
    async fn readers_of_a_stored_run_share_its_log_and_its_readings() {
        let store = InMemoryStore::new();
        store.save_run("run", &mut Run::new([Message::user("Hello")])).await.unwrap();
        let hub = Hub::new(vec![Arc::new(Source::store("store", Arc::new(store.clone())))], false);
        let (one, other) = (hub.shown_log("run").await.unwrap(), hub.shown_log("run").await.unwrap());
        assert!(Arc::ptr_eq(&one, &other));
        assert!(hub.refresh(&one).await);
        store.remove_run("run").await.unwrap();
        // The store was read a moment ago.
        assert!(hub.refresh(&other).await);
        tokio::time::advance(POLL).await;
        assert!(!hub.refresh(&other).await);
        assert!(!hub.refresh(&one).await, "all readers learn of it");
        drop((one, other));
        assert!(hub.shown_log("run").await.is_none());
    }

    /// What is stored can be older than what its driver has done.
    #[tokio::test]
    async fn the_log_of_a_run_that_is_driven_does_not_follow_the_store() {
        let store = InMemoryStore::new();
        let mut run = Run::new([Message::user("Hello")]);
        store.save_run(run.id().clone().as_str(), &mut run).await.unwrap();
        let source = Arc::new(Source::store("store", Arc::new(store)));
        let hub = Hub::new(vec![Arc::clone(&source)], false);
        run.record_response(ChatResponse::new(AssistantMessage::text("Hi"))).unwrap();
        let log = hub.log_of(&source, &run);
        log.driver_joined(&run);
        assert!(hub.refresh(&log).await);
        assert_eq!(log.row().turns, 1);
    }
}
