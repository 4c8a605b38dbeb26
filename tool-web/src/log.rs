//! The log of one run, for any number of readers: the latest entries of its stored log, and the deltas of its present replies.
//!
//! What is shown is what is stored, in the process that drives the run and in any other one, so a position is the same in all of them. The
//! events of a driver in this process only say that there is more to read; deltas and progress are stored nowhere, and are shown until what
//! they are part of is complete. Without a driver here, the store is asked again and again, once however many read.
//!
//! A log is bounded, and readers pull from it, so a slow reader costs no memory: it misses entries, and learns of it. One that has missed
//! deltas gets the reply as a whole.

use std::collections::{HashMap, VecDeque};
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::body::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tool_core::agent::EventRecord;
use tool_core::memory::{MemoryError, RunStatus};
use tool_core::model::ChatResponse;
use tool_core::store::{RunNews, RunReader};
use tool_core::tool::WaitId;
use tool_core::{CancellationToken, Event, ToolSet};

use crate::bounded::lock;
use crate::entry::{Entry, Failure};
use crate::source::Source;
use crate::sse::frames;

/// The largest size of the deltas of a run, in bytes. The rest of a reply is shown with its end then.
const MAX_DELTA_BYTES: usize = 4 << 20;

/// The largest size of the recorded requests of a run, in bytes.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// The time between two readings of a run that another process drives: while entries come, and after a quiet minute.
pub(crate) const SHORTEST_POLL: Duration = Duration::from_millis(250);
const LONGEST_POLL: Duration = Duration::from_secs(2);
const QUIET: Duration = Duration::from_secs(60);

/// An entry, and the server-sent event of its serialized form, which all readers share.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) position: u64,
    /// A client that has the entry has all of its position.
    pub(crate) is_last: bool,
    pub(crate) entry: Entry,
    pub(crate) frame: Bytes,
}

impl Logged {
    fn new(entry: Entry, position: u64, is_last: bool) -> Arc<Self> {
        // These can always be serialized.
        let json = serde_json::to_string(&entry).unwrap_or_default();
        let frame = frames(&[json], is_last.then_some(position));
        Arc::new(Self { position, is_last, entry, frame })
    }

    /// Returns roughly the memory that it takes, in bytes.
    fn size(&self) -> usize {
        2 * self.frame.len() + size_of::<Self>()
    }
}

/// The log of a run.
pub(crate) struct RunLog {
    pub(crate) id: String,
    pub(crate) source: Arc<Source>,
    /// Cancels the run, if it is driven by the page.
    pub(crate) token: Mutex<Option<CancellationToken>>,
    /// Held while the store is read.
    reader: tokio::sync::Mutex<RunReader>,
    state: Mutex<LogState>,
    changes: watch::Sender<()>,
    /// The number of bytes that each log may take.
    share: Arc<AtomicUsize>,
}

#[derive(Default)]
struct LogState {
    entries: VecDeque<Arc<Logged>>,
    /// The number of the first entry, in the order in which they were read.
    first: u64,
    /// The position of the last entry that was dropped.
    dropped: Option<u64>,
    bytes: usize,
    deltas: Deltas,
    drivers: usize,
    /// How often something has happened here, and how much of that was read.
    happened: u64,
    read: u64,
    stored: Stored,
    /// The store has failed.
    is_failing: bool,
    /// When the store was read last, and when there was something new.
    read_at: Option<Instant>,
    changed_at: Option<Instant>,
    failure: Option<Failure>,
    /// The run has failed, and the page, which drives it, is about to know why.
    held_back: Option<EventRecord>,
    /// The recorded requests to the model, with the numbers of their turns.
    requests: VecDeque<(u32, String)>,
    /// The tools that the frontend executes which asked the question, until the run has ended.
    tools: Option<FrontendTools>,
}

/// What the store says of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stored {
    #[default]
    Unread,
    Absent,
    /// Another process drives it.
    Running,
    /// A command was posted, which somebody is about to take.
    Posted(RunStatus),
    Resting(RunStatus),
}

/// What is stored nowhere: the deltas of replies in progress, and the progress of calls.
#[derive(Default)]
struct Deltas {
    shown: Vec<Delta>,
    /// What has more deltas than are shown.
    cut: Vec<Part>,
    bytes: usize,
    /// The number of the next one.
    next: u64,
    /// The turn of each run, by the calls that lead to it.
    turns: HashMap<String, u32>,
}

struct Delta {
    number: u64,
    of: Part,
    logged: Arc<Logged>,
}

/// What a delta is part of, in the run to which these calls lead.
#[derive(Clone, PartialEq)]
enum Part {
    Reply(String, u32),
    Call(String, String),
}

/// Tools that a frontend sends and executes.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrontendTools {
    pub(crate) set: ToolSet,
    /// Roughly the memory that they take, in bytes.
    pub(crate) bytes: usize,
}

/// Why nothing more comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The run waits for people or callers.
    Waits,
    /// It has an answer, or has failed.
    Ended,
    /// It is not stored any more.
    Gone,
    /// Its driver has left it.
    Left,
}

impl RunLog {
    /// Creates a log that takes at most its share of the memory of all logs.
    pub(crate) fn new(id: &str, source: &Arc<Source>, share: &Arc<AtomicUsize>) -> Self {
        let (id, source, reader) = (id.to_owned(), Arc::clone(source), RunReader::new(id).into());
        let (token, state, changes) = (Mutex::default(), Mutex::default(), watch::Sender::new(()));
        Self { id, source, token, reader, state, changes, share: Arc::clone(share) }
    }

    /// Begins to follow a driver of the run.
    pub(crate) fn driver_joined(&self) {
        self.change(|state| {
            state.drivers += 1;
            state.happened += 1;
            state.failure = None;
        });
    }

    /// Marks the driver as gone.
    pub(crate) fn driver_left(&self) {
        self.change(|state| {
            state.drivers = state.drivers.saturating_sub(1);
            state.happened += 1;
            if state.drivers == 0 {
                state.show_failure();
                state.deltas = Deltas { next: state.deltas.next, ..Deltas::default() };
                *lock(&self.token) = None;
            }
        });
    }

    /// Takes note of the event of a driver.
    pub(crate) fn receive(&self, event: &Event) {
        self.change(|state| {
            // Why a run has failed that the page drives is known to the page.
            let is_known = matches!(event, Event::Failed(_)) && lock(&self.token).is_some();
            if !(state.deltas.add(event) || is_known) {
                state.happened += 1;
            }
            if matches!(event, Event::Done(_)) {
                state.tools = None;
            }
        });
    }

    /// Sets why the run has failed that was driven here.
    pub(crate) fn set_failure(&self, failure: Failure) {
        self.change(|state| {
            state.failure = Some(failure);
            state.show_failure();
        });
    }

    pub(crate) fn is_driven(&self) -> bool {
        self.lock().drivers > 0
    }

    pub(crate) fn bytes(&self) -> usize {
        let state = self.lock();
        let tools = state.tools.as_ref().map_or(0, |tools| tools.bytes);
        state.bytes + state.deltas.bytes + state.request_bytes() + tools
    }

    /// Sets the tools that a frontend executes, unless the run has some: an open call of another party must not become one of them.
    pub(crate) fn offer(&self, tools: FrontendTools) {
        self.lock().tools.get_or_insert(tools);
    }

    /// Returns the tools that a frontend executes.
    pub(crate) fn tools(&self) -> ToolSet {
        self.lock().tools.as_ref().map(|tools| tools.set.clone()).unwrap_or_default()
    }

    /// Records a request to the model as JSON text. The oldest ones are dropped.
    pub(crate) fn record_request(&self, turn: u32, request: String) {
        let mut state = self.lock();
        state.requests.push_back((turn, request));
        while state.request_bytes() > MAX_REQUEST_BYTES {
            state.requests.pop_front();
        }
    }

    /// Returns the recorded request of a turn, and the response.
    pub(crate) fn exchange(&self, turn: u32) -> (Option<String>, Option<ChatResponse>) {
        let state = self.lock();
        let request = state.requests.iter().rev().find(|(recorded, _)| *recorded == turn);
        let response = state.entries.iter().rev().find_map(|logged| match logged.entry.event()? {
            Event::TurnFinished { turn: finished, response, .. } if *finished == turn => {
                Some(response.clone())
            }
            _ => None,
        });
        (request.map(|(_, request)| request.clone()), response)
    }

    /// Returns the position of the last entry, if there is one.
    pub(crate) fn last(&self) -> Option<u64> {
        self.lock().entries.back().map(|logged| logged.position)
    }

    /// Returns the entries, the oldest first.
    pub(crate) fn entries(&self) -> VecDeque<Arc<Logged>> {
        self.lock().entries.clone()
    }

    /// Returns the number of messages of the user that the run has taken, and the position of the last one.
    pub(crate) fn questions(&self) -> (usize, Option<u64>) {
        let entries = self.entries();
        let is_question =
            |logged: &&Arc<Logged>| matches!(logged.entry.event(), Some(Event::Question { .. }));
        let positions = entries.iter().filter(is_question).map(|logged| logged.position);
        positions.fold((0, None), |(count, _), position| (count + 1, Some(position)))
    }

    /// Returns the position before the decision about a wait, if the log has both.
    pub(crate) fn position_before(&self, wait: &WaitId) -> Option<u64> {
        let entries = self.entries();
        let is_decision = |logged: &&Arc<Logged>| {
            let event = logged.entry.event().map(|event| innermost(event).1);
            matches!(event, Some(Event::CallDecided(decision)) if decision.record.wait == *wait)
        };
        entries.iter().find(is_decision)?.position.checked_sub(1)
    }

    /// Returns why nothing more comes, unless something does.
    pub(crate) fn end(&self) -> Option<End> {
        self.lock().end()
    }

    /// Reads what is new in the store.
    pub(crate) async fn refresh(&self) {
        let mut reader = self.reader.lock().await;
        self.read(&mut reader).await;
    }

    /// Reads what is new in the store, if it is time. Others read for this one.
    async fn refresh_if_due(&self) {
        let mut reader = self.reader.lock().await;
        if self.lock().due().is_some_and(|due| due <= Instant::now()) {
            self.read(&mut reader).await;
        }
    }

    async fn read(&self, reader: &mut RunReader) {
        let happened = self.lock().happened;
        let mut is_end = false;
        while !is_end {
            let read = reader.read(&*self.source.store).await;
            is_end = !matches!(&read, Ok(Some(news)) if !news.is_end);
            let share = self.share.load(Ordering::Relaxed);
            let is_driven_by_page = lock(&self.token).is_some();
            self.change(|state| {
                state.is_failing = read.is_err();
                state.add(read, share, is_driven_by_page);
                if is_end && !state.is_failing {
                    state.read = happened;
                }
            });
        }
    }

    /// Returns `true` if the log has dropped what follows a position.
    pub(crate) fn has_dropped_after(&self, after: Option<u64>) -> bool {
        after.zip(self.lock().dropped).is_some_and(|(after, dropped)| after < dropped)
    }

    /// Returns what tells of changes from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Returns a reader that begins with the first entry, or behind a position.
    pub(crate) fn reader(self: &Arc<Self>, after: Option<u64>) -> Reader {
        let (log, changes) = (Arc::clone(self), self.changes.subscribe());
        let state = self.lock();
        let skipped =
            after.map_or(0, |after| state.entries.partition_point(|logged| logged.position <= after));
        let next = state.first + skipped as u64;
        drop(state);
        Reader { log, next, next_delta: 0, changes }
    }

    fn change(&self, change: impl FnOnce(&mut LogState)) {
        change(&mut self.lock());
        self.changes.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        lock(&self.state)
    }
}

impl LogState {
    /// Adds what was read.
    fn add(&mut self, read: Result<Option<RunNews>, MemoryError>, share: usize, is_driven_by_page: bool) {
        let now = Instant::now();
        self.read_at = Some(now);
        let Ok(read) = read else { return };
        let Some(news) = read else {
            // One that was never stored has ended with what went wrong here.
            if let Some(failure) = self.failure.take().filter(|_| self.entries.is_empty()) {
                self.push(Logged::new(Entry::Failed(failure), 0, false));
            }
            self.stored = Stored::Absent;
            return;
        };
        if news.is_beginning && !self.entries.is_empty() {
            // Readers find a gap.
            self.first += self.entries.len() as u64 + 1;
            (self.entries, self.bytes, self.dropped) = Default::default();
        }
        let summary = &news.summary;
        self.stored = match summary.status {
            _ if summary.is_leased => Stored::Running,
            status if summary.is_command_posted && status != RunStatus::Finished => Stored::Posted(status),
            status => Stored::Resting(status),
        };
        if !news.events.is_empty() || self.changed_at.is_none() {
            self.changed_at = Some(now);
        }
        let mut events = news.events.into_iter().peekable();
        while let Some(record) = events.next() {
            let position = record.position;
            if is_driven_by_page && self.failure.is_none() && matches!(record.event, Event::Failed(_)) {
                self.held_back = Some(record);
                continue;
            }
            self.show_failure();
            self.deltas.complete(&record.event);
            let entry = Entry::new(record, self.failure.as_ref());
            let is_last = events.peek().is_none_or(|next| next.position > position);
            self.push(Logged::new(entry, position, is_last));
        }
        while self.bytes > share && self.entries.len() > 1 {
            let Some(dropped) = self.entries.pop_front() else { break };
            self.bytes -= dropped.size();
            self.first += 1;
            self.dropped = Some(dropped.position);
        }
    }

    fn show_failure(&mut self) {
        if let Some(record) = self.held_back.take() {
            let position = record.position;
            self.push(Logged::new(Entry::new(record, self.failure.as_ref()), position, true));
        }
    }

    fn push(&mut self, logged: Arc<Logged>) {
        self.bytes += logged.size();
        self.entries.push_back(logged);
    }

    fn request_bytes(&self) -> usize {
        self.requests.iter().map(|(_, request)| request.len()).sum()
    }

    fn is_stale(&self) -> bool {
        self.happened != self.read
    }

    /// Returns when the store is to be read, unless something has to happen before.
    fn due(&self) -> Option<Instant> {
        let Some(read_at) = self.read_at else { return Some(Instant::now()) };
        let quiet = self.changed_at.map_or(QUIET, |changed| read_at.duration_since(changed)).min(QUIET);
        let pause =
            SHORTEST_POLL + (LONGEST_POLL - SHORTEST_POLL).mul_f64(quiet.as_secs_f64() / QUIET.as_secs_f64());
        match (self.is_stale(), self.drivers) {
            (true, _) if !self.is_failing => Some(read_at),
            (false, 1..) => None,
            _ => Some(read_at + pause),
        }
    }

    fn end(&self) -> Option<End> {
        let is_quiet =
            || self.read_at.zip(self.changed_at).is_none_or(|(read, changed)| read >= changed + QUIET);
        let stored = match self.stored {
            Stored::Posted(status) if is_quiet() => Stored::Resting(status),
            stored => stored,
        };
        match stored {
            _ if self.drivers > 0 => None,
            _ if self.is_failing => is_quiet().then_some(End::Left),
            _ if self.is_stale() => None,
            Stored::Unread | Stored::Running | Stored::Posted(_) => None,
            Stored::Absent if self.entries.back().is_some_and(|last| last.entry.is_end()) => Some(End::Ended),
            Stored::Absent => Some(End::Gone),
            Stored::Resting(RunStatus::Waiting) => Some(End::Waits),
            // Another process can be about to continue it.
            Stored::Resting(RunStatus::Interrupted) => is_quiet().then_some(End::Left),
            Stored::Resting(_) => Some(End::Ended),
        }
    }
}

/// Returns the event of the run inside of which it happened, and the calls that lead there.
fn innermost(event: &Event) -> (String, &Event) {
    let (mut path, mut event) = (String::new(), event);
    while let Event::Agent { call_id, event: inner, .. } = event {
        path.extend([call_id, "/"]);
        event = inner;
    }
    (path, event)
}

impl Deltas {
    /// Adds an event of a driver that is stored nowhere. Returns `false` if it is another one.
    fn add(&mut self, event: &Event) -> bool {
        let (path, inner) = innermost(event);
        let of = match inner {
            Event::Text(_)
            | Event::Reasoning(_)
            | Event::Refusal(_)
            | Event::CallAnnounced { .. }
            | Event::Arguments { .. } => {
                let turn = self.turns.get(&path).copied().unwrap_or_default();
                Part::Reply(path, turn)
            }
            Event::CallProgress { id, .. } => {
                let of = Part::Call(path, id.clone());
                self.remove(|known| *known == of);
                of
            }
            Event::TurnStarted { turn, .. } => {
                self.remove(|part| matches!(part, Part::Reply(of, _) if *of == path));
                self.turns.insert(path, *turn);
                return false;
            }
            _ => return false,
        };
        if self.bytes > MAX_DELTA_BYTES && !self.cut.contains(&of) {
            self.cut.push(of.clone());
        }
        // Nothing follows what is missing.
        if !self.cut.contains(&of) {
            let logged = Logged::new(Entry::Event(event.clone().at(0)), 0, false);
            self.bytes += logged.size();
            self.shown.push(Delta { number: self.next, of, logged });
            self.next += 1;
        }
        true
    }

    /// Removes what an event completes.
    fn complete(&mut self, event: &Event) {
        let (path, inner) = innermost(event);
        match inner {
            Event::TurnFinished { turn, .. } => {
                self.remove(|part| matches!(part, Part::Reply(of, begun) if *of == path && begun <= turn));
            }
            Event::CallFinished(execution) => {
                let of = Part::Call(path, execution.call().id.clone());
                self.remove(|part| *part == of);
            }
            _ => {}
        }
    }

    fn remove(&mut self, is_removed: impl Fn(&Part) -> bool) {
        self.shown.retain(|delta| !is_removed(&delta.of));
        self.cut.retain(|of| !is_removed(of));
        self.bytes = self.shown.iter().map(|delta| delta.logged.size()).sum();
    }
}

/// A reader of a log.
pub(crate) struct Reader {
    log: Arc<RunLog>,
    /// The number of the next entry, and of the next delta.
    next: u64,
    next_delta: u64,
    changes: watch::Receiver<()>,
}

/// What a reader finds.
#[derive(Debug)]
pub(crate) enum Found {
    Entry(Arc<Logged>),
    // Something that is stored nowhere.
    Delta(Arc<Logged>),
    // The log no longer has what is next, or begins anew.
    Gap,
    // There is nothing more.
    End(End),
}

impl Reader {
    /// Returns what is next. Waits for it while the run goes on, here or elsewhere.
    pub(crate) async fn next(&mut self) -> Found {
        loop {
            self.changes.mark_unchanged();
            if let Some(found) = self.find() {
                return found;
            }
            self.wait().await;
        }
    }

    fn find(&mut self) -> Option<Found> {
        let state = self.log.lock();
        if self.next < state.first || self.next > state.first + state.entries.len() as u64 {
            self.next = state.first;
            return Some(Found::Gap);
        }
        let index = usize::try_from(self.next - state.first).unwrap_or(usize::MAX);
        if let Some(logged) = state.entries.get(index) {
            self.next += 1;
            return Some(Found::Entry(Arc::clone(logged)));
        }
        if state.is_stale() {
            // What is stored comes first.
            return None;
        }
        if let Some(delta) = state.deltas.shown.iter().find(|delta| delta.number >= self.next_delta) {
            self.next_delta = delta.number + 1;
            return Some(Found::Delta(Arc::clone(&delta.logged)));
        }
        state.end().map(Found::End)
    }

    /// Waits until something has changed, or may have.
    pub(crate) async fn wait(&mut self) {
        let due = self.log.lock().due();
        let is_due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        };
        tokio::select! {
            // Cannot fail: `log` holds the sender.
            _ = self.changes.changed() => {}
            () = is_due => self.log.refresh_if_due().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use futures_util::future::join_all;
    use tool_core::memory::{InMemoryStore, RunFilter, RunSummary};
    use tool_core::run::Run;
    use tool_core::store::{
        RunChanges, RunLog as StoredLog, RunRevision, RunStore, SaveOutcome, StoreFuture,
    };
    use tool_core::testing::ScriptedModel;
    use tool_core::{Agent, tool, tools};

    use super::*;

    #[tool("Pays", needs_approval)]
    fn pay() {}

    /// Counts how often a log is read.
    #[derive(Clone, Default)]
    struct Counting(InMemoryStore, Arc<AtomicU32>);

    impl Counting {
        fn take(&self) -> u32 {
            self.1.swap(0, Ordering::SeqCst)
        }
    }

    impl RunStore for Counting {
        fn append_run<'a>(
            &'a self,
            id: &'a str,
            expected: Option<&'a RunRevision>,
            changes: &'a RunChanges,
        ) -> StoreFuture<'a, SaveOutcome> {
            self.0.append_run(id, expected, changes)
        }

        fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
            self.0.load_run(id)
        }

        fn entries<'a>(
            &'a self,
            id: &'a str,
            after: Option<u64>,
            limit: usize,
        ) -> StoreFuture<'a, Option<StoredLog>> {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.entries(id, after, limit)
        }

        fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
            self.0.remove_run(id)
        }

        fn list_runs<'a>(&'a self, filter: &'a RunFilter) -> StoreFuture<'a, Vec<RunSummary>> {
            self.0.list_runs(filter)
        }
    }

    /// Returns a store, a run in it that waits, and its log in another process.
    async fn waiting() -> (Counting, Agent, Run, Arc<RunLog>) {
        let store = Counting::default();
        let agent = Agent::builder(ScriptedModel::new().calls("pay", "{}").says("Done.")).tools(tools![pay]);
        let agent = agent.run_store(store.clone()).keep_finished(QUIET).build().unwrap();
        let run = agent.ask("Pay").await.unwrap_err().into_run();
        let source = Arc::new(Source::store("store", Arc::new(store.clone())));
        let log = RunLog::new(run.id().as_str(), &source, &Arc::new(AtomicUsize::new(1 << 20)));
        (store, agent, run, Arc::new(log))
    }

    async fn read_to_end(reader: &mut Reader) -> Vec<Entry> {
        let mut entries = Vec::new();
        loop {
            match reader.next().await {
                Found::Entry(logged) => entries.push(logged.entry.clone()),
                Found::End(_) => return entries,
                found => panic!("{found:?}"),
            }
        }
    }

    /// Fifty readers cost one poll, often while entries come and seldom after a quiet minute, and read what another process has done.
    #[tokio::test(start_paused = true)]
    async fn readers_of_a_run_of_another_process_share_its_polls() {
        let (store, agent, mut run, log) = waiting().await;
        store.take();
        let mut readers: Vec<_> = (0..50).map(|_| log.reader(None)).collect();
        let read = join_all(readers.iter_mut().map(read_to_end)).await;
        assert!(read.iter().all(|entries| entries.len() == read[0].len() && !entries.is_empty()));
        assert_eq!(store.take(), 1);
        // Until the next poll.
        for pause in [SHORTEST_POLL, LONGEST_POLL] {
            readers.iter_mut().for_each(|reader| reader.changes.mark_unchanged());
            let begun = Instant::now();
            join_all(readers.iter_mut().map(Reader::wait)).await;
            let waited = begun.elapsed();
            assert!((pause..pause + SHORTEST_POLL).contains(&waited), "{waited:?}");
            assert_eq!(store.take(), 1);
            tokio::time::advance(QUIET).await;
            log.refresh().await;
            store.take();
        }
        run.resolve_all(|_| tool_core::run::Decision::approve()).unwrap();
        agent.resume(run).await.unwrap();
        log.refresh().await;
        let read = join_all(readers.iter_mut().map(read_to_end)).await;
        assert!(read.iter().all(|entries| entries.last().is_some_and(Entry::is_end)), "{:?}", read[0]);
    }

    /// Positions are those of the stored log, so that another process continues a stream.
    #[tokio::test]
    async fn each_process_has_the_same_positions() {
        let (_, agent, run, log) = waiting().await;
        let other = Arc::new(Source::agent(agent));
        let other = Arc::new(RunLog::new(run.id().as_str(), &other, &Arc::new(AtomicUsize::new(1 << 20))));
        for log in [&log, &other] {
            log.refresh().await;
        }
        let frames =
            |log: &RunLog| log.entries().iter().map(|logged| logged.frame.clone()).collect::<Vec<_>>();
        assert_eq!(frames(&log), frames(&other));
        let last = log.last();
        assert_eq!(read_to_end(&mut other.reader(last)).await.len(), 0);
        assert_eq!(read_to_end(&mut other.reader(last.map(|last| last - 1))).await.len(), 1);
    }

    /// A log that takes more than its share forgets its beginning, and readers learn of it.
    #[tokio::test]
    async fn a_log_takes_its_share_and_a_slow_reader_finds_a_gap() {
        let (store, agent, mut run, log) = waiting().await;
        let mut reader = log.reader(None);
        log.share.store(1, Ordering::Relaxed);
        run.resolve_all(|_| tool_core::run::Decision::approve()).unwrap();
        agent.resume(run).await.unwrap();
        log.refresh().await;
        assert_eq!((log.entries().len(), store.take()), (1, 1));
        assert!(matches!(reader.next().await, Found::Gap));
        assert!(matches!(reader.next().await, Found::Entry(logged) if logged.entry.is_end()));
    }

    /// Deltas are shown behind what is stored, each until the reply is complete.
    #[tokio::test]
    async fn deltas_follow_what_is_stored_and_end_with_their_reply() {
        let (_, _, _, log) = waiting().await;
        let mut reader = log.reader(None);
        log.driver_joined();
        log.receive(&Event::turn_started(2, 1));
        log.receive(&Event::Text("We".into()));
        log.receive(&Event::Text("ll.".into()));
        let mut found = Vec::new();
        while let Found::Entry(_) = {
            let next = reader.next().await;
            if let Found::Delta(logged) = &next {
                found.push(logged.entry.clone());
            }
            next
        } {}
        assert!(matches!(reader.next().await, Found::Delta(_)));
        assert!(matches!(found[0].event(), Some(Event::Text(text)) if text == "We"));
        let late = log.reader(log.last()).find();
        assert!(
            matches!(late, Some(Found::Delta(logged)) if matches!(logged.entry.event(), Some(Event::Text(_))))
        );
        log.lock().deltas.complete(&Event::turn_finished(2, ChatResponse::new(Default::default())));
        assert!(log.reader(log.last()).find().is_none());
        assert_eq!(log.lock().deltas.bytes, 0);
    }
}
