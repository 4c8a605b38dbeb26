//! The lease of a stored run while it is driven, and the commands in its inbox.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::agent::{OnDrop, RunDriver};
use crate::memory::{DriverId, LeaseRequest, LeaseState, PostedCommand, RunCommand, RunStore, has_expired};
use crate::run::RunErrorKind;

/// A lease is renewed so often before it expires, so that a few renewals can fail.
const RENEWALS: u32 = 10;

/// The driver's view of the lease of its run.
#[derive(Default)]
pub(super) enum RunLease {
    #[default]
    NotTaken,
    Unsupported,
    Held(HeldLease),
}

/// A lease that this driver holds. Dropping it releases it.
pub(super) struct HeldLease {
    store: Arc<dyn RunStore>,
    id: String,
    driver: DriverId,
    /// Dropping the lease cancels the run, which is in progress.
    cancels_on_drop: bool,
    /// Renews the lease and watches the inbox. `None` without a runtime: both then happen between two steps.
    keeper: Option<JoinHandle<()>>,
    /// Notified when commands are in the inbox.
    posted: Arc<Notify>,
}

impl RunDriver {
    /// Takes the lease before the run is stored or has an effect, and the commands in its inbox.
    pub(super) async fn take_lease(&mut self) -> Result<(), RunErrorKind> {
        let agent = self.origin.clone();
        let Some(store) = agent.0.run_store.as_ref().filter(|_| self.outer.is_none()) else { return Ok(()) };
        let duration = agent.0.stored_runs.lease;
        let mut held = match std::mem::take(&mut self.lease) {
            RunLease::Unsupported => {
                self.lease = RunLease::Unsupported;
                return Ok(());
            }
            RunLease::Held(held) if held.keeper.is_some() => {
                self.lease = RunLease::Held(held);
                return self.take_posted().await;
            }
            RunLease::Held(held) => held,
            RunLease::NotTaken => HeldLease::new(Arc::clone(store), self.run.id().to_string()),
        };
        match held.request(LeaseRequest::Take(duration)).await? {
            // A lease of no duration is free at once.
            LeaseState::Held | LeaseState::Free => {}
            LeaseState::Unsupported => {
                self.lease = RunLease::Unsupported;
                return Ok(());
            }
            LeaseState::HeldElsewhere => return Err(RunErrorKind::RunningElsewhere),
        }
        let cancellation = self.question.cancellation.as_ref();
        let cancellation = cancellation.map_or_else(CancellationToken::new, CancellationToken::child_token);
        held.start_keeper(duration, &cancellation);
        self.question.cancellation = Some(cancellation);
        self.lease = RunLease::Held(held);
        if self.run.revision().is_some() {
            let max_age = agent.0.stored_runs.max_age;
            if has_expired(&**store, self.run.id().as_str(), max_age).await.map_err(RunErrorKind::Store)? {
                self.run.cancel();
            }
            // An earlier driver of the run has a conflict from now on.
            self.has_unsaved_changes = true;
            self.store_run().await?;
        }
        self.take_posted().await
    }

    /// Applies the commands in the inbox and stores their effect before anything else happens. A driver that finds them again,
    /// because they could not be acknowledged, finds the calls decided already.
    pub(super) async fn take_posted(&mut self) -> Result<(), RunErrorKind> {
        let RunLease::Held(held) = &self.lease else { return Ok(()) };
        let mut posted = held.posted_commands().await?;
        posted.retain(|posted| !self.applied_commands.contains(&posted.id));
        if posted.is_empty() {
            return Ok(());
        }
        self.applied_commands.extend(posted.iter().map(|posted| posted.id.clone()));
        let run = self.change_run();
        posted.into_iter().for_each(|posted| posted.command.apply(run));
        self.store_run().await?;
        let RunLease::Held(held) = &self.lease else { return Ok(()) };
        // If this fails, the commands are known and not applied again.
        let _ = held.store.acknowledge(&held.id, &self.applied_commands).await;
        Ok(())
    }

    /// Returns a future that completes when commands are in the inbox.
    pub(super) fn inbox_changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let posted = match &self.lease {
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
        if let RunLease::Held(held) = &mut self.lease {
            held.cancels_on_drop = is_in_progress && self.origin.0.stored_runs.on_drop == OnDrop::Cancel;
        }
    }

    /// Releases the lease of a run that is stored and waits or has failed. It is taken again if the run is driven further.
    pub(super) async fn release_lease(&mut self) {
        if let RunLease::Held(held) = &mut self.lease {
            held.stop_keeper();
            held.cancels_on_drop = false;
            // If this fails, the lease expires.
            let _ = held.request(LeaseRequest::Release).await;
            self.lease = RunLease::NotTaken;
        }
    }

    /// Returns `true` if a command was posted to a run that waits, before its lease was released.
    pub(super) async fn has_posted(&self) -> bool {
        let store = self.origin.0.run_store.as_ref().filter(|_| matches!(self.lease, RunLease::NotTaken));
        let Some(store) = store else { return false };
        let posted = store.posted(self.run.id().as_str()).await.unwrap_or_default();
        posted.iter().any(|posted| !self.applied_commands.contains(&posted.id))
    }
}

impl HeldLease {
    fn new(store: Arc<dyn RunStore>, id: String) -> Self {
        Self {
            store,
            id,
            driver: DriverId::unique(),
            cancels_on_drop: false,
            keeper: None,
            posted: Arc::default(),
        }
    }

    async fn request(&self, request: LeaseRequest) -> Result<LeaseState, RunErrorKind> {
        self.store.lease(&self.id, &self.driver, request).await.map_err(RunErrorKind::Store)
    }

    async fn posted_commands(&self) -> Result<Vec<PostedCommand>, RunErrorKind> {
        self.store.posted(&self.id).await.map_err(RunErrorKind::Store)
    }

    fn start_keeper(&mut self, duration: Duration, cancellation: &CancellationToken) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (store, id, driver) = (Arc::clone(&self.store), self.id.clone(), self.driver.clone());
        let (cancellation, notify) = (cancellation.clone(), Arc::clone(&self.posted));
        self.keeper = Some(runtime.spawn(async move {
            loop {
                tokio::time::sleep(duration / RENEWALS).await;
                // An error may pass before the lease expires.
                let state = store.lease(&id, &driver, LeaseRequest::Renew(duration)).await;
                if state.is_ok_and(|state| state != LeaseState::Held) {
                    return;
                }
                let posted = store.posted(&id).await.unwrap_or_default();
                if posted.iter().any(|posted| posted.command == RunCommand::Cancel) {
                    cancellation.cancel();
                }
                if !posted.is_empty() {
                    notify.notify_one();
                }
            }
        }));
    }

    fn stop_keeper(&mut self) {
        self.keeper.take().inspect(JoinHandle::abort);
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.stop_keeper();
        let (store, id, driver) = (Arc::clone(&self.store), self.id.clone(), self.driver.clone());
        // A panic is no decision of the caller: the run can be resumed.
        let cancels = self.cancels_on_drop && !std::thread::panicking();
        let ending = async move {
            if cancels {
                // If this fails, the run stays as it is and can be resumed.
                let _ = cancel_stored(&*store, &id, &driver).await;
            }
            let _ = store.lease(&id, &driver, LeaseRequest::Release).await;
        };
        // A store can panic outside of its runtime, and a panic while another unwinds would abort the process.
        let mut ending = AssertUnwindSafe(ending).catch_unwind().boxed();
        // Polled here, so that operations of the store that are started later see the effect. Without a runtime, the lease expires.
        if (&mut ending).now_or_never().is_none()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(ending);
        }
    }
}

/// Cancels a run that is not driven any more, and removes it if there is nothing to undo.
async fn cancel_stored(
    store: &dyn RunStore,
    id: &str,
    driver: &DriverId,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    if store.lease(id, driver, LeaseRequest::Check).await? != LeaseState::Held {
        return Ok(());
    }
    let Some(mut run) = store.load_run(id).await? else { return Ok(()) };
    run.cancel();
    store.save_run(id, &mut run).await?;
    if run.is_done() && run.answer_text().is_none() {
        store.remove_run(id).await?;
    }
    Ok(())
}
