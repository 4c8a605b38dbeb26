//! The runs that are watched: the logs of those that are driven in this process, the stored ones, and the decisions about both.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tool_core::content::Content;
use tool_core::memory::{
    ChatStore, InMemoryStore, MemoryError, PostOutcome, PostedCommand, RunCommand, RunStatus, RunStore,
    StoredRun, Window,
};
use tool_core::model::ChatRequest;
use tool_core::run::{Decision, ResolveErrorKind, Run, Wait};
use tool_core::tool::{DecisionRecord, Timestamp, WaitId};
use tool_core::{Agent, CancellationToken, ConversationId, Event, Message, ToolCall, ToolContext};
use tool_http::server::{SenderPermit, SenderPermits};

use crate::bounded::{Bounded, lock};
use crate::entry::{Decided, Entry};
use crate::guard::HttpError;
use crate::index::Index;
use crate::log::{FrontendTools, RunLog};
use crate::wait::places;

/// The number of logs, and their total size in bytes. Also the number of runs that are stored for agents without a store.
const MAX_LOGS: usize = 1_000;
const MAX_LOG_BYTES: usize = 64 << 20;

/// The number of runs that are driven at once for all senders, and for each of them, also if nobody reads them any more.
const MAX_DRIVEN: usize = 1_000;
const MAX_DRIVEN_FOR_SENDER: usize = 100;

/// The time between two readings of a stored run that is shown.
pub(crate) const POLL: Duration = Duration::from_millis(1_500);

/// The number of messages that are remembered in a conversation of an agent without a memory, and the memory that all take.
const MAX_HISTORY: usize = 200;
const MAX_HISTORY_BYTES: usize = 64 << 20;

/// Where runs come from.
pub(crate) struct Source {
    pub(crate) name: Arc<str>,
    pub(crate) agent: Option<Agent>,
    pub(crate) store: Arc<dyn RunStore>,
    /// The latest run of each conversation of a frontend.
    conversations: Mutex<Bounded<ConversationId, String, 10_000>>,
}

/// All that is watched.
pub(crate) struct Hub {
    pub(crate) sources: Vec<Arc<Source>>,
    pub(crate) index: Index,
    /// The conversations of agents without a memory.
    histories: InMemoryStore,
    /// The runs that are driven for senders.
    driven: SenderPermits,
    state: Mutex<State>,
    /// Held while a stored run is changed, so that each is driven once.
    changing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The oldest first.
    logs: VecDeque<Arc<RunLog>>,
    /// The logs of other stored runs, as long as somebody reads them.
    shown: HashMap<String, Weak<RunLog>>,
    decisions: Bounded<WaitId, Recorded, 10_000>,
}

/// A decision that was recorded here.
#[derive(Clone)]
pub(crate) struct Recorded {
    pub(crate) record: DecisionRecord,
    digest: [u8; 32],
    /// The position of the decision in the log of the run.
    pub(crate) position: u64,
}

/// A stored run and where it was found.
pub(crate) struct Loaded {
    pub(crate) source: Arc<Source>,
    pub(crate) run: Run,
    pub(crate) status: RunStatus,
}

impl Source {
    pub(crate) fn agent(name: &str, agent: Agent) -> Self {
        let store = Arc::clone(agent.run_store_or(InMemoryStore::new().max_runs(MAX_LOGS)));
        Self { name: name.into(), agent: Some(agent), store, conversations: Mutex::default() }
    }

    pub(crate) fn store(name: &str, store: Arc<dyn RunStore>) -> Self {
        Self { name: name.into(), agent: None, store, conversations: Mutex::default() }
    }

    /// Loads a run with its status.
    async fn load(&self, id: &str) -> Result<Option<StoredRun>, MemoryError> {
        match &self.agent {
            Some(agent) => agent.stored_run(id).await,
            None => StoredRun::load(&*self.store, id, None).await,
        }
    }

    /// Returns the latest run of a conversation, which an earlier process can have stored.
    pub(crate) async fn run_of(&self, conversation: &ConversationId) -> Option<String> {
        let known = lock(&self.conversations).get(conversation).cloned();
        match known {
            Some(run) => Some(run),
            None => self.store.runs_of(conversation).await.ok()?.pop(),
        }
    }

    /// Checks arguments that a person writes for a call that awaits approval, if the tools of the agent describe it.
    fn check_arguments(&self, run: &Run, wait: &Wait, arguments: &str) -> Result<(), HttpError> {
        let place = places(run, self.agent.as_ref()).remove(&wait.id).unwrap_or_default();
        let checked = match (place, &self.agent) {
            ((_, None), _) => Ok(()),
            ((agents, _), Some(agent)) if agents.is_empty() => {
                agent.tools().check_arguments(&ToolCall::new(&*wait.path, &wait.tool, arguments))
            }
            ((_, Some(tool)), _) => tool.check_arguments(arguments, &ToolContext::new()),
        };
        checked.map_err(|error| HttpError::bad_request(error.to_string()))
    }
}

/// Returns a digest, by which equal decisions are recognized without storing an answer, which can be secret.
fn digest(decision: &Decision) -> [u8; 32] {
    // These can always be serialized.
    Sha256::digest(serde_json::to_vec(decision).unwrap_or_default()).into()
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
            let (index, state, changing) =
                (Index::default(), Mutex::default(), tokio::sync::Mutex::default());
            let histories = InMemoryStore::new().max_conversation_bytes(MAX_HISTORY_BYTES);
            let driven = SenderPermits::new(MAX_DRIVEN, MAX_DRIVEN_FOR_SENDER);
            Self { sources, index, histories, driven, state, changing }
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

    /// Counts a run as driven for a sender until the permit is dropped.
    fn permit_run(&self, sender: &str) -> Result<SenderPermit, HttpError> {
        self.driven.acquire(sender).map_err(|limit| {
            HttpError::too_many(limit, |max| {
                format!("`{sender}` has {max} runs in progress already; wait until one ends, or cancel one")
            })
        })
    }

    /// Drives a run in a task of its own, which holds the permit: who asked or decided can leave.
    fn drive(self: &Arc<Self>, source: &Arc<Source>, run: Run, permit: Option<SenderPermit>) {
        let Some(agent) = &source.agent else { return };
        let id = run.id().to_string();
        self.index.forget(&id);
        // The run is at rest once it is stored again.
        let follower = Follower::new(self, source, &run);
        let conversation = run.conversation().cloned().filter(|_| agent.memory().is_none());
        let token = CancellationToken::new();
        *lock(&follower.0.token) = Some(token.clone());
        let mut events = agent.resume(run).tools(follower.0.tools()).cancellation_token(token).stream();
        let hub = Arc::clone(self);
        tokio::spawn(async move {
            let _permit = permit;
            while let Some(event) = events.next().await {
                match (event, &conversation) {
                    (Ok(Event::Done(answer)), Some(conversation)) => {
                        hub.remember(conversation, answer.into_messages()).await;
                    }
                    (Ok(_), _) => {}
                    (Err(error), _) => drop(Entry::from_error(&error).map(|entry| follower.0.push(entry))),
                }
            }
            hub.index.forget(&id);
        });
    }

    /// Returns the decision about a wait that was recorded here.
    pub(crate) fn recorded(&self, wait: &WaitId) -> Option<Recorded> {
        self.lock().decisions.get(wait).cloned()
    }

    /// Returns `true` if this decision was recorded here.
    pub(crate) fn is_repeated(&self, wait: &WaitId, decision: &Decision) -> bool {
        self.recorded(wait).is_some_and(|recorded| recorded.digest == digest(decision))
    }

    /// Records decisions about what a run waits for, and continues the run if nobody drives it. Only the first decision about a
    /// wait counts; an equal one is answered in the same way, and of another one, the record of the first is returned as the inner
    /// error. If one of them is refused, none is recorded, unless another process decides in the same moment.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        id: &str,
        by: &str,
        decisions: Vec<(WaitId, Decision)>,
    ) -> Result<Result<Vec<Recorded>, DecisionRecord>, HttpError> {
        let _one = self.changing.lock().await;
        let (mut answers, mut open) = (Vec::new(), Vec::new());
        for (wait, decision) in decisions {
            match self.recorded(&wait) {
                Some(recorded) if recorded.digest == digest(&decision) => answers.push(recorded),
                Some(recorded) => return Ok(Err(recorded.record)),
                None => open.push((wait, decision)),
            }
        }
        if open.is_empty() {
            return Ok(Ok(answers));
        }
        let permit = self.permit_run(by)?;
        let Some(Loaded { source, mut run, status }) = self.load(id).await? else {
            return Err(self.refusal(id).await);
        };
        let posted = source.store.posted(id).await.map_err(|_| HttpError::store())?;
        let waits = run.waits();
        let mut found = Vec::new();
        for (id, decision) in open {
            if let Some(earlier) = posted.iter().find_map(|posted| record_about(posted, &id)) {
                return Ok(Err(earlier));
            }
            let wait = waits.iter().find(|wait| wait.id == id);
            if let (Some(wait), Some(arguments)) = (wait, decision.edited_arguments()) {
                source.check_arguments(&run, wait, arguments)?;
            }
            let digest = digest(&decision);
            let decision = decision.by(by).at(Timestamp::now());
            // The copy is only checked for whether the decision is valid; the driver of the run checks again.
            if let Err(error) = run.resolve(&id, decision.clone()) {
                return match (error.kind(), error.decided()) {
                    (ResolveErrorKind::AlreadyDecided, Some(record)) => Ok(Err(record.clone())),
                    (ResolveErrorKind::UnknownWait, _) => Err(not_waiting()),
                    _ => Err(HttpError::bad_request(error.to_string())),
                };
            }
            let (wait, record) = wait.zip(decision.record(&id)).ok_or_else(not_waiting)?;
            found.push((wait, decision, Recorded { record, digest, position: 0 }));
        }
        // A secret answer must not be in an inbox, so the run goes on from the copy.
        let is_secret = |wait: &Wait| wait.question().is_some_and(|question| question.is_secret());
        let is_direct = found.iter().any(|(wait, ..)| is_secret(wait));
        if is_direct && (status == RunStatus::RunningElsewhere || source.agent.is_none()) {
            return Err(HttpError::conflict("another program drives the run"));
        }
        if is_direct {
            check_budget(&run)?;
        }
        let mut lost = None;
        for (wait, decision, mut recorded) in found {
            if !is_direct {
                let command = PostedCommand::new(RunCommand::resolve(&wait.id, decision.clone()));
                source.post(id, &command).await?;
                if let Some(earlier) = source.earlier(id, &command, wait, decision).await {
                    lost = Some(earlier);
                    continue;
                }
            }
            if source.agent.is_some() {
                let decided = Decided { call: wait.path.clone(), record: recorded.record.clone() };
                recorded.position = self.log_of(&source, &run).push(Entry::Decided(decided));
            }
            self.lock().decisions.insert(wait.id.clone(), recorded.clone());
            answers.push(recorded);
        }
        if is_direct {
            self.drive(&source, run, Some(permit));
        } else if check_budget(&run).is_ok() {
            self.resume_now(id, Some(permit)).await?;
        }
        Ok(lost.map_or(Ok(answers), Err))
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

    /// Asks a question in a conversation, or adds it to the run that waits there. Returns the log of the run, and the position of the
    /// question.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        source: &Arc<Source>,
        conversation: &ConversationId,
        question: Content,
        tools: FrontendTools,
        sender: &str,
    ) -> Result<(Arc<RunLog>, u64), HttpError> {
        // Of two questions at once, the second finds the run of the first.
        let _one = self.changing.lock().await;
        let agent = source.agent.as_ref().ok_or_else(HttpError::unknown_run)?;
        if let Some(run) = source.run_of(conversation).await {
            if self.log(&run).is_some_and(|log| log.is_driven()) {
                return Err(HttpError::conflict("the last question is still being answered"));
            }
            if let Some(log) = self.push_message(&run, &question, sender).await? {
                let (_, position) = log.questions();
                return Ok((log, position));
            }
        }
        let permit = self.permit_run(sender)?;
        let mut ask = agent.ask(question).conversation(conversation.clone());
        if agent.memory().is_none() {
            ask = ask.history(self.histories.load(conversation).await.unwrap_or_default());
        }
        let run = ask.start().into_run();
        let log = self.log_of(source, &run);
        log.offer(tools);
        self.drive(source, run, Some(permit));
        lock(&source.conversations).insert(conversation.clone(), log.id.clone());
        let first = log.first();
        Ok((log, first))
    }

    /// Adds a message of the user to a run that waits: its calls are denied, and it goes on. Returns `None` if there is no such run.
    async fn push_message(
        self: &Arc<Self>,
        id: &str,
        message: &Content,
        sender: &str,
    ) -> Result<Option<Arc<RunLog>>, HttpError> {
        let loaded = self.load(id).await?.filter(|loaded| loaded.status == RunStatus::Waiting);
        let Some(Loaded { source, mut run, .. }) = loaded else { return Ok(None) };
        check_budget(&run)?;
        let permit = self.permit_run(sender)?;
        let log = self.log_of(&source, &run);
        for wait in run.waits() {
            let denial = Decision::deny("the user sent another message instead").by("the next message");
            let denial = denial.at(Timestamp::now());
            // Calls whose results the caller supplies go on waiting.
            if run.resolve(&wait.id, denial.clone()).is_ok()
                && let Some(record) = denial.record(&wait.id)
            {
                log.push(Entry::Decided(Decided { call: wait.path, record }));
            }
        }
        if run.push_user_message(message.clone()).is_err() {
            return Ok(None);
        }
        log.push(Entry::Question { text: message.text().into_owned() });
        self.drive(&source, run, Some(permit));
        Ok(Some(log))
    }

    /// Continues a stored run, unless somebody drives it. Fails if nobody here can drive it.
    pub(crate) async fn resume(self: &Arc<Self>, id: &str, sender: &str) -> Result<(), HttpError> {
        let _one = self.changing.lock().await;
        self.load(id).await?.map_or(Ok(()), |loaded| check_budget(&loaded.run))?;
        let permit = self.permit_run(sender)?;
        if self.resume_now(id, Some(permit)).await? { Ok(()) } else { Err(self.refusal(id).await) }
    }

    async fn resume_now(
        self: &Arc<Self>,
        id: &str,
        permit: Option<SenderPermit>,
    ) -> Result<bool, MemoryError> {
        self.index.forget(id);
        let Some(loaded) = self.load(id).await? else { return Ok(false) };
        if loaded.status != RunStatus::RunningElsewhere {
            self.drive(&loaded.source, loaded.run, permit);
        }
        Ok(loaded.source.agent.is_some())
    }

    /// Cancels a run, in this process or in another.
    pub(crate) async fn cancel(self: &Arc<Self>, id: &str) -> Result<(), HttpError> {
        let _one = self.changing.lock().await;
        let token = self.log(id).and_then(|log| lock(&log.token).clone());
        token.iter().for_each(CancellationToken::cancel);
        if let Some(loaded) = self.load(id).await?
            && loaded.source.post(id, &PostedCommand::new(RunCommand::Cancel)).await.is_ok()
        {
            // It only ends, which needs no permit.
            self.resume_now(id, None).await?;
        } else if token.is_none() {
            return Err(self.refusal(id).await);
        }
        Ok(())
    }

    /// Remembers the messages of an answer. A conversation that is too large is forgotten.
    async fn remember(&self, conversation: &ConversationId, messages: Vec<Message>) {
        let mut history = self.histories.load(conversation).await.unwrap_or_default();
        history.extend(messages);
        let history = Window::messages(MAX_HISTORY).apply(history);
        if self.histories.replace(conversation, &history).await.is_err() {
            drop(self.histories.clear(conversation).await);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Source {
    async fn post(&self, id: &str, command: &PostedCommand) -> Result<(), HttpError> {
        match self.store.post(id, command).await {
            Ok(PostOutcome::Posted) => Ok(()),
            _ => Err(HttpError::store()),
        }
    }

    /// Returns the decision that another process has posted about the same wait in the same moment, if it comes first. Drivers take
    /// commands in the order of the inbox, and acknowledge what they have stored.
    async fn earlier(
        &self,
        id: &str,
        own: &PostedCommand,
        wait: &Wait,
        decision: Decision,
    ) -> Option<DecisionRecord> {
        let posted = self.store.posted(id).await.ok()?;
        let about = posted.iter().find(|posted| record_about(posted, &wait.id).is_some());
        if let Some(first) = about {
            return record_about(first, &wait.id).filter(|_| first.id != own.id);
        }
        let mut run = self.load(id).await.ok()??.run;
        let record = decision.record(&wait.id);
        run.resolve(&wait.id, decision)
            .err()?
            .decided()
            .cloned()
            .filter(|first| Some(first) != record.as_ref())
    }
}

/// Checks that a run is charged to nothing that only its program knows.
pub(crate) fn check_budget(run: &Run) -> Result<(), HttpError> {
    match run.has_own_budget() {
        false => Ok(()),
        true => Err(HttpError::conflict(
            "the run is charged to a budget that only its program knows; let it continue the run: `agent.resume(run).budget(…)`",
        )),
    }
}

fn not_waiting() -> HttpError {
    HttpError::conflict("the run does not wait for this any more; read it again")
}

/// Returns the record of a posted decision about a wait.
fn record_about(posted: &PostedCommand, wait: &WaitId) -> Option<DecisionRecord> {
    match &posted.command {
        RunCommand::Resolve { wait: id, decision } if id == wait => decision.record(wait),
        _ => None,
    }
}

impl State {
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
struct Follower(Arc<RunLog>);

impl Follower {
    fn new(hub: &Hub, source: &Source, run: &Run) -> Self {
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
