//! The shares of callers, how much each of them does at a time, and the permits of a request.
//!
//! A caller waits for its own share, and not for that of others. `SenderPermits` of tool-http refuses instead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits of a request over HTTP: for the bytes of its body, and for one of those in flight. They are held until its response is sent, its
/// tool has returned, and its task is stored.
pub(super) struct RequestPermits {
    pub(super) _body: OwnedSemaphorePermit,
    pub(super) _request: Option<OwnedSemaphorePermit>,
}

/// Semaphores by caller. Clones share them. One that nobody holds or waits for occupies no memory after the next use of another.
#[derive(Clone)]
pub(super) struct Shares {
    size: usize,
    semaphores: Arc<Mutex<HashMap<String, Weak<Semaphore>>>>,
}

impl Shares {
    /// Creates shares of so many permits each.
    pub(super) fn new(size: usize) -> Self {
        Self { size, semaphores: Arc::default() }
    }

    /// Waits until the caller with this id has a permit, in the order of its requests.
    pub(super) async fn acquire(&self, caller: &str) -> Option<OwnedSemaphorePermit> {
        let semaphore = {
            let mut semaphores = self.semaphores.lock().unwrap_or_else(PoisonError::into_inner);
            semaphores.retain(|_, semaphore| semaphore.strong_count() > 0);
            semaphores.get(caller).and_then(Weak::upgrade).unwrap_or_else(|| {
                let semaphore = Arc::new(Semaphore::new(self.size));
                semaphores.insert(caller.to_owned(), Arc::downgrade(&semaphore));
                semaphore
            })
        };
        // It is never closed.
        semaphore.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_caller_waits_for_its_own_share_alone() {
        let shares = Shares::new(2);
        let acquire = |caller| shares.acquire(caller).now_or_never();
        let held = [acquire("eve"), acquire("eve")];
        assert!(acquire("eve").is_none());
        let other = acquire("ada").unwrap();
        drop(held);
        let again = acquire("eve").unwrap();
        drop((other, again));
        acquire("ada").unwrap();
        assert_eq!(shares.semaphores.lock().unwrap().len(), 1);
    }
}
