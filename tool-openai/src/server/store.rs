//! A store in memory that is bounded in number, size and age.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

/// Values by id. Expired entries are dropped, and if a limit is exceeded, the oldest ones.
pub(super) struct Store<T> {
    retention: Retention,
    entries: Mutex<Entries<T>>,
}

struct Entries<T> {
    by_id: HashMap<String, Entry<T>>,
    /// Oldest first. Ids of removed entries stay until they reach the front.
    order: VecDeque<(Instant, String)>,
    bytes: usize,
}

struct Entry<T> {
    value: T,
    inserted_at: Instant,
    bytes: usize,
}

impl<T> Entries<T> {
    /// Returns `false` if there is no entry.
    fn remove(&mut self, id: &str) -> bool {
        let removed = self.by_id.remove(id);
        self.bytes -= removed.as_ref().map_or(0, |entry| entry.bytes);
        removed.is_some()
    }
}

impl<T: Clone> Store<T> {
    pub(super) fn new(retention: Retention) -> Self {
        let entries = Entries { by_id: HashMap::new(), order: VecDeque::new(), bytes: 0 };
        Self { retention, entries: Mutex::new(entries) }
    }

    /// Stores a value of about this size under a new id.
    pub(super) fn insert(&self, id: String, value: T, bytes: usize) {
        let Retention { max_entries, max_age } = self.retention;
        if max_entries == 0 || bytes > MAX_BYTES {
            return;
        }
        let now = Instant::now();
        let mut entries = self.entries();
        entries.remove(&id);
        let exceeds_limits = |entries: &Entries<T>, oldest: Instant| {
            entries.by_id.len() >= max_entries
                || entries.order.len() >= max_entries.saturating_mul(2)
                || entries.bytes + bytes > MAX_BYTES
                || now.duration_since(oldest) > max_age
        };
        while let Some((oldest, _)) = entries.order.front()
            && exceeds_limits(&entries, *oldest)
            && let Some((_, oldest)) = entries.order.pop_front()
        {
            entries.remove(&oldest);
        }
        entries.order.push_back((now, id.clone()));
        entries.bytes += bytes;
        entries.by_id.insert(id, Entry { value, inserted_at: now, bytes });
    }

    pub(super) fn get(&self, id: &str) -> Option<T> {
        let mut entries = self.entries();
        if entries.by_id.get(id)?.inserted_at.elapsed() > self.retention.max_age {
            entries.remove(id);
        }
        entries.by_id.get(id).map(|entry| entry.value.clone())
    }

    /// Removes a value. Returns `true` if there was one.
    pub(super) fn remove(&self, id: &str) -> bool {
        self.get(id).is_some() && self.entries().remove(id)
    }

    fn entries(&self) -> MutexGuard<'_, Entries<T>> {
        // No operation under the lock leaves the entries inconsistent.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(max_entries: usize, max_age: Duration) -> Store<u32> {
        Store::new(Retention { max_entries, max_age })
    }

    #[test]
    fn drops_the_oldest_entries_first() {
        let store = store(2, Duration::from_secs(3600));
        for id in ["a", "b", "c"] {
            store.insert(id.into(), 1, 10);
        }
        assert_eq!(["a", "b", "c"].map(|id| store.get(id).is_some()), [false, true, true]);
        assert!(store.remove("b") && !store.remove("b"));
        store.insert("d".into(), 1, MAX_BYTES - 10);
        assert_eq!(["c", "d"].map(|id| store.get(id).is_some()), [true, true], "both fit");
        store.insert("e".into(), 1, 11);
        assert_eq!(["c", "d", "e"].map(|id| store.get(id).is_some()), [false, false, true], "only one fits");
        store.insert("f".into(), 1, MAX_BYTES + 1);
        assert!(store.get("f").is_none() && store.get("e").is_some());
    }

    #[test]
    fn removed_entries_take_no_space() {
        let store = store(2, Duration::from_secs(3600));
        for number in 0..100 {
            store.insert(number.to_string(), 1, 1);
            store.remove(&number.to_string());
        }
        let entries = store.entries();
        assert!(entries.order.len() <= 4 && entries.by_id.is_empty());
        assert_eq!(entries.bytes, 0);
    }

    #[test]
    fn stores_nothing_if_age_or_number_is_zero() {
        for store in [store(10, Duration::ZERO), store(0, Duration::from_secs(1))] {
            store.insert("a".into(), 1, 1);
            std::thread::sleep(Duration::from_millis(2));
            assert!(store.get("a").is_none());
        }
    }
}
