//! The log of one run: its latest entries, each with a position, for any number of readers.
//!
//! A log is bounded, and readers pull from it, so a slow reader costs no memory: it misses entries, and learns of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tokio::sync::watch;
use tool_core::run::Run;

use crate::entry::{CallStatus, Entry};

/// The largest size of a log, in bytes.
const MAX_BYTES: usize = 8 << 20;

/// The log of a run that was driven in this process.
#[derive(Debug)]
pub(crate) struct RunLog {
    pub(crate) id: String,
    /// The name of the agent.
    pub(crate) source: Arc<str>,
    state: Mutex<LogState>,
    /// The position after the last entry.
    end: watch::Sender<u64>,
}

#[derive(Debug)]
struct LogState {
    entries: VecDeque<Arc<Entry>>,
    /// The position of the first entry.
    first: u64,
    bytes: usize,
    drivers: usize,
    /// The hub reports the failure of the run, of which it knows the kind.
    hides_failures: bool,
    summary: LogSummary,
    /// The executions of the run itself.
    executed: usize,
}

/// What the list shows of a log.
#[derive(Clone, Debug)]
pub(crate) struct LogSummary {
    pub(crate) status: LogStatus,
    pub(crate) question: String,
    pub(crate) turns: u32,
    pub(crate) tokens: u64,
    pub(crate) failed_calls: usize,
    pub(crate) updated_at: u64,
    pub(crate) error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogStatus {
    Running,
    Waiting,
    Done,
    Failed,
    Cancelled,
    /// Its driver has left it without an end.
    Dropped,
}

impl RunLog {
    pub(crate) fn new(source: Arc<str>, run: &Run) -> Self {
        let summary = LogSummary {
            status: LogStatus::Running,
            question: String::new(),
            turns: 0,
            tokens: 0,
            failed_calls: 0,
            updated_at: unix_millis(),
            error: None,
        };
        let state = LogState {
            entries: VecDeque::new(),
            first: 0,
            bytes: 0,
            drivers: 0,
            hides_failures: false,
            summary,
            executed: 0,
        };
        let log =
            Self { id: run.id().to_string(), source, state: Mutex::new(state), end: watch::Sender::new(0) };
        log.append_history(run);
        log
    }

    /// Returns `true` unless the run has been continued elsewhere.
    pub(crate) fn agrees_with(&self, run: &Run) -> bool {
        let executed = Entry::replay(run).iter().filter(|entry| is_executed(entry)).count();
        let state = self.lock();
        (state.summary.turns, state.executed) == (run.turns(), executed)
    }

    /// Begins to follow a driver of the run. If the run has been continued elsewhere, the log starts anew.
    pub(crate) fn driver_joined(&self, run: &Run) {
        if !self.agrees_with(run) {
            {
                let mut state = self.lock();
                state.first += state.entries.len() as u64;
                state.entries.clear();
                (state.bytes, state.executed, state.summary.failed_calls) = (0, 0, 0);
            }
            self.append_history(run);
        }
        let mut state = self.lock();
        state.drivers += 1;
        state.summary.status = LogStatus::Running;
    }

    fn append_history(&self, run: &Run) {
        for entry in Entry::replay(run) {
            self.push(entry);
        }
        self.lock().summary.tokens = run.usage().total_tokens;
    }

    /// Marks the driver as gone. A run that has neither ended nor waits was dropped.
    pub(crate) fn driver_left(&self) {
        {
            let mut state = self.lock();
            state.drivers = state.drivers.saturating_sub(1);
            if state.drivers == 0 && state.summary.status == LogStatus::Running {
                state.summary.status = LogStatus::Dropped;
            }
        }
        self.end.send_modify(|_| {});
    }

    /// Leaves the report of failures to the hub.
    pub(crate) fn hide_failures(&self, hides: bool) {
        self.lock().hides_failures = hides;
    }

    /// Appends what a hook has received.
    pub(crate) fn push_event(&self, entry: Entry) {
        let is_hidden = match &entry {
            // A run that waits ends the attempt to drive it.
            Entry::Failed { .. } => {
                let state = self.lock();
                state.hides_failures || state.summary.status == LogStatus::Waiting
            }
            Entry::Cancelled => self.lock().hides_failures,
            _ => false,
        };
        if !is_hidden {
            self.push(entry);
        }
    }

    /// Appends an entry and returns its position.
    pub(crate) fn push(&self, entry: Entry) -> u64 {
        let mut state = self.lock();
        state.summarize(&entry);
        state.bytes += entry.size();
        state.entries.push_back(Arc::new(entry));
        while state.bytes > MAX_BYTES && state.entries.len() > 1 {
            let Some(dropped) = state.entries.pop_front() else { break };
            state.bytes -= dropped.size();
            state.first += 1;
        }
        let end = state.first + state.entries.len() as u64;
        drop(state);
        self.end.send_replace(end);
        end - 1
    }

    pub(crate) fn summary(&self) -> LogSummary {
        self.lock().summary.clone()
    }

    pub(crate) fn is_driven(&self) -> bool {
        self.lock().drivers > 0
    }

    /// Returns `true` if the run has ended and nobody drives it.
    pub(crate) fn has_end(&self) -> bool {
        let state = self.lock();
        state.drivers == 0
            && matches!(state.summary.status, LogStatus::Done | LogStatus::Failed | LogStatus::Cancelled)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Returns the position after the last entry.
    pub(crate) fn end(&self) -> u64 {
        *self.end.borrow()
    }

    /// Returns the position of the first entry.
    pub(crate) fn first(&self) -> u64 {
        self.lock().first
    }

    /// Returns the position of the last entry that a predicate accepts.
    pub(crate) fn position(&self, accepts: impl Fn(&Entry) -> bool) -> Option<u64> {
        let state = self.lock();
        let found = state.entries.iter().rposition(|entry| accepts(entry));
        found.map(|index| state.first + index as u64)
    }

    /// Returns the number of messages of the user.
    pub(crate) fn questions(&self) -> usize {
        let state = self.lock();
        state.entries.iter().filter(|entry| matches!(***entry, Entry::Question { .. })).count()
    }

    pub(crate) fn read(self: &Arc<Self>, from: u64) -> Reader {
        Reader { log: Arc::clone(self), next: from, changes: self.end.subscribe() }
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogState {
    fn summarize(&mut self, entry: &Entry) {
        let summary = &mut self.summary;
        summary.updated_at = unix_millis();
        match entry {
            Entry::Question { text } => summary.question = text.chars().take(200).collect(),
            Entry::TurnFinished { turn, usage } => {
                summary.turns = *turn;
                summary.tokens += usage.total_tokens;
            }
            Entry::Done { usage, .. } => {
                (summary.status, summary.tokens) = (LogStatus::Done, usage.total_tokens);
            }
            Entry::Failed { error, .. } => {
                (summary.status, summary.error) = (LogStatus::Failed, Some(error.clone()));
            }
            Entry::Cancelled => summary.status = LogStatus::Cancelled,
            entry if entry.is_waiting() => summary.status = LogStatus::Waiting,
            _ => {
                self.executed += usize::from(is_executed(entry));
                summary.failed_calls += usize::from(is_failure(entry));
                summary.error = None;
                if self.drivers > 0 {
                    summary.status = LogStatus::Running;
                }
            }
        }
    }
}

fn is_executed(entry: &Entry) -> bool {
    let is_executed = |status| !matches!(status, CallStatus::Denied | CallStatus::NotExecuted);
    matches!(entry, Entry::CallFinished(finished) if is_executed(finished.status))
}

fn is_failure(entry: &Entry) -> bool {
    matches!(entry, Entry::CallFinished(finished) if finished.status.is_failure())
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
    Entry(u64, Arc<Entry>),
    /// The log no longer has, or never had, what is at the position.
    Gap,
    /// There is nothing more for now. `true` if a driver works on the run.
    End {
        is_driven: bool,
    },
}

impl Reader {
    pub(crate) fn log(&self) -> &Arc<RunLog> {
        &self.log
    }

    /// Returns what is at the position, without waiting.
    pub(crate) fn try_next(&mut self) -> Found {
        self.changes.mark_unchanged();
        let state = self.log.lock();
        let end = state.first + state.entries.len() as u64;
        if self.next < state.first || self.next > end {
            self.next = state.first;
            return Found::Gap;
        }
        let index = usize::try_from(self.next - state.first).unwrap_or(usize::MAX);
        match state.entries.get(index) {
            Some(entry) => {
                self.next += 1;
                Found::Entry(self.next - 1, Arc::clone(entry))
            }
            None => Found::End { is_driven: state.drivers > 0 },
        }
    }

    /// Waits until something changes.
    pub(crate) async fn changed(&mut self) {
        // Cannot fail: `log` holds the sender.
        let _ = self.changes.changed().await;
    }
}

/// Returns the milliseconds since the Unix epoch.
pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tool_core::Message;

    use super::*;

    fn log() -> Arc<RunLog> {
        Arc::new(RunLog::new("desk".into(), &Run::new([Message::user("Hello")])))
    }

    #[test]
    fn a_reader_that_is_too_slow_finds_a_gap_and_the_log_stays_bounded() {
        let log = log();
        let mut reader = log.read(0);
        for _ in 0..20 {
            log.push(Entry::Text { text: "x".repeat(1 << 20) });
        }
        assert!(log.bytes() <= MAX_BYTES);
        assert!(matches!(reader.try_next(), Found::Gap));
        // From then on, it reads what is left.
        assert!(matches!(reader.try_next(), Found::Entry(position, _) if position == log.first()));
    }

    #[test]
    fn two_readers_read_the_same_positions() {
        let log = log();
        log.push(Entry::Text { text: "a".into() });
        let positions = |from| {
            let mut reader = log.read(from);
            let next = || match reader.try_next() {
                Found::Entry(position, _) => Some(position),
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
        assert!(log.is_driven() && log.summary().status == LogStatus::Running);
        log.driver_left();
        assert_eq!((log.is_driven(), log.summary().status), (false, LogStatus::Dropped));
    }

    #[test]
    fn a_run_that_was_continued_elsewhere_is_read_anew() {
        let log = log();
        let mut run = Run::new([Message::user("Hello")]);
        let reply = tool_core::model::ChatResponse::new(tool_core::model::AssistantMessage::text("Hi"));
        run.record_response(reply).unwrap();
        assert!(!log.agrees_with(&run));
        let mut reader = log.read(0);
        log.driver_joined(&run);
        assert!(matches!(reader.try_next(), Found::Gap));
        assert!(log.agrees_with(&run));
    }
}
