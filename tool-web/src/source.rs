//! Where runs come from: an agent with its store, or the store of an agent in another program.
//!
//! An agent without a run store gets one in memory when it is watched, because what waits is then decided by the same rules, and the copy
//! of its caller is refused as everywhere.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tool_core::agent::CommandError;
use tool_core::engine::{AgentExt, decide_in_store, stored_run};
use tool_core::memory::{InMemoryStore, MemoryError, RunFilter, RunStatus};
use tool_core::run::{Decision, Run, UserMessage};
use tool_core::signatures::{DecisionReceipt, StoredRun};
use tool_core::store::RunStore;
use tool_core::tool::WaitId;
use tool_core::{Agent, ConversationId};
use tool_http::server::{SenderPermit, SenderPermits};

use crate::bounded::{Bounded, lock};

/// The number of runs that are stored for agents without a store.
const MAX_RUNS: usize = 1_000;

/// How long finished runs are stored, unless the agent says so: readers of their logs, also in other processes, have not read the end yet.
const KEPT: Duration = Duration::from_secs(600);

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

impl Loaded {
    /// Returns the number of messages of users to the run, also of those that it has not taken.
    pub(crate) async fn messages(&self) -> usize {
        self.run.engine_view().messages_taken()
            + self.source.posted_messages(self.run.id().as_str()).await.len()
    }
}

impl Source {
    pub(crate) fn agent(agent: Agent) -> Self {
        let name = agent.name().unwrap_or("agent").to_owned();
        let store = Arc::clone(agent.run_store_or(InMemoryStore::new().max_runs(MAX_RUNS)));
        agent.keep_finished_or(KEPT);
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
            None => stored_run(&*self.store, id).await,
        }
    }

    /// Decides about a run; its agent continues it, here or in another program.
    pub(crate) async fn decide(
        &self,
        run: &str,
        decisions: Vec<(WaitId, Decision)>,
    ) -> Result<DecisionReceipt, CommandError> {
        match &self.agent {
            Some(agent) => agent.decide_all(run, decisions).await,
            None => decide_in_store(&self.store, run, decisions).await,
        }
    }

    /// Returns the run of the latest question that was asked here in a conversation.
    pub(crate) fn known_run_of(&self, conversation: &ConversationId) -> Option<String> {
        lock(&self.conversations).get(conversation).cloned()
    }

    /// Returns the latest stored run of a conversation: of those that have not finished, or else of those that have.
    pub(crate) async fn stored_run_of(&self, conversation: &ConversationId, is_open: bool) -> Option<String> {
        let filter = RunFilter::new().conversation(conversation.clone());
        // Another agent on the store can have a conversation of this name.
        let name = self.agent.as_ref().and_then(Agent::name);
        let filter = name.into_iter().fold(filter, RunFilter::agent);
        let runs = self.store.list_runs(&filter).await.ok()?;
        let of_kind = runs.into_iter().filter(|run| (run.status != RunStatus::Finished) == is_open);
        Some(of_kind.min_by_key(|run| run.age)?.id)
    }

    /// Returns what users have said to a run that it has not taken.
    pub(crate) async fn posted_messages(&self, run: &str) -> Vec<UserMessage> {
        let posted = self.store.posted(run).await.unwrap_or_default().into_iter();
        posted.filter_map(|posted| posted.command.message().cloned()).collect()
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
