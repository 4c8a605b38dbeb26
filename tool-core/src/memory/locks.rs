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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;
    use futures_util::future::join_all;

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
    fn the_lock_is_granted_in_order() {
        let locks = ConversationLocks::default();
        let held = locks.lock(&id()).now_or_never().unwrap();
        let mut waiting: Vec<_> = (0..4)
            .map(|_| {
                Box::pin({
                    let locks = locks.clone();
                    async move { locks.lock(&id()).await }
                })
            })
            .collect();
        let mut order = vec![];
        for future in &mut waiting {
            assert!(future.now_or_never().is_none());
        }
        drop(held);
        // Polled in reverse order, only the first waiter gets the lock.
        while !waiting.is_empty() {
            let ready: Vec<_> = (0..waiting.len())
                .rev()
                .filter_map(|index| Some((index, (&mut waiting[index]).now_or_never()?)))
                .collect();
            assert_eq!(ready.len(), 1);
            order.push(ready[0].0);
            drop(waiting.remove(ready[0].0));
        }
        assert_eq!(order, [0; 4]);
        assert!(locks.is_empty());
    }

    #[test]
    fn cancelled_waiters_do_not_block_others() {
        // Waiters are cancelled before the lock is released, and after it was sent to the first of them.
        let cancel = || {
            for is_sent in [false, true] {
                let (locks, id) = (ConversationLocks::default(), id());
                let held = locks.lock(&id).now_or_never().unwrap();
                let mut cancelled: Vec<_> = (0..2_000).map(|_| Box::pin(locks.lock(&id))).collect();
                assert!(cancelled.iter_mut().all(|waiter| waiter.now_or_never().is_none()));
                let mut last = Box::pin(locks.lock(&id));
                assert!((&mut last).now_or_never().is_none());
                if is_sent {
                    drop((held, cancelled));
                } else {
                    drop((cancelled, held));
                }
                assert!((&mut last).now_or_never().is_some(), "sent: {is_sent}");
                drop(last);
                assert!(locks.is_empty(), "sent: {is_sent}");
            }
        };
        // The stack is too small for a recursion over all of them.
        let thread = std::thread::Builder::new().stack_size(128 * 1024).spawn(cancel);
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn cancelled_waiters_do_not_accumulate() {
        let locks = ConversationLocks::default();
        let _held = locks.lock(&id()).now_or_never().unwrap();
        for _ in 0..100 {
            assert!(locks.lock(&id()).now_or_never().is_none());
        }
        assert_eq!(locks.locks()[&id()].strong_count(), 1);
    }

    #[test]
    fn only_one_thread_holds_the_lock() {
        let (locks, inside, done) = (ConversationLocks::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let tasks = (0..50).map(|number| {
                        let (locks, inside, done) = (&locks, &inside, &done);
                        async move {
                            if number % 3 == 0 {
                                // Some waiters are cancelled.
                                drop(locks.lock(&id()).now_or_never());
                            }
                            let _lock = locks.lock(&id()).await;
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            tokio::task::yield_now().await;
                            inside.fetch_sub(1, Ordering::SeqCst);
                            done.fetch_add(1, Ordering::SeqCst);
                        }
                    });
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(join_all(tasks));
                });
            }
        });
        assert_eq!(done.into_inner(), 200);
        assert!(locks.is_empty());
    }
}
