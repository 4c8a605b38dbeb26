//! The runs that are watched: the logs of those that are driven in this process, the stored ones, and the decisions about both.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tool_core::content::Content;
use tool_core::memory::{
    InMemoryStore, MemoryError, PostOutcome, PostedCommand, RunCommand, RunStatus, RunStore, StoredRun,
};
use tool_core::run::{ResolveErrorKind, Run, WaitReason};
use tool_core::tool::WaitId;
use tool_core::{Agent, CancellationToken, ConversationId, Event, Message, ToolCall};

use crate::entry::Entry;
use crate::index::Index;
use crate::log::RunLog;
use crate::wait::{DecideError, Pending, Recorded, Verdict, pending};

/// The number of logs, their total size in bytes, and the number of decisions that are remembered.
const MAX_LOGS: usize = 1_000;
const MAX_LOG_BYTES: usize = 64 << 20;
const MAX_DECISIONS: usize = 10_000;

/// The number of conversations that are remembered for agents without a memory, and of questions in each.
const MAX_HISTORIES: usize = 1_000;
const MAX_EXCHANGES: usize = 50;

/// Where runs come from.
pub(crate) struct Source {
    pub(crate) name: Arc<str>,
    pub(crate) agent: Option<Agent>,
    /// The runs; those of an agent without a store are here while they wait.
    pub(crate) store: Arc<dyn RunStore>,
    /// The store belongs to the hub, and nobody takes commands from its inboxes.
    is_private: bool,
}

/// All that is watched.
pub(crate) struct Hub {
    pub(crate) sources: Vec<Arc<Source>>,
    logs: Mutex<Logs>,
    decisions: Mutex<Decisions>,
    histories: Mutex<Histories>,
    pub(crate) index: Index,
    /// Held while a stored run is changed, so that each is driven once.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Logs {
    by_id: HashMap<String, Arc<RunLog>>,
    /// The tokens of the runs that are driven here.
    tokens: HashMap<String, CancellationToken>,
    /// The ids, the oldest first.
    order: VecDeque<String>,
}

#[derive(Default)]
struct Decisions {
    by_wait: HashMap<String, Recorded>,
    order: VecDeque<String>,
}

impl Decisions {
    fn push(&mut self, wait: &str, recorded: Recorded) {
        self.by_wait.insert(wait.to_owned(), recorded);
        self.order.push_back(wait.to_owned());
        if self.order.len() > MAX_DECISIONS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_wait.remove(&oldest);
        }
    }
}

/// The messages of conversations of agents without a memory.
#[derive(Default)]
struct Histories {
    by_conversation: HashMap<ConversationId, VecDeque<Vec<Message>>>,
    order: VecDeque<ConversationId>,
}

impl Histories {
    fn messages(&self, conversation: &ConversationId) -> Vec<Message> {
        self.by_conversation.get(conversation).into_iter().flatten().flatten().cloned().collect()
    }

    fn push(&mut self, conversation: &ConversationId, messages: Vec<Message>) {
        if !self.by_conversation.contains_key(conversation) {
            self.order.push_back(conversation.clone());
        }
        let exchanges = self.by_conversation.entry(conversation.clone()).or_default();
        exchanges.push_back(messages);
        if exchanges.len() > MAX_EXCHANGES {
            exchanges.pop_front();
        }
        if self.order.len() > MAX_HISTORIES
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_conversation.remove(&oldest);
        }
    }
}

/// A stored run and where it was found.
pub(crate) struct Loaded {
    pub(crate) source: Arc<Source>,
    pub(crate) run: Run,
    pub(crate) status: RunStatus,
}

impl Source {
    pub(crate) fn agent(name: &str, agent: Agent) -> Self {
        let store = agent.run_store().cloned();
        let is_private = store.is_none();
        let store = store.unwrap_or_else(|| Arc::new(InMemoryStore::new()));
        Self { name: name.into(), agent: Some(agent), store, is_private }
    }

    pub(crate) fn store(name: &str, store: Arc<dyn RunStore>) -> Self {
        Self { name: name.into(), agent: None, store, is_private: false }
    }

    /// Loads a run with its status.
    pub(crate) async fn load(&self, id: &str) -> Result<Option<StoredRun>, MemoryError> {
        match &self.agent {
            Some(agent) if !self.is_private => agent.stored_run(id).await,
            _ => StoredRun::load(&*self.store, id, None).await,
        }
    }

    /// Checks arguments that a person writes for a call that awaits approval, if the tools of the agent describe it.
    fn check_arguments(&self, run: &Run, wait: &WaitId, arguments: &str) -> Result<(), DecideError> {
        let waits = run.waits();
        let own = waits.iter().find_map(|one| match &one.reason {
            WaitReason::Approval(call) if one.id == *wait && one.path == call.id => Some(call),
            _ => None,
        });
        let (Some(agent), Some(call), []) = (&self.agent, own, run.handoffs()) else { return Ok(()) };
        let call = ToolCall::new(&call.id, &call.name, arguments);
        let checked = agent.tools().check_arguments(&call);
        checked.map_err(|error| DecideError::Invalid(error.to_string()))
    }

    /// Returns `true` if the agent of this source was asked, as far as names say so.
    fn was_asked(&self, run: &Run) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.name() == run.agent_name())
    }
}

impl Hub {
    /// Creates a hub that watches all later runs of the agents.
    pub(crate) fn new(sources: Vec<Arc<Source>>) -> Arc<Self> {
        Arc::new_cyclic(|hub: &Weak<Self>| {
            for source in &sources {
                let (hub, name) = (hub.clone(), Arc::clone(&source.name));
                let Some(agent) = &source.agent else { continue };
                agent.watch(move |run| {
                    let follower = hub.upgrade().map(|hub| Follower::new(&hub, &name, run));
                    move |event: &Event| {
                        if let (Some(follower), Some(entry)) = (&follower, Entry::from_event(event)) {
                            follower.0.push_event(entry);
                        }
                    }
                });
            }
            Self {
                sources,
                logs: Mutex::default(),
                decisions: Mutex::default(),
                histories: Mutex::default(),
                index: Index::default(),
                changing: tokio::sync::Mutex::default(),
            }
        })
    }

    pub(crate) fn log(&self, id: &str) -> Option<Arc<RunLog>> {
        self.logs().by_id.get(id).cloned()
    }

    /// Returns all logs, the oldest first.
    pub(crate) fn all_logs(&self) -> Vec<Arc<RunLog>> {
        let logs = self.logs();
        logs.order.iter().filter_map(|id| logs.by_id.get(id).cloned()).collect()
    }

    /// Returns the log of a run, which begins with what the run has done so far.
    fn log_of(&self, source: &Arc<str>, run: &Run) -> Arc<RunLog> {
        let mut logs = self.logs();
        if let Some(log) = logs.by_id.get(run.id().as_str()) {
            return Arc::clone(log);
        }
        let log = Arc::new(RunLog::new(Arc::clone(source), run));
        logs.by_id.insert(log.id.clone(), Arc::clone(&log));
        logs.order.push_back(log.id.clone());
        logs.evict();
        log
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
                    let was_asked = source.was_asked(&run);
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

    /// Drives a run in a task of its own: who asked or decided can leave.
    pub(crate) fn drive(self: &Arc<Self>, source: &Arc<Source>, run: Run) {
        let Some(agent) = &source.agent else { return };
        let id = run.id().to_string();
        let log = self.log_of(&source.name, &run);
        // The run is at rest once it is stored again.
        let follower = Follower::new(self, &source.name, &run);
        log.hide_failures(true);
        let conversation = run.conversation().cloned();
        let token = CancellationToken::new();
        self.logs().tokens.insert(id.clone(), token.clone());
        let mut events = agent.resume(run).cancellation_token(token).stream();
        let (hub, source) = (Arc::clone(self), Arc::clone(source));
        tokio::spawn(async move {
            let mut failure = None;
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Done(answer)) => hub.remember(&source, &conversation, answer.into_messages()),
                    Ok(_) => {}
                    Err(error) => failure = Some(error),
                }
            }
            let entry = failure.as_ref().and_then(Entry::from_error);
            match (entry, failure) {
                (Some(entry), _) => drop(log.push(entry)),
                (None, Some(waiting)) if source.is_private => {
                    let mut run = waiting.into_run();
                    // The private store is in memory and does not fail.
                    let _ = source.store.save_run(&id, &mut run).await;
                }
                _ => {}
            }
            log.hide_failures(false);
            hub.logs().tokens.remove(&id);
            hub.index.forget(&id);
            drop(follower);
        });
    }

    /// Returns what a run waits for now, or `None` if it is unknown.
    pub(crate) async fn waits(&self, id: &str) -> Result<Option<Vec<Pending>>, MemoryError> {
        Ok(self.load(id).await?.map(|loaded| pending(&loaded.run.waits())))
    }

    /// Returns the decision about a wait that was recorded here.
    pub(crate) fn recorded(&self, wait: &str) -> Option<Recorded> {
        self.decisions().by_wait.get(wait).cloned()
    }

    /// Records decisions about what a run waits for, and continues the run if nobody drives it. Only the first decision about a
    /// wait counts; an equal one is answered in the same way. If one of them is refused, none is recorded.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        id: &str,
        by: &str,
        verdicts: Vec<(String, Verdict)>,
    ) -> Result<Vec<Recorded>, DecideError> {
        let _one = self.changing.lock().await;
        let (mut answers, mut open) = (Vec::new(), Vec::new());
        for (wait, verdict) in verdicts {
            match self.recorded(&wait) {
                Some(recorded) if recorded.digest == verdict.digest() => answers.push(recorded),
                Some(recorded) => return Err(DecideError::AlreadyDecided(recorded)),
                None => open.push((WaitId::from(wait), verdict)),
            }
        }
        if open.is_empty() {
            return Ok(answers);
        }
        let loaded = self.load(id).await.map_err(|_| DecideError::Store)?;
        let Loaded { source, mut run, status } = loaded.ok_or(DecideError::UnknownRun)?;
        let posted = source.store.posted(id).await.map_err(|_| DecideError::Store)?;
        let shown = pending(&run.waits());
        let mut found = Vec::new();
        for (id, verdict) in open {
            let is_it = |posted: &PostedCommand| matches!(&posted.command, RunCommand::Resolve { wait, .. } if *wait == id);
            if posted.iter().any(is_it) {
                return Err(DecideError::DecidedElsewhere);
            }
            if let Verdict::Edit(arguments) = &verdict {
                source.check_arguments(&run, &id, arguments)?;
            }
            let decision = verdict.decision(by);
            // The copy is only checked for whether the decision is valid; the driver of the run checks again.
            run.resolve(&id, decision.clone()).map_err(|error| match (error.kind(), error.decided()) {
                (ResolveErrorKind::AlreadyDecided, Some(record)) => {
                    DecideError::AlreadyDecided(Recorded::from(record))
                }
                (ResolveErrorKind::UnknownWait | ResolveErrorKind::AlreadyDecided, _) => {
                    DecideError::NotWaiting
                }
                _ => DecideError::Invalid(error.to_string()),
            })?;
            let wait = shown.iter().find(|wait| wait.id == id.as_str()).ok_or(DecideError::NotWaiting)?;
            found.push((wait, verdict, RunCommand::resolve(&id, decision)));
        }
        // A secret answer must not be in an inbox, so the run goes on from the copy.
        let is_direct = source.is_private || found.iter().any(|(wait, ..)| wait.is_secret());
        if is_direct && (status == RunStatus::RunningElsewhere || source.agent.is_none()) {
            return Err(DecideError::DecidedElsewhere);
        }
        for (wait, verdict, command) in found {
            if !is_direct {
                let posted = source.store.post(id, &PostedCommand::new(command)).await;
                if !posted.is_ok_and(|outcome| outcome == PostOutcome::Posted) {
                    return Err(DecideError::Store);
                }
            }
            let mut recorded = verdict.record(wait, by);
            recorded.position = Some(self.log_of(&source.name, &run).push(Entry::Decided {
                wait: wait.id.clone(),
                call: wait.call.clone(),
                decision: recorded.decision,
                why: recorded.why.clone(),
                by: by.to_owned(),
            }));
            self.decisions().push(&wait.id, recorded.clone());
            answers.push(recorded);
        }
        if is_direct {
            self.drive_again(&source, run).await;
        } else {
            self.resume_now(id).await.map_err(|_| DecideError::Store)?;
        }
        Ok(answers)
    }

    /// Asks a question in a conversation. Returns the log of the run, or `None` if the source has no agent.
    pub(crate) fn ask(
        self: &Arc<Self>,
        source: &Arc<Source>,
        conversation: &ConversationId,
        question: Content,
    ) -> Option<Arc<RunLog>> {
        let agent = source.agent.as_ref()?;
        let mut ask = agent.ask(question).conversation(conversation.clone());
        if agent.memory().is_none() {
            ask = ask.history(self.histories().messages(conversation));
        }
        let run = ask.start().into_run();
        let id = run.id().to_string();
        self.drive(source, run);
        self.log(&id)
    }

    /// Adds a message of the user to a run that waits: its calls are denied, and it goes on. Returns `None` if there is no such run.
    pub(crate) async fn push_message(
        self: &Arc<Self>,
        id: &str,
        message: &Content,
    ) -> Result<Option<Arc<RunLog>>, MemoryError> {
        let _one = self.changing.lock().await;
        let loaded = self.load(id).await?.filter(|loaded| loaded.status == RunStatus::Waiting);
        let Some(Loaded { source, mut run, .. }) = loaded else { return Ok(None) };
        let log = self.log_of(&source.name, &run);
        let by = "the next message";
        for wait in pending(&run.waits()) {
            let reason = "the user sent another message instead".to_owned();
            let verdict = Verdict::Deny(Some(reason));
            // Calls whose results the caller supplies go on waiting.
            if run.resolve(&WaitId::from(wait.id.clone()), verdict.decision(by)).is_ok() {
                let Recorded { decision, why, .. } = verdict.record(&wait, by);
                log.push(Entry::Decided { wait: wait.id, call: wait.call, decision, why, by: by.to_owned() });
            }
        }
        if run.push_user_message(message.clone()).is_err() {
            return Ok(None);
        }
        log.push(Entry::Question { text: message.text().into_owned() });
        self.drive_again(&source, run).await;
        Ok(Some(log))
    }

    /// Drives a run that was loaded.
    async fn drive_again(self: &Arc<Self>, source: &Arc<Source>, run: Run) {
        if source.is_private {
            // The private store is in memory and does not fail.
            let _ = source.store.remove_run(run.id().as_str()).await;
        }
        self.index.forget(run.id().as_str());
        self.drive(source, run);
    }

    /// Continues a stored run unless somebody drives it. Returns `false` if there is no such run, or nobody here can drive it.
    pub(crate) async fn resume(self: &Arc<Self>, id: &str) -> Result<bool, MemoryError> {
        let _one = self.changing.lock().await;
        self.resume_now(id).await
    }

    async fn resume_now(self: &Arc<Self>, id: &str) -> Result<bool, MemoryError> {
        self.index.forget(id);
        let Some(loaded) = self.load(id).await? else { return Ok(false) };
        if loaded.source.agent.is_none() {
            return Ok(false);
        }
        if loaded.status != RunStatus::RunningElsewhere {
            self.drive_again(&loaded.source, loaded.run).await;
        }
        Ok(true)
    }

    /// Cancels a run, in this process or in another. Returns `false` if there is no such run.
    pub(crate) async fn cancel(self: &Arc<Self>, id: &str) -> Result<bool, MemoryError> {
        let _one = self.changing.lock().await;
        let token = self.logs().tokens.get(id).cloned();
        if let Some(token) = &token {
            token.cancel();
        }
        let Some(mut loaded) = self.load(id).await? else { return Ok(token.is_some()) };
        if loaded.source.is_private {
            loaded.run.cancel();
            self.drive_again(&loaded.source, loaded.run).await;
            return Ok(true);
        }
        let store = &loaded.source.store;
        let posted = store.post(id, &PostedCommand::new(RunCommand::Cancel)).await;
        if posted.is_ok_and(|outcome| outcome == PostOutcome::Posted) {
            self.resume_now(id).await?;
            return Ok(true);
        }
        Ok(token.is_some())
    }

    /// Remembers the messages of an answer if its agent does not.
    fn remember(&self, source: &Source, conversation: &Option<ConversationId>, messages: Vec<Message>) {
        if let (Some(agent), Some(conversation)) = (&source.agent, conversation)
            && agent.memory().is_none()
        {
            self.histories().push(conversation, messages);
        }
    }

    fn histories(&self) -> MutexGuard<'_, Histories> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decisions(&self) -> MutexGuard<'_, Decisions> {
        self.decisions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Logs {
    /// Drops the oldest logs of runs that nobody drives.
    fn evict(&mut self) {
        let mut bytes: usize = self.by_id.values().map(|log| log.bytes()).sum();
        let mut kept = VecDeque::new();
        while self.order.len() + kept.len() > MAX_LOGS || bytes > MAX_LOG_BYTES {
            let Some(oldest) = self.order.pop_front() else { break };
            match self.by_id.get(&oldest) {
                Some(log) if log.is_driven() || self.order.is_empty() => kept.push_back(oldest),
                Some(log) => {
                    bytes -= log.bytes();
                    self.by_id.remove(&oldest);
                }
                None => {}
            }
        }
        kept.append(&mut self.order);
        self.order = kept;
    }
}

/// Follows one driver of a run, until it is dropped with the driver.
struct Follower(Arc<RunLog>);

impl Follower {
    fn new(hub: &Hub, source: &Arc<str>, run: &Run) -> Self {
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

/// Shows the names of the sources.
impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.sources.iter().map(|source| &source.name)).finish()
    }
}
