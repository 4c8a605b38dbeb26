//! Takes the lease of a stored run and the commands in its inbox.
//!
//! Nothing is undone because of its age: an expired run whose calls may have had effects waits for a person, because a refund that was made
//! and reported would be taken back a week later.

use std::sync::Arc;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::lease::{HeldLease, RunLease};
use crate::agent::run_setup::may_decide;
use crate::agent::{OnDrop, RunDriver, RunInfo};
use crate::layer::RecordedCall;
use crate::memory::{LeaseRequest, LeaseState, PostedCommand, RunFilter, RunStatus, RunStore, RunSummary};
use crate::run::{RunErrorKind, Wait};
use crate::tool::{CallDecision, DecisionRecord};

impl RunDriver {
    /// Takes the lease before the run is stored or has an effect, and the commands in its inbox.
    pub(super) async fn take_lease(&mut self) -> Result<(), RunErrorKind> {
        let Some(store) = self.performer.store().cloned() else { return Ok(()) };
        let duration = self.performer.origin.0.stored_runs.lease;
        let mut held = match std::mem::take(&mut self.storage.lease) {
            RunLease::Unsupported => {
                self.storage.lease = RunLease::Unsupported;
                return Ok(());
            }
            RunLease::Held(held) if held.keeper.is_some() => {
                self.storage.lease = RunLease::Held(held);
                return self.take_posted().await;
            }
            RunLease::Held(held) => held,
            RunLease::NotTaken => HeldLease::new(Arc::clone(&store), self.run.id().to_string()),
        };
        let handed_over = held.accept(duration);
        let state = match &handed_over {
            Some(_) => LeaseState::Held,
            None => held.request(LeaseRequest::Take(duration)).await.map_err(RunErrorKind::Store)?,
        };
        match state {
            // A lease of no duration is free at once.
            LeaseState::Held | LeaseState::Free => {}
            LeaseState::Unsupported => {
                self.storage.lease = RunLease::Unsupported;
                return Ok(());
            }
            LeaseState::HeldElsewhere => return Err(RunErrorKind::RunningElsewhere),
        }
        let cancellation = self.question.cancellation.as_ref();
        let cancellation = cancellation.map_or_else(CancellationToken::new, CancellationToken::child_token);
        held.start_keeper(duration, &cancellation);
        self.question.cancellation = Some(cancellation);
        self.storage.lease = RunLease::Held(held);
        if self.run.revision().is_some() {
            if self.has_expired(&*store).await? {
                // Nobody has decided that what the calls have done is to be undone.
                if self.run.may_have_had_effects() {
                    return Err(RunErrorKind::Expired);
                }
                self.run.cancel();
            }
            // An earlier driver of the run has a conflict from the next save on, at the latest before anything is executed.
            self.storage.has_unsaved_changes = true;
            if handed_over.is_none() {
                self.store_run().await?;
            }
        }
        match handed_over {
            Some(posted) => self.apply_posted(posted).await.map(drop),
            None => self.take_posted().await,
        }
    }

    /// Returns `true` if nobody has continued the stored run for too long, and nobody has decided what becomes of it.
    async fn has_expired(&self, store: &dyn RunStore) -> Result<bool, RunErrorKind> {
        let max_age = self.performer.origin.0.stored_runs.max_age;
        let Some(age) = max_age.filter(|_| !self.question.ignores_expiry) else { return Ok(false) };
        let old = RunFilter::new().id(self.run.id().as_str()).min_age(age);
        let listed = store.list_runs(&old).await.map_err(RunErrorKind::Store)?;
        let expires = |run: &RunSummary| {
            let unleased = RunSummary { is_leased: false, ..run.clone() };
            unleased.status_of(self.run.status(), max_age) == RunStatus::Expired
        };
        Ok(!self.run.is_done() && listed.iter().any(expires))
    }

    /// Applies the commands in the inbox and stores their effect before anything else happens. The same save removes them.
    pub(super) async fn take_posted(&mut self) -> Result<(), RunErrorKind> {
        let RunLease::Held(held) = &self.storage.lease else { return Ok(()) };
        let posted = held.store.posted(&held.id).await.map_err(RunErrorKind::Store)?;
        match self.apply_posted(posted).await? {
            true => self.store_run().await,
            false => Ok(()),
        }
    }

    /// Applies commands from the inbox, but decisions of those who may not decide. Returns `false` if there is none that is new.
    async fn apply_posted(&mut self, mut posted: Vec<PostedCommand>) -> Result<bool, RunErrorKind> {
        posted.retain(|posted| !self.storage.applied_commands.contains(&posted.id));
        if posted.is_empty() {
            return Ok(false);
        }
        let mut refused = Vec::new();
        if let Some(run_setup) = self.performer.origin.0.run_setup.clone() {
            for posted in &posted {
                let waits = self.run.waits();
                let decided =
                    waits.iter().find_map(|wait| Some((wait, posted.command.record_about(&wait.id)?)));
                let Some((wait, record)) = decided else { continue };
                let info = RunInfo::of(&self.run);
                if !may_decide(&*run_setup, &info, wait, record.by.as_deref()).boxed().await {
                    self.record_refusal(wait, record).await?;
                    refused.push(posted.id.clone());
                }
            }
        }
        self.storage.applied_commands.extend(posted.iter().map(|posted| posted.id.clone()));
        posted.retain(|posted| !refused.contains(&posted.id));
        let run = self.change_run();
        posted.into_iter().for_each(|posted| posted.command.apply(run));
        Ok(true)
    }

    /// Reports a decision that was refused to the layers that record.
    pub(in crate::agent) async fn record_refusal(
        &self,
        wait: &Wait,
        record: DecisionRecord,
    ) -> Result<(), RunErrorKind> {
        let refused = CallDecision { call_id: wait.path.clone(), tool: wait.tool.clone(), record };
        let view = self.run.view();
        self.performer.layers.record_entry(RecordedCall::Refused(&refused), &view).boxed().await
    }

    /// Gives the driver the lease of its run.
    pub(in crate::agent) fn with_lease(mut self, lease: Option<HeldLease>) -> Self {
        self.storage.lease = lease.map_or(RunLease::NotTaken, RunLease::Held);
        self
    }

    /// Returns a future that completes when commands are in the inbox.
    pub(super) fn inbox_changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let posted = match &self.storage.lease {
            RunLease::Held(held) => Some(Arc::clone(&held.posted)),
            _ => None,
        };
        async move {
            match posted {
                Some(posted) => posted.notified().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Sets what dropping the driver means from now on.
    pub(super) fn set_in_progress(&mut self, is_in_progress: bool) {
        if let RunLease::Held(held) = &mut self.storage.lease {
            let on_drop = self.question.on_drop.unwrap_or(self.performer.origin.0.stored_runs.on_drop);
            held.cancels_on_drop = is_in_progress && on_drop == OnDrop::Cancel;
            if held.cancels_on_drop {
                held.outputs = self.performer.layers.stored_outputs().cloned();
            }
        }
    }

    /// Releases the lease of a run that is stored and waits or has failed. It is taken again if the run is driven further.
    pub(in crate::agent) async fn release_lease(&mut self) {
        if let RunLease::Held(held) = &mut self.storage.lease {
            held.stop_keeper();
            held.cancels_on_drop = false;
            // If this fails, the lease expires.
            let _ = held.request(LeaseRequest::Release).await;
            self.storage.lease = RunLease::NotTaken;
        }
    }

    /// Returns `true` if a command was posted to a run that waits, before its lease was released.
    pub(super) async fn has_posted(&self) -> bool {
        let store = self.performer.store().filter(|_| matches!(self.storage.lease, RunLease::NotTaken));
        let Some(store) = store else { return false };
        let posted = store.posted(self.run.id().as_str()).await.unwrap_or_default();
        posted.iter().any(|posted| !self.storage.applied_commands.contains(&posted.id))
    }
}
