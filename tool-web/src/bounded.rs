//! A map that drops its oldest entries, and access to shared state.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A map with at most `N` entries, which drops the one whose key was inserted first.
#[derive(Debug)]
pub(crate) struct Bounded<K, V, const N: usize> {
    by_key: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K: Clone + Eq + Hash, V, const N: usize> Default for Bounded<K, V, N> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + Hash, V, const N: usize> Bounded<K, V, N> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.by_key.get(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.by_key.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > N
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_key.remove(&oldest);
        }
    }
}

/// Locks state that is changed in single steps, so that a panic leaves nothing half done.
pub(crate) fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
