//! Where runs come from: an agent with its store, or the store of an agent in another program.
//!
//! An agent without a run store gets one in memory when it is watched, because what waits is then decided by the same rules, and the copy
//! of its caller is refused as everywhere.

use std::sync::{Arc, Mutex};

use tool_core::__internals::decide_elsewhere;
use tool_core::agent::{CommandError, Decided};
use tool_core::memory::{InMemoryStore, MemoryError, RunFilter, RunStatus, RunStore, StoredRun};
use tool_core::run::{Decision, Run};
use tool_core::tool::WaitId;
use tool_core::{Agent, ConversationId};
use tool_http::server::{SenderPermit, SenderPermits};

use crate::bounded::{Bounded, lock};

/// The number of runs that are stored for agents without a store.
const MAX_RUNS: usize = 1_000;

pub(crate) struct Source {
    pub(crate) name: Arc<str>,
    pub(crate) agent: Option<Agent>,
    pub(crate) store: Arc<dyn RunStore>,
    /// The latest run of each conversation of a frontend.
    conversations: Mutex<Bounded<ConversationId, String, 10_000>>,
    /// The permits to start a question, one for each conversation.
    asking: SenderPermits,
}

/// A stored run and where it was found.
pub(crate) struct Loaded {
    pub(crate) source: Arc<Source>,
    pub(crate) run: Run,
    pub(crate) status: RunStatus,
}

impl Source {
    pub(crate) fn agent(agent: Agent) -> Self {
        let name = agent.name().unwrap_or("agent").to_owned();
        let store = Arc::clone(agent.run_store_or(InMemoryStore::new().max_runs(MAX_RUNS)));
        Self::new(&name, Some(agent), store)
    }

    pub(crate) fn store(name: &str, store: Arc<dyn RunStore>) -> Self {
        Self::new(name, None, store)
    }

    fn new(name: &str, agent: Option<Agent>, store: Arc<dyn RunStore>) -> Self {
        let (conversations, asking) = (Mutex::default(), SenderPermits::new(usize::MAX, 1));
        Self { name: name.into(), agent, store, conversations, asking }
    }

    /// Loads a run with its status.
    pub(crate) async fn load(&self, id: &str) -> Result<Option<StoredRun>, MemoryError> {
        match &self.agent {
            Some(agent) => agent.stored_run(id).await,
            None => StoredRun::load(&*self.store, id, None).await,
        }
    }

    /// Decides about a run; its agent continues it, here or in another program.
    pub(crate) async fn decide(
        &self,
        run: &str,
        decisions: Vec<(WaitId, Decision)>,
    ) -> Result<Decided, CommandError> {
        match &self.agent {
            Some(agent) => agent.decide_all(run, decisions).await,
            None => decide_elsewhere(&self.store, run, decisions).await,
        }
    }

    /// Returns the run of the latest question that was asked here in a conversation.
    pub(crate) fn known_run_of(&self, conversation: &ConversationId) -> Option<String> {
        lock(&self.conversations).get(conversation).cloned()
    }

    /// Returns the latest stored run of a conversation that has not finished.
    pub(crate) async fn stored_run_of(&self, conversation: &ConversationId) -> Option<String> {
        let filter = RunFilter::new().conversation(conversation.clone());
        let mut runs = self.store.list_runs(&filter).await.ok()?.into_iter();
        Some(runs.rfind(|run| run.status != RunStatus::Finished)?.id)
    }

    /// Sets the latest run of a conversation.
    pub(crate) fn set_run_of(&self, conversation: &ConversationId, run: &str) {
        lock(&self.conversations).insert(conversation.clone(), run.to_owned());
    }

    /// Begins a question in a conversation, until the permit is dropped. Returns `None` if another one is being started.
    pub(crate) fn begin_question(&self, conversation: &ConversationId) -> Option<SenderPermit> {
        self.asking.acquire(conversation.as_str()).ok()
    }
}
