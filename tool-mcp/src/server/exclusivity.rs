//! The lock between calls of exclusive tools and all others of a server.
//!
//! The lock is fair, because exclusive calls must get their turn. While one waits for a call that takes long, it would hold back all calls
//! after it, so it gives up its place again and again and lets them pass, less often each time, because calls that overlap must not keep it
//! from its turn for ever.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How long an exclusive call that waits for others holds back the calls after it at first, and at most. The time doubles.
const FIRST_HOLD: Duration = Duration::from_secs(5);
const MAX_HOLD: Duration = Duration::from_secs(300);

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
        let mut hold = FIRST_HOLD;
        loop {
            if let Ok(guard) = tokio::time::timeout(hold, self.0.write()).await {
                return (Some(guard), None);
            }
            hold = (hold * 2).min(MAX_HOLD);
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
            tokio::time::timeout(MAX_HOLD, lock.enter(false)).await.expect("others pass");
        }
        assert!(!exclusive.is_finished());
        drop(long);
        exclusive.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_overlap_do_not_hold_back_an_exclusive_one_for_ever() {
        let lock = Exclusivity::default();
        for start in 0..2 {
            let others = lock.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(30 * start)).await;
                loop {
                    let _running = others.enter(false).await;
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
            });
        }
        tokio::time::sleep(Duration::from_secs(31)).await;
        let turn = tokio::time::timeout(Duration::from_secs(3_600), lock.enter(true)).await;
        assert!(turn.is_ok(), "there was no turn within an hour");
    }
}
