//! The list of runs.
//!
//! Stored runs are read in the background while somebody views the list, because reading thousands takes longer than a
//! page may take to open. Until all are read, the list says so.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tool_core::Message;
use tool_core::memory::{RunFilter, RunStatus};
use tool_core::run::StopReason;
use tool_core::signatures::Timestamp;

use crate::entry::is_failure;
use crate::hub::Hub;
use crate::row::{Row, Status, shortened};
use crate::source::Loaded;
use crate::wait::describe;

/// How long the first list waits for the stored runs.
const PATIENCE: Duration = Duration::from_millis(100);

/// The number of waits of a run that the list names.
const MAX_WAITS: usize = 20;

/// The part of the list that was asked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Filter {
    pub(crate) status: Option<Status>,
    pub(crate) agent: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) text: Option<String>,
    #[serde(skip)]
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
    pub(crate) now: Timestamp,
}

impl Hub {
    /// Returns the list of runs.
    pub(crate) async fn list(self: &Arc<Self>, filter: &Filter) -> List {
        if let Some(reading) = self.index.begin_reading() {
            let hub = Arc::clone(self);
            let read = tokio::spawn(async move {
                hub.read_stores().await;
                drop(reading);
            });
            let _ = timeout(PATIENCE, read).await;
        }
        let (mut rows, is_reading) = {
            let state = self.index.lock();
            (state.rows.clone(), !state.is_complete)
        };
        for log in self.logs().iter().filter(|log| log.is_driven()) {
            rows.entry(log.id.clone()).or_insert_with(|| Row::of_log(log)).status = Status::Running;
        }
        let mut counts = BTreeMap::new();
        rows.values().for_each(|row| *counts.entry(row.status).or_default() += 1);
        let mut rows: Vec<_> = rows.into_values().filter(|row| filter.admits(row)).collect();
        rows.sort_by_key(|row| {
            let at = row.updated_at.unwrap_or_default().as_millis();
            // Of those that wait, the oldest is first; of the others, the latest.
            (row.status, if row.status == Status::Waiting { at } else { u64::MAX - at })
        });
        rows.truncate(filter.limit);
        let agents = self.sources.iter().map(|source| Arc::clone(&source.name)).collect();
        List { runs: rows, counts, agents, is_reading, now: Timestamp::now() }
    }

    /// Reads all stored runs.
    async fn read_stores(&self) {
        let started = Instant::now();
        let mut seen = HashSet::new();
        let mut failed = false;
        for source in &self.sources {
            let listed = source.store.list_runs(&RunFilter::new()).await;
            let (Ok(listed), Ok(unreadable)) = (listed, source.store.unreadable_runs().await) else {
                failed = true;
                continue;
            };
            let ids = listed.into_iter().map(|run| run.id).chain(unreadable.into_iter().map(|run| run.id));
            for id in ids {
                // Sources can share a store.
                if seen.contains(&id) {
                    continue;
                }
                if let Some(row) = self.stored_row(&id).await {
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
        state.is_complete = true;
        state.last = Some((Instant::now(), started.elapsed()));
    }

    /// Returns the row of one run.
    pub(crate) async fn row(&self, id: &str) -> Option<Row> {
        let (stored, log) = (self.stored_row(id).await, self.log(id));
        let Some(log) = log.filter(|log| log.is_driven()) else { return stored };
        Some(Row { status: Status::Running, ..stored.unwrap_or_else(|| Row::of_log(&log)) })
    }

    async fn stored_row(&self, id: &str) -> Option<Row> {
        let (source, row) = match self.find(id).await {
            Ok(Some(loaded)) => (Arc::clone(&loaded.source), stored_row(&loaded)),
            Ok(None) => return None,
            Err((source, error)) => {
                let (error, status) = (Some(error.to_string()), Status::Unreadable);
                (source, Row { error, status, ..Row::default() })
            }
        };
        let listed =
            source.store.list_runs(&RunFilter::new().id(id)).await.ok().and_then(|mut runs| runs.pop());
        let updated_at = listed.and_then(|run| SystemTime::now().checked_sub(run.age)).map(Timestamp::from);
        Some(Row { id: id.to_owned(), agent: Arc::clone(&source.name), updated_at, ..row })
    }
}

fn stored_row(Loaded { run, status, .. }: &Loaded) -> Row {
    let stopped = run.stop_reason();
    let status = match status {
        RunStatus::Finished if matches!(stopped, Some(StopReason::Cancelled)) => Status::Cancelled,
        RunStatus::Finished if stopped.is_some() => Status::Failed,
        RunStatus::RunningElsewhere => Status::Running,
        RunStatus::Waiting => Status::Waiting,
        RunStatus::Failed | RunStatus::NotUndone => Status::Failed,
        RunStatus::Cancelled => Status::Cancelled,
        RunStatus::Expired => Status::Expired,
        RunStatus::Finished => Status::Done,
        _ => Status::Interrupted,
    };
    let waits = describe(run, None);
    let question = run.new_messages().iter().rev().find(|message| matches!(message, Message::User(_)));
    let more = waits.len().checked_sub(MAX_WAITS + 1).map(|more| format!("and {} more", more + 1));
    let failed = run.tool_executions().iter().filter(|execution| is_failure(execution));
    Row {
        question: question.map(|message| shortened(&message.text())).unwrap_or_default(),
        user: run.user().cloned(),
        turns: run.turns(),
        usage: run.usage(),
        failed_calls: failed.count(),
        error: run.engine_view().failure().or_else(|| stopped.map(ToString::to_string)),
        summary: waits.iter().map(|wait| shortened(&wait.line())).take(MAX_WAITS).chain(more).collect(),
        status,
        ..Row::default()
    }
}

impl Filter {
    fn admits(&self, row: &Row) -> bool {
        self.status.is_none_or(|status| row.status == status)
            && self.agent.as_deref().is_none_or(|agent| &*row.agent == agent)
            && self.user.as_deref().is_none_or(|user| row.user.as_deref() == Some(user))
            && self.text.as_deref().is_none_or(|text| row.id.contains(text) || row.question.contains(text))
    }
}
