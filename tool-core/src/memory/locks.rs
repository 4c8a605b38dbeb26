//! Who may add to a conversation: one at a time, in the order in which they came.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_channel::oneshot;

use crate::model::ConversationId;

/// The conversations that are held, each with those who wait for it. Clones share them.
#[derive(Clone, Default)]
pub(super) struct ConversationLocks(Arc<Mutex<HashMap<ConversationId, Waiting>>>);

type Waiting = VecDeque<oneshot::Sender<ConversationLock>>;

/// A conversation that nobody else holds until this is dropped.
pub(super) struct ConversationLock {
    locks: ConversationLocks,
    id: ConversationId,
    /// It is handed on when it is dropped; not if it came back from one who did not wait any more.
    is_held: bool,
}

impl ConversationLocks {
    /// Waits until the conversation is free. Whoever gives up the wait does not hold up the others.
    pub(super) async fn lock(&self, id: &ConversationId) -> ConversationLock {
        loop {
            match self.enter(id) {
                Ok(lock) => return lock,
                Err(coming) => {
                    // A lock on its way to one who gives up is dropped there, and so handed on.
                    if let Ok(lock) = coming.await {
                        return lock;
                    }
                }
            }
        }
    }

    /// The lock of a conversation that is free, or where it will come.
    fn enter(&self, id: &ConversationId) -> Result<ConversationLock, oneshot::Receiver<ConversationLock>> {
        match self.held().entry(id.clone()) {
            Entry::Vacant(free) => {
                free.insert(Waiting::new());
                Ok(self.lock_of(id))
            }
            Entry::Occupied(mut waiting) => {
                let (sender, receiver) = oneshot::channel();
                // Those who gave up would otherwise pile up behind one who holds it for long.
                waiting.get_mut().retain(|sender| !sender.is_canceled());
                waiting.get_mut().push_back(sender);
                Err(receiver)
            }
        }
    }

    /// Who is next; with nobody there, the conversation is free and leaves nothing behind.
    fn next(&self, id: &ConversationId) -> Option<oneshot::Sender<ConversationLock>> {
        let mut held = self.held();
        let next = held.get_mut(id).and_then(VecDeque::pop_front);
        if next.is_none() {
            held.remove(id);
        }
        next
    }

    fn lock_of(&self, id: &ConversationId) -> ConversationLock {
        ConversationLock { locks: self.clone(), id: id.clone(), is_held: true }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<ConversationId, Waiting>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.held().is_empty()
    }
}

impl ConversationLock {
    /// Which conversation it is.
    pub(super) fn id(&self) -> &ConversationId {
        &self.id
    }
}

/// Hands the conversation to who waits longest.
impl Drop for ConversationLock {
    fn drop(&mut self) {
        if !self.is_held {
            return;
        }
        while let Some(next) = self.locks.next(&self.id) {
            match next.send(self.locks.lock_of(&self.id)) {
                Ok(()) => return,
                // Handing it on in its own `drop` would go one level deeper for each who gave up.
                Err(mut undelivered) => undelivered.is_held = false,
            }
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
    fn a_free_conversation_is_had_at_once_and_leaves_nothing_behind() {
        let locks = ConversationLocks::default();
        let lock = locks.lock(&id()).now_or_never().expect("it is free");
        assert!(locks.lock(&id()).now_or_never().is_none(), "it is held");
        let other = locks.lock(&ConversationId::new("b")).now_or_never().expect("another one is free");
        drop((lock, other));
        assert!(locks.is_empty());
    }

    #[test]
    fn it_goes_to_who_waits_longest() {
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
        // Asked in the opposite order, only the one who came first has it.
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
    fn who_gives_up_holds_up_nobody() {
        // Given up before the conversation is free, and given up with the lock already on its way.
        let give_up = || {
            for is_sent in [false, true] {
                let (locks, id) = (ConversationLocks::default(), id());
                let held = locks.lock(&id).now_or_never().unwrap();
                let quitters: Vec<_> = (0..5_000).map(|_| locks.enter(&id).err().unwrap()).collect();
                let mut last = Box::pin(locks.lock(&id));
                assert!((&mut last).now_or_never().is_none());
                if is_sent {
                    drop((held, quitters));
                } else {
                    drop((quitters, held));
                }
                assert!((&mut last).now_or_never().is_some(), "sent: {is_sent}");
                drop(last);
                assert!(locks.is_empty(), "sent: {is_sent}");
            }
        };
        // There is no room to go one level deeper for each of them.
        let thread = std::thread::Builder::new().stack_size(128 * 1024).spawn(give_up);
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn those_who_gave_up_do_not_pile_up() {
        let locks = ConversationLocks::default();
        let _held = locks.lock(&id()).now_or_never().unwrap();
        for _ in 0..100 {
            assert!(locks.lock(&id()).now_or_never().is_none());
        }
        assert_eq!(locks.held()[&id()].len(), 1);
    }

    #[test]
    fn threads_never_hold_it_together() {
        let (locks, inside, done) = (ConversationLocks::default(), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let tasks = (0..50).map(|number| {
                        let (locks, inside, done) = (&locks, &inside, &done);
                        async move {
                            if number % 3 == 0 {
                                // Gives up now and then.
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
