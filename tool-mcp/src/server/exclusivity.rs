//! The lock between calls of exclusive tools and all others of a server.
//!
//! The lock is fair, because exclusive calls must get their turn. While one waits for a call that takes long, it would hold back all calls
//! after it, so it gives up its place again and again and lets them pass.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How long an exclusive call that waits for others holds back the calls after it.
const MAX_HOLD: Duration = Duration::from_secs(5);

/// Locked exclusively by calls of exclusive tools, and shared by all others. Clones share the lock.
#[derive(Clone, Default)]
pub(super) struct Exclusivity(Arc<RwLock<()>>);

impl Exclusivity {
    /// Waits until a call may run, which ends when the guards are dropped.
    pub(super) async fn enter(
        &self,
        is_exclusive: bool,
    ) -> (Option<RwLockWriteGuard<'_, ()>>, Option<RwLockReadGuard<'_, ()>>) {
        if !is_exclusive {
            return (None, Some(self.0.read().await));
        }
        loop {
            if let Ok(guard) = tokio::time::timeout(MAX_HOLD, self.0.write()).await {
                return (Some(guard), None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_exclusive_call_that_waits_does_not_hold_back_others_for_ever() {
        let lock = Exclusivity::default();
        let long = lock.enter(false).await;
        let exclusive = lock.clone();
        let exclusive = tokio::spawn(async move { drop(exclusive.enter(true).await) });
        // Queued behind the exclusive call.
        tokio::task::yield_now().await;
        for _ in 0..3 {
            tokio::time::timeout(MAX_HOLD * 2, lock.enter(false)).await.expect("others pass");
        }
        assert!(!exclusive.is_finished());
        drop(long);
        exclusive.await.unwrap();
    }
}
