//! Locks of values that are intact after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock only means that a thread panicked; the values are intact.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
