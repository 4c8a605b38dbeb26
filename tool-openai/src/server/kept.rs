//! What is kept from one request for the next: bounded in number, in size and in age.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How much is kept, in bytes, whatever its number.
pub(super) const MOST_BYTES: usize = 256 << 20;

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keeping {
    pub(super) number: usize,
    pub(super) age: Duration,
}

impl Default for Keeping {
    fn default() -> Self {
        Self { number: 1000, age: Duration::from_secs(60 * 60) }
    }
}

/// Values by id. What is too old goes, and the oldest goes first if it is too much.
pub(super) struct Kept<T> {
    keeping: Keeping,
    entries: Mutex<Entries<T>>,
    bytes: Arc<AtomicUsize>,
}

struct Entries<T> {
    by_id: HashMap<String, Entry<T>>,
    /// The oldest first; of what was removed, too, until it is its turn.
    order: VecDeque<(Instant, String)>,
}

struct Entry<T> {
    value: Arc<T>,
    since: Instant,
    _weight: Weight,
}

/// So many bytes count as kept, until it is dropped: what several entries share has a weight of its own.
pub(super) struct Weight {
    all: Arc<AtomicUsize>,
    bytes: usize,
}

impl Weight {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl<T> Entries<T> {
    fn remove_oldest(&mut self) -> bool {
        let Some((_, id)) = self.order.pop_front() else { return false };
        self.by_id.remove(&id);
        true
    }
}

impl<T> Kept<T> {
    pub(super) fn new(keeping: Keeping) -> Self {
        let entries = Entries { by_id: HashMap::new(), order: VecDeque::new() };
        Self { keeping, entries: Mutex::new(entries), bytes: Arc::default() }
    }

    /// The weight of something that is to be kept as part of a value.
    pub(super) fn weight(&self, bytes: usize) -> Weight {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Weight { all: Arc::clone(&self.bytes), bytes }
    }

    /// Keeps a value of about so many bytes, beside those that have [weights](Self::weight) of their own, under an id that
    /// none had before.
    pub(super) fn insert(&self, id: String, value: T, bytes: usize) {
        let weight = self.weight(bytes);
        let is_too_heavy = || self.bytes.load(Ordering::Relaxed) > MOST_BYTES;
        if self.keeping.number == 0 || bytes > MOST_BYTES {
            return;
        }
        let now = Instant::now();
        let mut entries = self.entries();
        let is_too_much = |entries: &Entries<T>| {
            entries.by_id.len() >= self.keeping.number
                || entries.order.len() >= self.keeping.number.saturating_mul(2)
                || is_too_heavy()
                || entries
                    .order
                    .front()
                    .is_some_and(|(since, _)| now.duration_since(*since) > self.keeping.age)
        };
        while is_too_much(&entries) && entries.remove_oldest() {}
        if is_too_heavy() {
            return;
        }
        entries.order.push_back((now, id.clone()));
        entries.by_id.insert(id, Entry { value: Arc::new(value), since: now, _weight: weight });
    }

    pub(super) fn get(&self, id: &str) -> Option<Arc<T>> {
        let mut entries = self.entries();
        if entries.by_id.get(id)?.since.elapsed() > self.keeping.age {
            entries.by_id.remove(id);
        }
        entries.by_id.get(id).map(|entry| Arc::clone(&entry.value))
    }

    /// Whether there was one.
    pub(super) fn remove(&self, id: &str) -> bool {
        self.get(id).is_some() && self.entries().by_id.remove(id).is_some()
    }

    fn entries(&self) -> MutexGuard<'_, Entries<T>> {
        // Nothing that runs under the lock leaves an entry half made.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(number: usize, age: Duration) -> Kept<u32> {
        Kept::new(Keeping { number, age })
    }

    #[test]
    fn the_oldest_goes_first() {
        let kept = kept(2, Duration::from_secs(3600));
        for id in ["a", "b", "c"] {
            kept.insert(id.into(), 1, 10);
        }
        assert_eq!(["a", "b", "c"].map(|id| kept.get(id).is_some()), [false, true, true]);
        assert!(kept.remove("b") && !kept.remove("b"));
        kept.insert("d".into(), 1, MOST_BYTES - 10);
        assert_eq!(["c", "d"].map(|id| kept.get(id).is_some()), [true, true], "there is room for both");
        kept.insert("e".into(), 1, 11);
        assert_eq!(["c", "d", "e"].map(|id| kept.get(id).is_some()), [false, false, true], "there is not");
        kept.insert("f".into(), 1, MOST_BYTES + 1);
        assert!(kept.get("f").is_none() && kept.get("e").is_some());
    }

    #[test]
    fn what_is_removed_again_and_again_takes_no_room() {
        let kept = kept(2, Duration::from_secs(3600));
        for number in 0..100 {
            kept.insert(number.to_string(), 1, 1);
            kept.remove(&number.to_string());
        }
        let entries = kept.entries();
        assert!(entries.order.len() <= 4 && entries.by_id.is_empty());
        assert_eq!(kept.bytes.load(Ordering::Relaxed), 0);
    }

    /// As the conversations of responses, each of which has the one before in it.
    #[test]
    fn what_is_shared_weighs_as_long_as_it_is_there() {
        let kept: Kept<Vec<Arc<Weight>>> = Kept::new(Keeping::default());
        kept.insert("other".into(), Vec::new(), 10);
        let mut chain = Vec::new();
        for number in 0..6 {
            chain.push(Arc::new(kept.weight(MOST_BYTES / 5)));
            kept.insert(number.to_string(), chain.clone(), 10);
            assert!(kept.entries().by_id.len() <= 6);
        }
        chain.clear();
        assert!(kept.get("5").is_none(), "it is too heavy by itself");
        assert_eq!(kept.bytes.load(Ordering::Relaxed), 0, "all that it had in it made room for it");
    }

    #[test]
    fn nothing_is_kept_for_no_time_and_in_no_number() {
        for kept in [kept(10, Duration::ZERO), kept(0, Duration::from_secs(1))] {
            kept.insert("a".into(), 1, 1);
            std::thread::sleep(Duration::from_millis(2));
            assert!(kept.get("a").is_none());
        }
    }
}
