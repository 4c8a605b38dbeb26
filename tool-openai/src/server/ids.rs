//! Ids that nobody can guess.

use std::hash::{BuildHasher, RandomState};

/// An id that no other has: the prefix, and 128 random bits.
pub(super) fn unique(prefix: &str) -> String {
    // Every `RandomState` has keys of its own, of which the first is random.
    let bits = || RandomState::new().hash_one(std::process::id());
    format!("{prefix}{:016x}{:016x}", bits(), bits())
}
