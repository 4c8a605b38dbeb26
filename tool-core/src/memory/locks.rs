//! Locks of conversations, which are granted in the order of the requests. A free conversation occupies no memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::OwnedMutexGuard;

use crate::model::ConversationId;

/// The locks of conversations that are held or awaited. Clones share them.
#[derive(Clone, Default)]
pub(super) struct ConversationLocks(Arc<Mutex<HashMap<ConversationId, Weak<tokio::sync::Mutex<()>>>>>);

/// Exclusive access to a conversation until it is dropped.
pub(super) struct ConversationLock {
    locks: ConversationLocks,
    id: ConversationId,
    /// `None` while it is awaited.
    guard: Option<OwnedMutexGuard<()>>,
}

impl ConversationLocks {
    /// Waits until the conversation is free. Dropping the future does not affect other waiters.
    pub(super) async fn lock(&self, id: &ConversationId) -> ConversationLock {
        let mutex = {
            let mut locks = self.locks();
            locks.get(id).and_then(Weak::upgrade).unwrap_or_else(|| {
                let mutex = Arc::default();
                locks.insert(id.clone(), Arc::downgrade(&mutex));
                mutex
            })
        };
        // Created before the lock is granted, so that a waiter that is dropped is removed too.
        let mut lock = ConversationLock { locks: self.clone(), id: id.clone(), guard: None };
        lock.guard = Some(mutex.lock_owned().await);
        lock
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<ConversationId, Weak<tokio::sync::Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.locks().is_empty()
    }
}

impl ConversationLock {
    pub(super) fn id(&self) -> &ConversationId {
        &self.id
    }
}

/// Passes the lock to the caller that has waited longest.
impl Drop for ConversationLock {
    fn drop(&mut self) {
        let mut locks = self.locks.locks();
        self.guard = None;
        if locks.get(&self.id).is_some_and(|mutex| mutex.strong_count() == 0) {
            locks.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn id() -> ConversationId {
        ConversationId::new("a")
    }

    #[test]
    fn a_free_conversation_is_locked_immediately_and_occupies_no_memory() {
        let locks = ConversationLocks::default();
        let lock = locks.lock(&id()).now_or_never().expect("the conversation is free");
        assert!(locks.lock(&id()).now_or_never().is_none(), "the conversation is locked");
        let other =
            locks.lock(&ConversationId::new("b")).now_or_never().expect("another conversation is free");
        drop((lock, other));
        assert!(locks.is_empty());
    }

    #[test]
    fn cancelled_waiters_do_not_block_others() {
        // A waiter is cancelled before the lock is released, and after it was granted to it.
        for is_granted in [false, true] {
            let (locks, id) = (ConversationLocks::default(), id());
            let held = locks.lock(&id).now_or_never().unwrap();
            let (mut cancelled, mut last) = (Box::pin(locks.lock(&id)), Box::pin(locks.lock(&id)));
            assert!((&mut cancelled).now_or_never().is_none() && (&mut last).now_or_never().is_none());
            if is_granted {
                drop((held, cancelled));
            } else {
                drop((cancelled, held));
            }
            assert!((&mut last).now_or_never().is_some(), "granted: {is_granted}");
            drop(last);
            assert!(locks.is_empty(), "granted: {is_granted}");
        }
    }
}
