//! The lease of a stored run while it is driven.
//!
//! A lease only says which driver should work, because a store cannot know whether a process lives; it expires by the store's clock,
//! because others stand still in suspend.
//!
//! The lease is renewed in a task of its own, because callers that drive step by step await requests that the driver does not see. The task
//! touches only the lease and reads the inbox; calls are still polled in the caller's task.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::compaction::LongOutputs;
use crate::memory::{DriverId, LeaseRequest, LeaseState, PostedCommand, RunCommand, RunStore, StoreFuture};

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
pub(in crate::agent) struct HeldLease {
    pub(super) store: Arc<dyn RunStore>,
    pub(super) id: String,
    driver: DriverId,
    /// Where the outputs of the run are, and of those inside.
    pub(super) outputs: Option<LongOutputs>,
    /// Dropping the lease cancels the run, which is in progress.
    pub(super) cancels_on_drop: bool,
    /// Renews the lease and watches the inbox. `None` without a runtime: both then happen between two steps.
    pub(super) keeper: Option<JoinHandle<()>>,
    /// Notified when commands are in the inbox.
    pub(super) posted: Arc<Notify>,
    /// When a decision took the lease, and the inbox then.
    handed_over: Option<(Instant, Vec<PostedCommand>)>,
}

impl HeldLease {
    pub(in crate::agent) fn new(store: Arc<dyn RunStore>, id: String) -> Self {
        Self {
            store,
            id,
            driver: DriverId::unique(),
            outputs: None,
            cancels_on_drop: false,
            keeper: None,
            posted: Arc::default(),
            handed_over: None,
        }
    }

    /// Hands a lease that was taken a moment ago over to a driver, with the commands that were in the inbox then.
    pub(in crate::agent) fn hand_over(mut self, posted: Vec<PostedCommand>) -> Self {
        self.handed_over = Some((Instant::now(), posted));
        self
    }

    /// Returns the commands with which the lease was handed over, unless it can have expired since.
    pub(super) fn accept(&mut self, duration: Duration) -> Option<Vec<PostedCommand>> {
        let (at, posted) = self.handed_over.take()?;
        (at.elapsed() < duration / 2).then_some(posted)
    }

    pub(in crate::agent) fn request(&self, request: LeaseRequest) -> StoreFuture<'_, LeaseState> {
        self.store.lease(&self.id, &self.driver, request)
    }

    pub(super) fn start_keeper(&mut self, duration: Duration, cancellation: &CancellationToken) {
        let Ok(runtime) = Handle::try_current() else { return };
        let (store, id, driver) = (Arc::clone(&self.store), self.id.clone(), self.driver.clone());
        let (cancellation, notify) = (cancellation.clone(), Arc::clone(&self.posted));
        self.keeper = Some(runtime.spawn(async move {
            loop {
                tokio::time::sleep(duration / RENEWALS).await;
                // An error may pass before the lease expires.
                let state = store.lease(&id, &driver, LeaseRequest::Renew(duration)).await;
                // A lease that expired before the store answered is renewed again.
                if state.is_ok_and(|state| state == LeaseState::HeldElsewhere) {
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

    pub(super) fn stop_keeper(&mut self) {
        self.keeper.take().inspect(JoinHandle::abort);
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        self.stop_keeper();
        let (store, id, driver) = (Arc::clone(&self.store), self.id.clone(), self.driver.clone());
        // A panic is no decision of the caller: the run can be resumed.
        let (cancels, outputs) = (self.cancels_on_drop && !std::thread::panicking(), self.outputs.take());
        let ending = async move {
            if cancels {
                // If this fails, the run stays as it is and can be resumed.
                let _ = cancel_stored(&*store, &id, &driver, outputs).await;
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
    outputs: Option<LongOutputs>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    if store.lease(id, driver, LeaseRequest::Check).await? != LeaseState::Held {
        return Ok(());
    }
    let Some(mut run) = store.load_run(id).await? else { return Ok(()) };
    run.cancel();
    store.save_run(id, &mut run).await?;
    if run.is_done() && run.answer_text().is_none() {
        if let Some(outputs) = outputs {
            let _ = outputs.remove(&run.ids_of_tree()).await;
        }
        store.remove_run(id).await?;
    }
    Ok(())
}
