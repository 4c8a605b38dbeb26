//! All that is watched: the logs of the runs that are driven in this process, and the stored runs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tool_core::Event;
use tool_core::engine::AgentExt;
use tool_core::memory::{InMemoryStore, MemoryError};
use tool_core::model::ChatRequest;
use tool_core::signatures::StoredRun;
use tool_http::server::SenderPermits;

use crate::bounded::lock;
use crate::decisions::Decisions;
use crate::guard::HttpError;
use crate::index::Index;
use crate::log::{End, RunLog};
use crate::source::{Loaded, Source};

/// The number of logs that are kept while nobody reads them, and the size of all logs and of each one, in bytes.
const MAX_LOGS: usize = 1_000;
const MAX_ALL_BYTES: usize = 64 << 20;
const MAX_LOG_BYTES: usize = 8 << 20;

/// The number of runs that are driven at once for all senders, and for each of them, also if nobody reads them any more.
const MAX_DRIVEN: usize = 1_000;
const MAX_DRIVEN_FOR_SENDER: usize = 100;

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
    /// The oldest first.
    logs: Mutex<VecDeque<Arc<RunLog>>>,
    /// The number of bytes that each log may take.
    share: Arc<AtomicUsize>,
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
                    let follower = hub.map(|(hub, source)| Follower::new(&hub, &source, run.id().as_str()));
                    move |event: &Event| follower.iter().for_each(|Follower(log)| log.receive(event))
                });
            }
            let (index, decisions, logs) = (Index::default(), Decisions::default(), Mutex::default());
            let histories = InMemoryStore::new().max_conversation_bytes(MAX_HISTORY_BYTES);
            let driven = SenderPermits::new(MAX_DRIVEN, MAX_DRIVEN_FOR_SENDER);
            let share = Arc::new(MAX_LOG_BYTES.into());
            Self { sources, index, decisions, histories, driven, logs, share }
        })
    }

    pub(crate) fn log(&self, id: &str) -> Option<Arc<RunLog>> {
        lock(&self.logs).iter().find(|log| log.id == id).cloned()
    }

    /// Returns all logs.
    pub(crate) fn logs(&self) -> VecDeque<Arc<RunLog>> {
        lock(&self.logs).clone()
    }

    /// Returns the log of a run.
    pub(crate) fn log_of(&self, source: &Arc<Source>, id: &str) -> Arc<RunLog> {
        self.register(Arc::new(RunLog::new(id, source, &self.share)))
    }

    /// Returns the log of the same run, or adds this one. The oldest ones are dropped that nobody reads and no driver follows.
    fn register(&self, log: Arc<RunLog>) -> Arc<RunLog> {
        let mut logs = lock(&self.logs);
        if let Some(known) = logs.iter().find(|known| known.id == log.id) {
            return Arc::clone(known);
        }
        let mut bytes: usize = logs.iter().map(|log| log.bytes()).sum();
        let is_unused = |log: &Arc<RunLog>| Arc::strong_count(log) == 1 && !log.is_driven();
        while (logs.len() >= MAX_LOGS || bytes > MAX_ALL_BYTES)
            && let Some(index) = logs.iter().position(is_unused)
        {
            bytes -= logs.remove(index).map_or(0, |log| log.bytes());
        }
        logs.push_back(Arc::clone(&log));
        self.share.store(MAX_LOG_BYTES.min(MAX_ALL_BYTES / logs.len()), Ordering::Relaxed);
        log
    }

    /// Returns the log of a run, with what is stored now. Returns `None` if there is no such run.
    pub(crate) async fn shown_log(&self, id: &str) -> Option<Arc<RunLog>> {
        let log = match self.log(id) {
            Some(log) => log,
            None => Arc::new(RunLog::new(id, &self.load(id).await.ok()??.source, &self.share)),
        };
        log.refresh().await;
        (log.end() != Some(End::Gone)).then(|| self.register(log))
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
        match self.log(id) {
            Some(log) => Ok(Some(Arc::clone(&log.source))),
            None => Ok(self.load(id).await?.map(|loaded| loaded.source)),
        }
    }

    /// Explains why nothing can be done with a run.
    pub(crate) async fn refusal(&self, id: &str) -> HttpError {
        let is_stored = matches!(self.load(id).await, Ok(Some(_)));
        match self.log(id).and_then(|log| log.end()) {
            Some(End::Ended) if !is_stored => HttpError::conflict("the run has ended"),
            Some(End::Gone) | None if !is_stored => HttpError::unknown_run(),
            _ => HttpError::conflict("the run is in progress, or its agent is in another program"),
        }
    }
}

/// Follows one driver of a run, until it is dropped with the driver.
pub(crate) struct Follower(pub(crate) Arc<RunLog>);

impl Follower {
    pub(crate) fn new(hub: &Hub, source: &Arc<Source>, id: &str) -> Self {
        let log = hub.log_of(source, id);
        log.driver_joined();
        Self(log)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.0.driver_left();
    }
}
