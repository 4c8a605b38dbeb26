//! The log of one run: its latest entries, each with a position, for any number of readers.
//!
//! A log is bounded, and readers pull from it, so a slow reader costs no memory: it misses entries, and learns of it.
//!
//! Readers pull by position, because fifty slow readers must cost no more than one.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;
use tool_core::model::{ChatResponse, RunUser, Usage};
use tool_core::run::Run;
use tool_core::tool::Timestamp;
use tool_core::{CancellationToken, Event, ToolSet};

use crate::bounded::lock;
use crate::entry::{Entry, executions, is_failure};
use crate::sse::frames;

/// The largest size of a log, in bytes.
const MAX_BYTES: usize = 8 << 20;

/// The largest size of the recorded requests of a run, in bytes.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// The longest text in the list, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// The status of a run in the list, in the order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Waiting,
    #[default]
    Running,
    Failed,
    Unreadable,
    /// Its driver has left it without an end.
    Interrupted,
    Expired,
    Cancelled,
    Done,
}

impl Status {
    /// Returns `true` if the run is not continued, unless it is resumed after a failure.
    pub(crate) fn is_end(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// A run in the list.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) agent: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<RunUser>,
    pub(crate) status: Status,
    pub(crate) question: String,
    pub(crate) turns: u32,
    pub(crate) usage: Usage,
    /// The number of calls that failed, which the model may have dealt with.
    pub(crate) failed_calls: usize,
    /// What it waits for, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) summary: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The last change, if its time is known.
    pub(crate) updated_at: Option<Timestamp>,
}

/// An entry, and the server-sent event of its serialized form, which all readers share.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) entry: Entry,
    pub(crate) frame: Bytes,
}

impl Logged {
    fn new(entry: Entry, position: u64) -> Self {
        // These can always be serialized.
        let json = serde_json::to_string(&entry).unwrap_or_default();
        Self { entry, frame: frames(&[json], Some(position)) }
    }

    /// Returns roughly the memory that it takes, in bytes.
    fn size(&self) -> usize {
        2 * self.frame.len() + size_of::<Self>()
    }
}

/// The log of a run.
#[derive(Debug)]
pub(crate) struct RunLog {
    pub(crate) id: String,
    /// Cancels the run, if it is driven by the page.
    pub(crate) token: Mutex<Option<CancellationToken>>,
    /// When the store was read for the readers of the log, and whether the run was there.
    pub(crate) refreshed: tokio::sync::Mutex<Option<(Instant, bool)>>,
    state: Mutex<LogState>,
    /// The position after the last entry.
    end: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct LogState {
    entries: VecDeque<Arc<Logged>>,
    /// The position of the first entry.
    first: u64,
    bytes: usize,
    drivers: usize,
    row: Row,
    /// The recorded requests to the model, with the numbers of their turns.
    requests: VecDeque<(u32, String)>,
    /// The number of finished calls of the run itself.
    calls: usize,
    /// The tools that the frontend executes which asked the question, until the run has ended.
    tools: Option<FrontendTools>,
}

/// Tools that a frontend sends and executes.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrontendTools {
    pub(crate) set: ToolSet,
    /// Roughly the memory that they take, in bytes.
    pub(crate) bytes: usize,
}

impl RunLog {
    /// Creates a log that begins with what the run has done so far.
    pub(crate) fn new(id: &str, source: &Arc<str>, run: &Run) -> Self {
        let id = id.to_owned();
        let row =
            Row { id: id.clone(), agent: Arc::clone(source), user: run.user().cloned(), ..Row::default() };
        let mut state = LogState { row, ..LogState::default() };
        state.append_history(run);
        let end = watch::Sender::new(state.end());
        let (token, refreshed) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { id, token, refreshed, state: Mutex::new(state), end }
    }

    /// Starts anew if the run has been continued elsewhere.
    pub(crate) fn follow(&self, run: &Run) {
        let mut state = self.lock();
        if (state.row.turns, state.calls) == (run.turns(), finished_calls(run)) {
            return;
        }
        state.first += state.entries.len() as u64;
        state.entries.clear();
        (state.bytes, state.calls, state.row.failed_calls) = (0, 0, 0);
        // No event of another driver comes in between.
        state.append_history(run);
        self.end.send_replace(state.end());
    }

    /// Begins to follow a driver of the run.
    pub(crate) fn driver_joined(&self, run: &Run) {
        self.follow(run);
        let mut state = self.lock();
        state.drivers += 1;
        state.row.status = Status::Running;
    }

    /// Marks the driver as gone. A run that has neither ended nor waits was dropped.
    pub(crate) fn driver_left(&self) {
        {
            let mut state = self.lock();
            state.drivers = state.drivers.saturating_sub(1);
            if state.drivers == 0 {
                *lock(&self.token) = None;
                if state.row.status == Status::Running {
                    state.row.status = Status::Interrupted;
                }
            }
        }
        self.end.send_modify(|_| {});
    }

    /// Appends the event of a driver.
    pub(crate) fn receive(&self, event: &Event) {
        // A run that waits ends the attempt to drive it, and why a run fails that the page drives is known to the page.
        let is_hidden = self.status() == Status::Waiting || lock(&self.token).is_some();
        if !(is_hidden && matches!(event, Event::Failed(_))) {
            self.push(Entry::from_event(event));
        }
    }

    /// Appends an entry and returns its position.
    pub(crate) fn push(&self, entry: Entry) -> u64 {
        let mut state = self.lock();
        state.push(entry);
        let end = state.end();
        drop(state);
        self.end.send_replace(end);
        end - 1
    }

    pub(crate) fn row(&self) -> Row {
        self.lock().row.clone()
    }

    pub(crate) fn status(&self) -> Status {
        self.lock().row.status
    }

    pub(crate) fn is_driven(&self) -> bool {
        self.lock().drivers > 0
    }

    pub(crate) fn bytes(&self) -> usize {
        let state = self.lock();
        state.bytes + state.request_bytes() + state.tools.as_ref().map_or(0, |tools| tools.bytes)
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

    /// Returns the position after the last entry.
    pub(crate) fn end(&self) -> u64 {
        self.lock().end()
    }

    /// Returns the position of the first entry.
    pub(crate) fn first(&self) -> u64 {
        self.lock().first
    }

    /// Returns the entries, the oldest first.
    pub(crate) fn entries(&self) -> VecDeque<Arc<Logged>> {
        self.lock().entries.clone()
    }

    /// Returns the number of messages of the user, and the position of the last one.
    pub(crate) fn questions(&self) -> (usize, u64) {
        let state = self.lock();
        let positions = (state.first..).zip(&state.entries);
        let questions = positions.filter(|(_, logged)| matches!(logged.entry, Entry::Question { .. }));
        questions.fold((0, 0), |(count, _), (position, _)| (count + 1, position))
    }

    /// Returns the messages of the user.
    pub(crate) fn question_texts(&self) -> impl Iterator<Item = String> {
        self.entries().into_iter().filter_map(|logged| match &logged.entry {
            Entry::Question { text } => Some(text.clone()),
            _ => None,
        })
    }

    pub(crate) fn read(self: &Arc<Self>, from: u64) -> Reader {
        Reader { log: Arc::clone(self), next: from, changes: self.end.subscribe() }
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        lock(&self.state)
    }
}

impl LogState {
    fn append_history(&mut self, run: &Run) {
        Entry::replay(run).into_iter().for_each(|entry| self.push(entry));
        (self.row.turns, self.row.usage, self.calls) = (run.turns(), run.usage(), finished_calls(run));
    }

    fn push(&mut self, mut entry: Entry) {
        if let Some(Event::QuestionRewritten { newer, text, .. }) = entry.event() {
            self.rewrite_question(*newer, text);
        }
        self.summarize(&entry);
        if let Entry::Event(record) = &mut entry {
            record.position = self.end();
        }
        let logged = Logged::new(entry, self.end());
        self.bytes += logged.size();
        self.entries.push_back(Arc::new(logged));
        while self.bytes > MAX_BYTES && self.entries.len() > 1 {
            let Some(dropped) = self.entries.pop_front() else { break };
            self.bytes -= dropped.size();
            self.first += 1;
        }
    }

    fn request_bytes(&self) -> usize {
        self.requests.iter().map(|(_, request)| request.len()).sum()
    }

    fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Replaces the text of a question, which nobody reads from now on.
    fn rewrite_question(&mut self, newer: usize, text: &str) {
        let entries = self.entries.iter_mut().enumerate().rev();
        let mut questions = entries.filter(|(_, logged)| matches!(logged.entry, Entry::Question { .. }));
        let Some((at, logged)) = questions.nth(newer) else { return };
        let rewritten = Logged::new(Entry::Question { text: text.to_owned() }, self.first + at as u64);
        self.bytes = self.bytes - logged.size() + rewritten.size();
        *logged = Arc::new(rewritten);
        if newer == 0 {
            self.row.question = shortened(text);
        }
    }

    fn summarize(&mut self, entry: &Entry) {
        let row = &mut self.row;
        row.updated_at = Some(Timestamp::now());
        match entry {
            Entry::Question { text } => row.question = shortened(text),
            Entry::Failed { error, .. } => (row.status, row.error) = (Status::Failed, Some(error.clone())),
            Entry::Cancelled => row.status = Status::Cancelled,
            Entry::Event(record) => self.summarize_event(&record.event),
            Entry::Decided(_) => {}
        }
        if matches!(self.row.status, Status::Done | Status::Cancelled) {
            self.tools = None;
        }
    }

    fn summarize_event(&mut self, event: &Event) {
        let row = &mut self.row;
        row.error = None;
        if self.drivers > 0 {
            row.status = Status::Running;
        }
        match event {
            Event::TurnFinished { turn, response, .. } => {
                row.turns = *turn;
                row.usage += response.usage.unwrap_or_default();
            }
            Event::CallFinished(execution) => {
                self.calls += 1;
                row.failed_calls += usize::from(is_failure(execution));
            }
            Event::Waiting(_) => row.status = Status::Waiting,
            Event::Done(answer) => (row.status, row.usage) = (Status::Done, answer.usage()),
            _ => {}
        }
    }
}

fn finished_calls(run: &Run) -> usize {
    executions(run).chain(run.undo_executions()).count()
}

/// A reader of a log.
#[derive(Debug)]
pub(crate) struct Reader {
    log: Arc<RunLog>,
    next: u64,
    changes: watch::Receiver<u64>,
}

/// What a reader finds at its position.
#[derive(Debug)]
pub(crate) enum Found {
    Entry(u64, Arc<Logged>),
    // The log no longer has, or never had, what is at the position.
    Gap,
    // There is nothing more, and nobody drives the run.
    End,
}

impl Reader {
    pub(crate) fn log(&self) -> &Arc<RunLog> {
        &self.log
    }

    /// Returns what is at the position. Waits for it while a driver works on the run.
    pub(crate) async fn next(&mut self) -> Found {
        loop {
            self.changes.mark_unchanged();
            if let Some(found) = self.find() {
                return found;
            }
            self.changed().await;
        }
    }

    fn find(&mut self) -> Option<Found> {
        let state = self.log.lock();
        if self.next < state.first || self.next > state.end() {
            self.next = state.first;
            return Some(Found::Gap);
        }
        let index = usize::try_from(self.next - state.first).unwrap_or(usize::MAX);
        let Some(entry) = state.entries.get(index) else { return (state.drivers == 0).then_some(Found::End) };
        self.next += 1;
        Some(Found::Entry(self.next - 1, Arc::clone(entry)))
    }

    /// Waits until something changes.
    pub(crate) async fn changed(&mut self) {
        // Cannot fail: `log` holds the sender.
        let _ = self.changes.changed().await;
    }
}

/// Returns the beginning of a text, for lists.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use tool_core::Message;

    use super::*;

    fn log() -> Arc<RunLog> {
        Arc::new(RunLog::new("run", &"desk".into(), &Run::new([Message::user("Hello")])))
    }

    #[tokio::test]
    async fn a_reader_that_is_too_slow_finds_a_gap_and_the_log_stays_bounded() {
        let log = log();
        let mut reader = log.read(0);
        for _ in 0..20 {
            log.push(Event::Text("x".repeat(1 << 20)).into());
        }
        assert!(log.bytes() <= MAX_BYTES);
        assert!(matches!(reader.next().await, Found::Gap));
        // From then on, it reads what is left.
        assert!(matches!(reader.next().await, Found::Entry(position, _) if position == log.first()));
    }

    #[test]
    fn nobody_reads_a_question_that_was_rewritten() {
        let log = log();
        log.push(Entry::Question { text: "Again".into() });
        for (newer, text) in [(1, "first"), (0, "second"), (2, "none")] {
            let record = serde_json::json!({
                "position": 0, "type": "question_rewritten", "newer": newer, "text": text
            });
            log.push(Entry::Event(serde_json::from_value(record).unwrap()));
        }
        let frames = log.entries().iter().map(|logged| logged.frame.to_vec()).collect::<Vec<_>>().concat();
        let frames = String::from_utf8(frames).unwrap();
        assert!(!frames.contains("Hello") && !frames.contains("Again"), "{frames}");
        let questions = frames.matches(r#""type":"question","text":""#).count();
        assert_eq!((questions, log.row().question.as_str()), (2, "second"));
    }

    #[test]
    fn two_readers_read_the_same_positions() {
        let log = log();
        log.push(Event::Text("a".into()).into());
        let positions = |from| {
            let mut reader = log.read(from);
            let next = || match reader.find() {
                Some(Found::Entry(position, _)) => Some(position),
                _ => None,
            };
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        assert_eq!((positions(0), positions(1)), (vec![0, 1], vec![1]));
    }

    #[test]
    fn a_driver_that_leaves_a_run_without_an_end_is_noticed() {
        let log = log();
        log.driver_joined(&Run::new([Message::user("Hello")]));
        assert!(log.is_driven() && log.status() == Status::Running);
        log.driver_left();
        assert_eq!((log.is_driven(), log.status()), (false, Status::Interrupted));
    }

    #[test]
    fn a_run_that_was_continued_elsewhere_is_read_anew() {
        let log = log();
        let mut run = Run::new([Message::user("Hello")]);
        let reply = tool_core::model::ChatResponse::new(tool_core::model::AssistantMessage::text("Hi"));
        run.record_response(reply).unwrap();
        let mut reader = log.read(0);
        log.driver_joined(&run);
        assert!(matches!(reader.find(), Some(Found::Gap)));
        let first = log.first();
        log.follow(&run);
        assert_eq!(log.first(), first, "the log agrees with the run");
    }
}
