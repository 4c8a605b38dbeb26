//! Saves of a run. Each gives it a new revision.

use super::changes::{RunChanges, digest_of_rest};
use super::revision::{RunRevision, StoredState};
use super::shared_cache::SharedCache;
use super::state::{CallRecord, Recording, Run, Stage};
use crate::model::unique_id;
use crate::tool::WaitId;

impl Run {
    /// Returns the revision of the stored state that this run was loaded from or last saved as, or `None` if it was never
    /// stored. During a save, it is the revision of the new state, which a [store](crate::store::RunStore) has to store.
    #[must_use]
    pub fn revision(&self) -> Option<&RunRevision> {
        self.head.stored.in_doubt.as_ref().or(self.head.stored.confirmed.as_ref())
    }

    /// Gives the run a new revision. Returns the one that the stored state must have to be replaced, and what has changed.
    pub(crate) fn begin_save(&mut self) -> (Option<RunRevision>, RunChanges) {
        let revision: RunRevision = unique_id("revision").into();
        if self.recording.is_none() {
            self.head.stored.begun = Some(revision.clone());
        }
        self.head.stored.in_doubt = Some(revision);
        // These can always be serialized.
        let rest = self.resting_event().and_then(|event| serde_json::to_string(&event.at(0)).ok());
        let digest = rest.as_deref().map(digest_of_rest);
        let saved = self.recording.as_ref().and_then(|recording| recording.rest);
        let rests_anew = digest.is_some() && digest != saved;
        let changes = self.changes();
        let changes = if digest == saved { changes } else { changes.with_rest(rest) };
        match self.recording {
            Some(_) => {
                self.hold_changes();
                self.recording
                    .iter_mut()
                    .for_each(|recording| recording.pending_rest = u64::from(rests_anew));
            }
            None => {
                self.record_changes(1 + u64::from(rests_anew));
                self.recording.iter_mut().for_each(|recording| recording.is_first = true);
            }
        }
        self.recording.iter_mut().for_each(|recording| recording.rest = digest);
        (self.head.stored.confirmed.clone(), changes)
    }

    /// Returns `true` if it is unknown whether the last save replaced the stored state.
    pub(crate) fn is_save_in_doubt(&self) -> bool {
        self.head.stored.in_doubt.is_some()
    }

    /// Ends a save, given the revision of the stored state after it.
    pub(crate) fn end_save(&mut self, stored: Option<&RunRevision>) {
        let Some(revision) = self.head.stored.in_doubt.take() else { return };
        if stored == Some(&revision) {
            self.head.stored.confirmed = Some(revision);
            self.forget_held_changes();
        } else if self.recording.as_ref().is_some_and(|recording| recording.is_first) {
            self.recording = None;
        } else {
            // What was held is still in the recordings, and an earlier end may be stored.
            self.recording.iter_mut().for_each(|recording| recording.rest = Some(0));
            self.for_each_run(&mut |run| run.set_touched(true));
        }
    }

    /// Records from now on what changes, after so many entries that were saved before.
    pub(crate) fn record_changes(&mut self, position: u64) {
        self.for_each_run(&mut |run| {
            run.recording = Some(Box::new(Recording { position, ..Recording::default() }));
            run.set_touched(false);
        });
    }

    /// Returns a copy without what only saves and the present driver need.
    pub(crate) fn copy_apart(&self) -> Self {
        Self {
            format: self.format,
            id: self.id.clone(),
            head: self.head.clone(),
            history: self.history.clone(),
            elapsed: self.elapsed,
            now: self.now,
            inner_runs: self.inner_runs.clone(),
            stage: self.stage.clone(),
            recording: None,
            cache: SharedCache::default(),
            call_index: None,
            given_up: Vec::new(),
            driving: None,
        }
    }

    /// Returns a copy that records what changes.
    pub(crate) fn recording_copy(&self) -> Self {
        let mut copy = self.clone();
        copy.record_changes(0);
        copy
    }

    /// Marks what is part of a save without a known outcome.
    fn hold_changes(&mut self) {
        self.for_each_run(&mut |run| {
            let recording = run.recording.get_or_insert_default();
            recording.pending = (recording.entries.len(), recording.closed_calls.len());
            run.set_touched(false);
        });
    }

    /// Forgets what was saved.
    fn forget_held_changes(&mut self) {
        let mut saved = 0;
        self.for_each_run(&mut |run| {
            let Some(recording) = &mut run.recording else { return };
            let (entries, closed_calls) = std::mem::take(&mut recording.pending);
            saved += recording.entries.drain(..entries).len() as u64;
            recording.closed_calls.drain(..closed_calls);
            recording.is_first = false;
        });
        self.recording.iter_mut().for_each(|recording| {
            recording.position += saved + std::mem::take(&mut recording.pending_rest);
        });
    }

    fn set_touched(&mut self, is_touched: bool) {
        self.recording.iter_mut().for_each(|recording| recording.is_touched = is_touched);
        if let Stage::Calling(turn) = &mut self.stage {
            turn.calls.iter_mut().for_each(|record| record.is_touched = is_touched);
        }
    }

    /// Visits this run and the runs inside.
    pub(super) fn for_each_run(&mut self, visit: &mut dyn FnMut(&mut Self)) {
        visit(self);
        if let Stage::Calling(turn) = &mut self.stage {
            turn.calls
                .iter_mut()
                .filter_map(CallRecord::inner_mut)
                .for_each(|inner| inner.run.for_each_run(visit));
        }
        if !self.inner_runs.is_empty() {
            self.inner_runs.make_mut().iter_mut().for_each(|inner| inner.run.for_each_run(visit));
        }
    }

    /// Ends the save of a state that is stored.
    pub(crate) fn confirm_save(&mut self) {
        self.head.stored.confirmed = self.head.stored.in_doubt.take().or(self.head.stored.confirmed.take());
    }

    /// Returns `true` if the last attempt to drive the run failed, and can be repeated.
    pub(crate) fn has_failed(&self) -> bool {
        self.head.stored.has_failed
    }

    /// Notes that nothing is left to do, also for its conversation.
    pub(crate) fn set_finished(&mut self) {
        self.head.stored.is_finished = true;
    }

    /// Returns why the last attempt to drive the run failed, if it did.
    pub(crate) fn failure(&self) -> Option<String> {
        let StoredState { has_failed, failure, .. } = &self.head.stored;
        has_failed.then(|| failure.clone().unwrap_or_default())
    }

    /// Notes whether the last attempt to drive the run failed, and why.
    pub(crate) fn set_failure(&mut self, why: Option<String>) {
        self.head.stored.has_failed = why.is_some();
        self.head.stored.failure = why;
    }

    /// Returns the waits that deciders were asked about and have left to people.
    pub(crate) fn deferred(&self) -> &[WaitId] {
        &self.head.stored.deferred
    }

    pub(crate) fn set_deferred(&mut self, deferred: Vec<WaitId>) {
        self.head.stored.deferred = deferred;
    }
}
