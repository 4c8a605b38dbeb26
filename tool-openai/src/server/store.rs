//! A store in memory that is bounded in number, size and age.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tool_core::model::AssistantMessage;
use tool_http::server::Caller;

/// The size limit of a store in bytes, whatever the number of its entries.
pub(super) const MAX_BYTES: usize = 256 << 20;

/// Limits how many entries are stored, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retention {
    pub(super) max_entries: usize,
    pub(super) max_age: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { max_entries: 1000, max_age: Duration::from_secs(60 * 60) }
    }
}

/// Values by id, each found only by the caller that stored it. Expired entries are dropped, and if a limit is exceeded, the oldest
/// ones.
pub(super) struct Store<T> {
    retention: Retention,
    entries: Mutex<Entries<T>>,
    bytes: Arc<AtomicUsize>,
}

struct Entries<T> {
    by_id: HashMap<String, Entry<T>>,
    /// Oldest first. Ids of removed entries stay until they reach the front.
    order: VecDeque<(Instant, String)>,
}

struct Entry<T> {
    owner: Caller,
    value: Arc<T>,
    inserted_at: Instant,
    _weight: Weight,
}

/// A number of bytes that counts towards the size of a store until it is dropped. Data that several entries share has a weight
/// of its own.
pub(super) struct Weight {
    total: Arc<AtomicUsize>,
    bytes: usize,
}

impl Weight {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn set_bytes(&mut self, bytes: usize) {
        self.total.fetch_add(bytes, Ordering::Relaxed);
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Returns about the number of bytes that the texts and calls of a message take.
pub(super) fn approximate_message_bytes(message: &AssistantMessage) -> usize {
    let texts = [Some(&message.text), message.reasoning.as_ref(), message.refusal.as_ref()];
    let texts = texts.into_iter().flatten().map(String::len);
    let calls = message.tool_calls.iter().map(|call| call.arguments.len() + 100);
    texts.chain(calls).sum()
}

impl<T> Entries<T> {
    /// Returns `false` if there is no entry.
    fn remove_oldest(&mut self) -> bool {
        let Some((_, id)) = self.order.pop_front() else { return false };
        self.by_id.remove(&id);
        true
    }
}

impl<T> Store<T> {
    pub(super) fn new(retention: Retention) -> Self {
        let entries = Entries { by_id: HashMap::new(), order: VecDeque::new() };
        Self { retention, entries: Mutex::new(entries), bytes: Arc::default() }
    }

    /// Adds the weight of data that will be part of a value.
    pub(super) fn add_weight(&self, bytes: usize) -> Weight {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Weight { total: Arc::clone(&self.bytes), bytes }
    }

    /// Stores a value of a caller under a new id. `bytes` is its approximate size without data that has its own
    /// [weight](Self::add_weight).
    pub(super) fn insert(&self, id: String, owner: Caller, value: T, bytes: usize) {
        let weight = self.add_weight(bytes);
        let is_too_large = || self.bytes.load(Ordering::Relaxed) > MAX_BYTES;
        let Retention { max_entries, max_age } = self.retention;
        if max_entries == 0 || bytes > MAX_BYTES {
            return;
        }
        let now = Instant::now();
        let mut entries = self.entries();
        let exceeds_limits = |entries: &Entries<T>| {
            entries.by_id.len() >= max_entries
                || entries.order.len() >= max_entries.saturating_mul(2)
                || is_too_large()
                || entries
                    .order
                    .front()
                    .is_some_and(|(inserted_at, _)| now.duration_since(*inserted_at) > max_age)
        };
        while exceeds_limits(&entries) && entries.remove_oldest() {}
        if is_too_large() {
            return;
        }
        entries.order.push_back((now, id.clone()));
        let entry = Entry { owner, value: Arc::new(value), inserted_at: now, _weight: weight };
        entries.by_id.insert(id, entry);
    }

    /// Returns a value of this caller.
    pub(super) fn get(&self, id: &str, caller: Caller) -> Option<Arc<T>> {
        let mut entries = self.entries();
        if entries.by_id.get(id)?.inserted_at.elapsed() > self.retention.max_age {
            entries.by_id.remove(id);
        }
        entries.by_id.get(id).filter(|entry| entry.owner == caller).map(|entry| Arc::clone(&entry.value))
    }

    /// Removes a value of this caller. Returns `true` if there was one.
    pub(super) fn remove(&self, id: &str, caller: Caller) -> bool {
        self.get(id, caller).is_some() && self.entries().by_id.remove(id).is_some()
    }

    fn entries(&self) -> MutexGuard<'_, Entries<T>> {
        // No operation under the lock leaves the entries inconsistent.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANYONE: Caller = Caller::ANYONE;

    fn store(max_entries: usize, max_age: Duration) -> Store<u32> {
        Store::new(Retention { max_entries, max_age })
    }

    #[test]
    fn drops_the_oldest_entries_first() {
        let store = store(2, Duration::from_secs(3600));
        for id in ["a", "b", "c"] {
            store.insert(id.into(), ANYONE, 1, 10);
        }
        assert_eq!(["a", "b", "c"].map(|id| store.get(id, ANYONE).is_some()), [false, true, true]);
        assert!(store.remove("b", ANYONE) && !store.remove("b", ANYONE));
        store.insert("d".into(), ANYONE, 1, MAX_BYTES - 10);
        assert_eq!(["c", "d"].map(|id| store.get(id, ANYONE).is_some()), [true, true], "both fit");
        store.insert("e".into(), ANYONE, 1, 11);
        assert_eq!(
            ["c", "d", "e"].map(|id| store.get(id, ANYONE).is_some()),
            [false, false, true],
            "only one fits"
        );
        store.insert("f".into(), ANYONE, 1, MAX_BYTES + 1);
        assert!(store.get("f", ANYONE).is_none() && store.get("e", ANYONE).is_some());
    }

    #[test]
    fn removed_entries_take_no_space() {
        let store = store(2, Duration::from_secs(3600));
        for number in 0..100 {
            store.insert(number.to_string(), ANYONE, 1, 1);
            store.remove(&number.to_string(), ANYONE);
        }
        let entries = store.entries();
        assert!(entries.order.len() <= 4 && entries.by_id.is_empty());
        assert_eq!(store.bytes.load(Ordering::Relaxed), 0);
    }

    /// Models the conversations of responses. Each includes the previous one.
    #[test]
    fn shared_data_counts_until_its_last_owner_is_dropped() {
        let store: Store<Vec<Arc<Weight>>> = Store::new(Retention::default());
        store.insert("other".into(), ANYONE, Vec::new(), 10);
        let mut chain = Vec::new();
        for number in 0..6 {
            chain.push(Arc::new(store.add_weight(MAX_BYTES / 5)));
            store.insert(number.to_string(), ANYONE, chain.clone(), 10);
            assert!(store.entries().by_id.len() <= 6);
        }
        chain.clear();
        assert!(store.get("5", ANYONE).is_none(), "it exceeds the limit by itself");
        assert_eq!(store.bytes.load(Ordering::Relaxed), 0, "all other entries were dropped to make space");
    }

    #[test]
    fn stores_nothing_if_age_or_number_is_zero() {
        for store in [store(10, Duration::ZERO), store(0, Duration::from_secs(1))] {
            store.insert("a".into(), ANYONE, 1, 1);
            std::thread::sleep(Duration::from_millis(2));
            assert!(store.get("a", ANYONE).is_none());
        }
    }
}
