//! What has changed in a run since its last save: the form in which stores, drivers of runs inside and recorded steps have it.
//!
//! The first save is the whole run (`saved`, which is also its serialized form), the later ones are `RunChanges`: entries, the head of each
//! run that has changed, and the records of calls that have changed, each a row of its own, because 1,000 parallel calls or agents would
//! otherwise be written a thousand times. `RunChanges` are the one form in which stores, the drivers of runs inside and recorded steps
//! exchange what has changed.
//!
//! Positions in the log are given when the outermost run is saved, because a run inside does not know what others have recorded.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use super::call_state::CallState;
use super::id::RunId;
use super::revision::RunRevision;
use super::state::{CallRecord, Fact, Head, LogEntry, Recording, Run, Stage};
use super::step_error::StepError;
use super::summary::RunSummary;
use crate::tool::Timestamp;

const OTHER_STATE: StepError = StepError("the changes are of another state of the run");

/// What has changed in a run since its last save. It grows with what has happened, and not with the run.
///
/// A [store](crate::store::RunStore) adds the [entries](Self::entries) to the log of the run, and replaces the [parts](Self::parts)
/// of its state. [`Run::restore`] reads both.
#[derive(Clone, Serialize, Deserialize)]
pub struct RunChanges {
    id: RunId,
    /// A run that was never saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given: Option<Box<Run>>,
    /// The changes of the run and of the runs inside, each after the run around it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    runs: Vec<ChangedRun>,
    /// The number of entries saved before.
    #[serde(skip)]
    position: u64,
    #[serde(skip)]
    acknowledged: Vec<String>,
    /// What a list shows of the saved run.
    #[serde(skip)]
    summary: Option<RunSummary>,
    /// The event with which the saved run rests, as JSON, if it has changed.
    #[serde(skip)]
    rest: Option<Option<String>>,
    /// The latest time that the run knew.
    #[serde(skip)]
    saved_at: Timestamp,
}

/// What has changed in one run of a tree.
#[derive(Clone, Serialize, Deserialize)]
struct ChangedRun {
    id: RunId,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    entries: Vec<LogEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<Box<ChangedHead>>,
    /// The calls whose records have changed, or are no longer needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<(String, Option<ChangedCall>)>,
    /// More than the time has changed.
    #[serde(skip)]
    is_touched: bool,
}

/// The record of a call without its outcome, which is an entry, and without the run that it asked, which has changes of its own.
#[derive(Clone, Serialize, Deserialize)]
struct ChangedCall {
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_finished: bool,
    record: CallRecord,
}

/// What a run has besides its log and the records of its calls.
#[derive(Clone, Serialize, Deserialize)]
struct ChangedHead {
    head: Head,
    /// The time that the run has taken. A recorded step leaves it out.
    #[serde(rename = "time", default, skip_serializing_if = "Option::is_none")]
    elapsed: Option<Duration>,
    /// Without the records of calls.
    stage: Stage,
}

impl RunChanges {
    /// The key of the [part](Self::parts) that states what a run which nobody drives waits for, or how it has ended. Readers of the log
    /// [get it](crate::store::RunLog), and nothing else of the state.
    pub const REST: &str = "/rest";

    fn add(&mut self, run: &Run, recording: &Recording) {
        let is_outermost = self.runs.is_empty();
        let closed = recording.closed_calls.iter().map(|id| (id.clone(), None));
        let touched = run.calls_with_records().filter(|(_, record)| record.is_touched);
        let touched = touched.map(|(call, record)| (call.id.clone(), Some(ChangedCall::of(record))));
        let calls: Vec<_> = closed.chain(touched).collect();
        if is_outermost || recording.is_touched || !calls.is_empty() {
            let head = (is_outermost || recording.is_touched).then(|| Box::new(ChangedHead::of(run)));
            let entries = recording.entries.clone();
            self.runs.push(ChangedRun {
                id: run.id.clone(),
                entries,
                head,
                calls,
                is_touched: recording.is_touched,
            });
        }
        for inner in run.inner_runs() {
            // One without a recording is part of an entry.
            if let Some(recording) = &inner.run.recording {
                self.add(&inner.run, recording);
            }
        }
    }

    /// Adds the event with which the run rests, or that it does not any more.
    pub(super) fn with_rest(self, rest: Option<String>) -> Self {
        Self { rest: Some(rest), ..self }
    }

    /// Adds what is saved besides the state: what lists show, and the commands that leave the inbox.
    pub(crate) fn saved_with(self, summary: Option<RunSummary>, commands: &[String]) -> Self {
        Self { summary, acknowledged: commands.to_vec(), ..self }
    }

    /// Returns the ids of the commands that leave the inbox of the run with this save, because their effect is part of it.
    #[must_use]
    pub fn acknowledged(&self) -> &[String] {
        &self.acknowledged
    }

    /// Returns the [id](Run::id) of the run.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        &self.id
    }

    /// Returns the [revision](Run::revision) that the stored run has after this save.
    #[must_use]
    pub fn revision(&self) -> Option<&RunRevision> {
        self.summary.as_ref().map(|summary| &summary.revision)
    }

    /// Returns what a [list](crate::store::RunStore::list_runs) shows of the run after this save.
    #[must_use]
    pub fn summary(&self) -> Option<&RunSummary> {
        self.summary.as_ref()
    }

    /// Returns `true` if these are all entries and parts of the run: it was never saved, or this copy was serialized since. A store
    /// then removes those that it has.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.given.is_some()
    }

    /// Returns the parts of the state that have changed: their keys and, unless they are to be removed, their contents as JSON.
    ///
    /// # Errors
    ///
    /// Fails if a part cannot be serialized.
    pub fn parts(&self) -> serde_json::Result<Vec<(String, Option<String>)>> {
        let mut parts = Vec::new();
        for run in &self.runs {
            if let Some(head) = &run.head {
                parts.push((run.id.to_string(), Some(serde_json::to_string(head)?)));
            }
            for (call, changed) in &run.calls {
                let changed = changed.as_ref().map(serde_json::to_string).transpose()?;
                parts.push((format!("{}/{call}", run.id), changed));
            }
        }
        if let Some(rest) = &self.rest {
            parts.push((Self::REST.to_owned(), rest.clone()));
        }
        Ok(parts)
    }

    /// Returns the new entries of the log: their positions, and their contents as JSON.
    ///
    /// # Errors
    ///
    /// Fails if an entry cannot be serialized.
    pub fn entries(&self) -> serde_json::Result<Vec<(u64, String)>> {
        let rested = LogEntry { time: self.saved_at, fact: Fact::Rested, number: u64::MAX };
        let rested = matches!(self.rest, Some(Some(_))).then_some((&self.id, &rested));
        let mut first = Vec::new();
        if let Some(run) = &self.given {
            first.push((0, serde_json::to_string(run)?));
        }
        let entries = self.entries_in_order().into_iter().chain(rested);
        let entries = (self.position.max(first.len() as u64)..).zip(entries);
        let entries = entries.map(|(at, entry)| Ok((at, serde_json::to_string(&entry)?)));
        first.into_iter().map(Ok).chain(entries).collect()
    }

    /// Returns the new entries of all runs, each with the id of its run.
    fn entries_in_order(&self) -> Vec<(&RunId, &LogEntry)> {
        let entries = self.runs.iter().flat_map(|run| run.entries.iter().map(|entry| (&run.id, entry)));
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|(_, entry)| entry.number);
        entries
    }

    /// Returns `true` if nothing was changed but the time that the run has taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.given.is_none() && self.runs.iter().all(|run| !run.is_touched && run.calls.is_empty())
    }

    /// Leaves out the time that the run has taken, which its driver counts itself.
    #[must_use]
    pub fn without_time(mut self) -> Self {
        self.runs.iter_mut().filter_map(|run| run.head.as_mut()).for_each(|head| head.elapsed = None);
        self
    }
}

impl Run {
    /// Returns what has changed since the last save, or everything if there was none.
    #[must_use]
    pub fn changes(&self) -> RunChanges {
        let (id, mut given) = (self.id.clone(), None);
        let position = self.recording.as_ref().map_or(0, |recording| recording.position);
        if self.recording.is_none() {
            given = Some(Box::new(self.clone()));
        }
        let (runs, acknowledged) = (Vec::new(), Vec::new());
        let mut changes = RunChanges {
            id,
            given,
            runs,
            position,
            acknowledged,
            summary: None,
            rest: None,
            saved_at: self.now,
        };
        if let Some(recording) = &self.recording {
            changes.add(self, recording);
        }
        changes
    }

    /// Applies changes to the state in which they were made.
    ///
    /// # Errors
    ///
    /// Fails if the changes are of another state.
    pub fn apply_changes(&mut self, changes: &RunChanges) -> Result<(), StepError> {
        if let Some(given) = &changes.given {
            *self = Self::clone(given);
        }
        self.apply_changed_runs(changes.runs.clone())
    }

    fn apply_changed_runs(&mut self, runs: Vec<ChangedRun>) -> Result<(), StepError> {
        for changed in runs {
            let run = self.run_with_id(&changed.id).ok_or(OTHER_STATE)?;
            run.apply_changed(changed)?;
        }
        let mut restored = Ok(());
        self.for_each_run(&mut |run| restored = restored.and(run.restore_undoing().ok_or(OTHER_STATE)));
        restored
    }

    fn apply_changed(&mut self, changed: ChangedRun) -> Result<(), StepError> {
        for LogEntry { time, fact, .. } in changed.entries {
            self.now = self.now.max(time);
            self.append(fact);
        }
        if let Some(head) = changed.head {
            head.set(self)?;
            self.touch();
        }
        if self.call_index.is_none() && !changed.calls.is_empty() {
            self.index_calls();
        }
        for (call, changed) in changed.calls {
            let Some(changed) = changed else { continue };
            let position = self.call_position(&call).ok_or(OTHER_STATE)?;
            let Stage::Calling(turn) = &mut self.stage else { return Err(OTHER_STATE) };
            changed.set(turn.calls.get_mut(position).ok_or(OTHER_STATE)?)?;
        }
        Ok(())
    }

    /// Returns the run of this tree that has this id.
    fn run_with_id(&mut self, id: &RunId) -> Option<&mut Self> {
        if self.id == *id {
            return Some(self);
        }
        let open = match &mut self.stage {
            Stage::Calling(turn) => &mut *turn.calls,
            _ => &mut [],
        };
        let open = open.iter_mut().rev().filter_map(CallRecord::inner_mut);
        let ended = self.inner_runs.make_mut().iter_mut().rev();
        open.chain(ended).find_map(|inner| inner.run.run_with_id(id))
    }

    /// Restores a stored run from its [parts](RunChanges::parts), with their keys, and from all [entries](RunChanges::entries) of its
    /// log in their order.
    ///
    /// # Errors
    ///
    /// Fails if they are not of one run, or are inconsistent.
    pub fn restore<K: AsRef<str>, P: AsRef<str>, E: AsRef<str>>(
        parts: impl IntoIterator<Item = (K, P)>,
        entries: impl IntoIterator<Item = E>,
    ) -> serde_json::Result<Self> {
        let mut entries = entries.into_iter();
        let given = entries.next().ok_or_else(|| serde_json::Error::custom("the log of the run is empty"))?;
        let mut run: Self = serde_json::from_str(given.as_ref())?;
        let (mut runs, mut position): (Vec<ChangedRun>, u64) = (vec![ChangedRun::new(run.id.clone())], 1);
        for entry in entries {
            let (id, entry): (RunId, LogEntry) = serde_json::from_str(entry.as_ref())?;
            ChangedRun::of(id, &mut runs).entries.push(entry);
            position += 1;
        }
        let mut rest = None;
        for (key, part) in parts {
            let (key, part) = (key.as_ref(), part.as_ref());
            if key == RunChanges::REST {
                rest = Some(digest_of_rest(part));
                continue;
            }
            match key.split_once('/') {
                None => {
                    ChangedRun::of(key.to_owned().into(), &mut runs).head = Some(serde_json::from_str(part)?)
                }
                Some((id, call)) => {
                    let calls = &mut ChangedRun::of(id.to_owned().into(), &mut runs).calls;
                    calls.push((call.to_owned(), Some(serde_json::from_str(part)?)));
                }
            }
        }
        let applied = run.apply_changed_runs(runs).map_err(serde_json::Error::custom);
        applied.and_then(|()| run.check().map_err(serde_json::Error::custom))?;
        let mut run = run.into_loaded(position);
        run.recording.iter_mut().for_each(|recording| recording.rest = rest);
        Ok(run)
    }

    /// Returns a stored run as a store loads it.
    pub(crate) fn into_loaded(mut self, position: u64) -> Self {
        self.confirm_save();
        self.record_changes(position);
        self
    }
}

/// Returns a digest by which a save recognizes that the run rests as it did before.
pub(super) fn digest_of_rest(json: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    json.hash(&mut hasher);
    hasher.finish()
}

impl ChangedRun {
    fn new(id: RunId) -> Self {
        Self { id, entries: Vec::new(), head: None, calls: Vec::new(), is_touched: false }
    }

    /// Returns the changes of the run with this id.
    fn of(id: RunId, all: &mut Vec<Self>) -> &mut Self {
        let position = all.iter().position(|run| run.id == id).unwrap_or_else(|| {
            all.push(Self::new(id));
            all.len() - 1
        });
        &mut all[position]
    }
}

impl ChangedHead {
    fn of(run: &Run) -> Self {
        Self { head: run.head.clone(), elapsed: Some(run.elapsed), stage: run.stage.without_calls() }
    }

    fn set(self, run: &mut Run) -> Result<(), StepError> {
        run.head = self.head;
        run.elapsed = self.elapsed.unwrap_or(run.elapsed);
        run.set_stage(self.stage)
    }
}

impl ChangedCall {
    fn of(record: &CallRecord) -> Self {
        let is_finished = !record.is_open();
        let state = if is_finished { CallState::default() } else { record.state.clone() };
        // The run inside can be large.
        let CallRecord { policy, kind, history, notes, since, rewriters, .. } = record;
        let record = CallRecord {
            policy: policy.clone(),
            kind: *kind,
            history: history.clone(),
            notes: notes.clone(),
            inner: None,
            since: *since,
            rewriters: rewriters.clone(),
            state,
            to_judge: None,
            is_touched: false,
            ..*record
        };
        Self { is_finished, record }
    }

    fn set(self, record: &mut CallRecord) -> Result<(), StepError> {
        if self.is_finished == record.is_open() {
            return Err(OTHER_STATE);
        }
        let inner = record.inner.take();
        // What is in flight here is unknown where the changes were made.
        let mark = record.mark.filter(|_| self.record.is_running());
        let to_judge = record.to_judge.take().filter(|_| !self.is_finished);
        let state =
            if self.is_finished { std::mem::take(&mut record.state) } else { self.record.state.clone() };
        *record = CallRecord { inner, state, mark, to_judge, is_touched: true, ..self.record };
        Ok(())
    }
}

impl Run {
    /// Sets the stage, but for the records of calls.
    fn set_stage(&mut self, stage: Stage) -> Result<(), StepError> {
        let before = std::mem::replace(&mut self.stage, stage);
        match (&mut self.stage, before) {
            (Stage::Calling(turn), Stage::Calling(before)) => {
                turn.calls = before.calls;
                Ok(())
            }
            (Stage::Calling(_), _) | (_, Stage::Calling(_)) => Err(OTHER_STATE),
            (Stage::Undoing(undoing), Stage::Undoing(before)) => {
                let is_same = undoing.record.is_running();
                undoing.record.mark = before.record.mark.filter(|_| is_same);
                undoing.record.to_judge = before.record.to_judge.filter(|_| is_same);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Omits all values, because conversations are private.
impl fmt::Debug for RunChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunChanges")
            .field("id", &self.id)
            .field("is_empty", &self.is_empty())
            .finish_non_exhaustive()
    }
}
