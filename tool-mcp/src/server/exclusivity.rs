//! The lock between calls of exclusive tools and all others of a server.
//!
//! The lock is fair, because exclusive calls must get their turn. While one waits for a call that takes long, it would hold back all calls
//! after it, so it gives up its place again and again and lets them pass for as long. Calls that overlap do not keep it from its turn for
//! ever, unless they take longer than hosts wait for the calls that would be held back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// How long an exclusive call that waits for others holds back the calls after it at first, and at most: less than most hosts wait
/// for a result. The time doubles.
const FIRST_HOLD: Duration = Duration::from_secs(5);
const MAX_HOLD: Duration = Duration::from_secs(30);

/// Locked exclusively by calls of exclusive tools, and shared by all others. Clones share the lock.
#[derive(Clone, Default)]
pub(super) struct Exclusivity(Arc<Locks>);

#[derive(Default)]
struct Locks {
    calls: RwLock<()>,
    /// Held by the exclusive call that waits for others, so that several do not hold them back one after the other.
    waiting: Mutex<()>,
}

impl Exclusivity {
    /// Waits until a call may run, which ends when the guards are dropped.
    pub(super) async fn enter(
        &self,
        is_exclusive: bool,
    ) -> (Option<RwLockWriteGuard<'_, ()>>, Option<RwLockReadGuard<'_, ()>>) {
        if !is_exclusive {
            return (None, Some(self.0.calls.read().await));
        }
        let _waiting = self.0.waiting.lock().await;
        let mut hold = FIRST_HOLD;
        loop {
            if let Ok(guard) = tokio::time::timeout(hold, self.0.calls.write()).await {
                return (Some(guard), None);
            }
            tokio::time::sleep(hold).await;
            hold = (hold * 2).min(MAX_HOLD);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn exclusive_calls_that_wait_leave_others_half_of_the_time() {
        let lock = Exclusivity::default();
        let long = lock.enter(false).await;
        let exclusive = [(), ()].map(|()| {
            let lock = lock.clone();
            tokio::spawn(async move { drop(lock.enter(true).await) })
        });
        // Queued behind an exclusive call.
        tokio::task::yield_now().await;
        let (started, mut held) = (Instant::now(), Duration::ZERO);
        while started.elapsed() < Duration::from_secs(3_600) {
            let asked = Instant::now();
            drop(lock.enter(false).await);
            assert!(asked.elapsed() <= Duration::from_secs(30));
            held += asked.elapsed();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(held <= started.elapsed() / 2, "{held:?}");
        drop(long);
        for exclusive in exclusive {
            exclusive.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn short_calls_that_overlap_do_not_hold_back_an_exclusive_one_for_ever() {
        let lock = Exclusivity::default();
        for start in 0..2 {
            let others = lock.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(10 * start)).await;
                loop {
                    let _running = others.enter(false).await;
                    tokio::time::sleep(Duration::from_secs(20)).await;
                }
            });
        }
        tokio::time::sleep(Duration::from_secs(11)).await;
        let turn = tokio::time::timeout(Duration::from_secs(120), lock.enter(true)).await;
        assert!(turn.is_ok(), "there was no turn within two minutes");
    }
}
