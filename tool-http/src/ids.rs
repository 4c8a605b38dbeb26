//! Unguessable ids.

use std::hash::{BuildHasher, RandomState};

/// Returns the prefix followed by 128 random bits.
#[must_use]
pub fn random_id(prefix: &str) -> String {
    // Every `RandomState` has its own keys, seeded randomly.
    let bits = || RandomState::new().hash_one(std::process::id());
    format!("{prefix}{:016x}{:016x}", bits(), bits())
}
