//! The list of runs.
//!
//! Stored runs are read in the background while somebody looks at the list, because reading thousands takes longer than a
//! page may take to open. Until all are read, the list says so.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::de::value::{Error as ValueError, StrDeserializer};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::timeout;
use tool_core::memory::{RunStatus, StoredRun};

use crate::entry::CallStatus;
use crate::hub::{Hub, Source};
use crate::log::{LogStatus, LogSummary, RunLog, unix_millis};
use crate::wait::{Described, describe};

/// How long the first list waits for the stored runs.
const PATIENCE: Duration = Duration::from_millis(100);

/// The pause between two readings of the stores, and its factor for slow ones.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_FACTOR: u32 = 5;

/// The longest text of a call in the list, in characters.
const MAX_TEXT_CHARS: usize = 200;

/// The status of a run in the list, in the order of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Waiting,
    Running,
    Failed,
    Unreadable,
    Interrupted,
    Expired,
    Cancelled,
    Done,
}

impl Status {
    /// Returns the status of this name. The error lists all of them.
    pub(crate) fn from_name(name: &str) -> Result<Self, ValueError> {
        Self::deserialize(StrDeserializer::new(name))
    }
}

/// A run in the list.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) agent: Arc<str>,
    pub(crate) status: Status,
    pub(crate) question: String,
    pub(crate) turns: u32,
    pub(crate) tokens: u64,
    /// The number of calls that failed, which the model may have dealt with.
    pub(crate) failed_calls: usize,
    /// What it waits for, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) summary: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// The last change, in milliseconds since the Unix epoch, if it is known.
    pub(crate) updated_at: Option<u64>,
}

/// The part of the list that was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) status: Option<Status>,
    pub(crate) agent: Option<String>,
    pub(crate) text: Option<String>,
    pub(crate) limit: usize,
}

/// The list that is sent.
#[derive(Debug, Serialize)]
pub(crate) struct List {
    pub(crate) runs: Vec<Row>,
    /// The number of runs of each status, without the filter.
    pub(crate) counts: BTreeMap<Status, usize>,
    pub(crate) agents: Vec<Arc<str>>,
    /// The stored runs are still being read.
    pub(crate) is_reading: bool,
    pub(crate) now: u64,
}

/// The rows of the stored runs.
#[derive(Debug, Default)]
pub(crate) struct Index {
    state: Mutex<State>,
    finished: Notify,
}

#[derive(Debug, Default)]
struct State {
    rows: BTreeMap<String, Row>,
    is_reading: bool,
    /// The stores have been read at least once.
    is_complete: bool,
    /// When, and for how long, the stores were read last.
    last: Option<(Instant, Duration)>,
}

impl Index {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the row of a run that has changed, until the stores are read again.
    pub(crate) fn forget(&self, id: &str) {
        let mut state = self.lock();
        state.rows.remove(id);
        state.last = None;
    }

    /// Returns `true` if the stores are to be read by the caller.
    fn begin_reading(&self) -> bool {
        let mut state = self.lock();
        let is_due = state.last.is_none_or(|(at, took)| at.elapsed() > PAUSE.max(took * PAUSE_FACTOR));
        let begins = is_due && !state.is_reading;
        state.is_reading |= begins;
        begins
    }
}

impl Hub {
    /// Returns the list of runs.
    pub(crate) async fn list(self: &Arc<Self>, filter: &Filter) -> List {
        if self.index.begin_reading() {
            let hub = Arc::clone(self);
            let finished = self.index.finished.notified();
            tokio::spawn(async move { hub.read_stores().await });
            let _ = timeout(PATIENCE, finished).await;
        }
        let (mut rows, is_reading) = {
            let state = self.index.lock();
            (state.rows.clone(), !state.is_complete)
        };
        for log in self.all_logs() {
            // What waits is known from the store alone, and so is what another process has done since.
            match rows.get_mut(&log.id).filter(|_| !log.is_driven()) {
                Some(row) if row.status == Status::Failed => row.error = log.summary().error,
                Some(_) => {}
                None => drop(rows.insert(log.id.clone(), Row::from_log(&log))),
            }
        }
        let mut counts = BTreeMap::new();
        rows.values().for_each(|row| *counts.entry(row.status).or_default() += 1);
        let mut rows: Vec<_> = rows.into_values().filter(|row| filter.admits(row)).collect();
        rows.sort_by_key(|row| {
            let at = row.updated_at.unwrap_or_default();
            // Of those that wait, the oldest is first; of the others, the latest.
            (row.status, if row.status == Status::Waiting { at } else { u64::MAX - at })
        });
        rows.truncate(filter.limit);
        let agents = self.sources.iter().map(|source| Arc::clone(&source.name)).collect();
        List { runs: rows, counts, agents, is_reading, now: unix_millis() }
    }

    /// Reads all stored runs.
    async fn read_stores(&self) {
        let started = Instant::now();
        let mut seen = HashSet::new();
        let mut failed = false;
        for source in &self.sources {
            let Ok(ids) = source.store.runs().await else {
                failed = true;
                continue;
            };
            for id in ids {
                if let Some(row) = source.row(&id).await {
                    self.index.lock().rows.insert(id.clone(), row);
                    seen.insert(id);
                }
                tokio::task::yield_now().await;
            }
        }
        let mut state = self.index.lock();
        if !failed {
            state.rows.retain(|id, _| seen.contains(id));
        }
        (state.is_reading, state.is_complete) = (false, true);
        state.last = Some((Instant::now(), started.elapsed()));
        drop(state);
        self.index.finished.notify_waiters();
    }

    /// Returns the row of one run.
    pub(crate) async fn row(&self, id: &str) -> Option<Row> {
        let log = self.log(id);
        if let Some(log) = log.as_ref().filter(|log| log.is_driven()) {
            return Some(Row::from_log(log));
        }
        for source in &self.sources {
            if let Some(row) = source.row(id).await {
                return Some(row);
            }
        }
        log.as_deref().map(Row::from_log)
    }
}

impl Source {
    async fn row(&self, id: &str) -> Option<Row> {
        let age = self.store.age(id).await.ok().flatten();
        let age = age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let updated_at = age.map(|age| unix_millis().saturating_sub(age));
        match self.load(id).await {
            Ok(Some(stored)) => Some(Row::from_stored(self, id, &stored, updated_at)),
            Ok(None) => None,
            Err(error) => Some(Row {
                id: id.to_owned(),
                agent: Arc::clone(&self.name),
                status: Status::Unreadable,
                question: String::new(),
                turns: 0,
                tokens: 0,
                failed_calls: 0,
                summary: Vec::new(),
                error: Some(error.to_string()),
                updated_at,
            }),
        }
    }
}

impl Row {
    fn from_log(log: &RunLog) -> Self {
        let LogSummary { status, question, turns, tokens, failed_calls, updated_at, error } = log.summary();
        let status = match status {
            LogStatus::Running => Status::Running,
            LogStatus::Waiting => Status::Waiting,
            LogStatus::Done => Status::Done,
            LogStatus::Failed => Status::Failed,
            LogStatus::Cancelled => Status::Cancelled,
            LogStatus::Dropped => Status::Interrupted,
        };
        Self {
            id: log.id.clone(),
            agent: Arc::clone(&log.source),
            status,
            question,
            turns,
            tokens,
            failed_calls,
            summary: Vec::new(),
            error,
            updated_at: Some(updated_at),
        }
    }

    fn from_stored(source: &Source, id: &str, stored: &StoredRun, updated_at: Option<u64>) -> Self {
        let run = &stored.run;
        let status = match stored.status {
            RunStatus::RunningElsewhere => Status::Running,
            RunStatus::Waiting => Status::Waiting,
            RunStatus::Failed => Status::Failed,
            RunStatus::Cancelled => Status::Cancelled,
            RunStatus::Expired => Status::Expired,
            _ => Status::Interrupted,
        };
        let question = run.new_messages().iter().rev().find_map(|message| match message {
            tool_core::Message::User(content) => Some(content.text().chars().take(MAX_TEXT_CHARS).collect()),
            _ => None,
        });
        let failed = run.tool_executions().iter().filter(|execution| CallStatus::of(execution).is_failure());
        let show = |wait: Described| {
            let path = wait.agents.iter().map(|agent| format!("{agent} › ")).collect::<String>();
            format!("{path}{}", wait.pending.line()).chars().take(MAX_TEXT_CHARS).collect()
        };
        Self {
            id: id.to_owned(),
            agent: Arc::clone(&source.name),
            status,
            question: question.unwrap_or_default(),
            turns: run.turns(),
            tokens: run.usage().total_tokens,
            failed_calls: failed.count(),
            summary: describe(run, None).into_iter().map(show).collect(),
            error: None,
            updated_at,
        }
    }
}

impl Filter {
    fn admits(&self, row: &Row) -> bool {
        self.status.is_none_or(|status| row.status == status)
            && self.agent.as_deref().is_none_or(|agent| &*row.agent == agent)
            && self.text.as_deref().is_none_or(|text| row.id.contains(text) || row.question.contains(text))
    }
}
