//! The caller of a request, identified by its key.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Identifies the caller by the key of its request. Values that one caller stored are not found by the others.
///
/// Contains a hash of the key, which is compared in constant time. Without keys, all callers are the same.
#[derive(Clone, Copy)]
pub struct Caller(Option<[u8; 32]>);

impl Caller {
    /// The caller of all requests to a server without keys.
    pub const ANYONE: Self = Self(None);

    /// Returns the caller with this key.
    #[must_use]
    pub fn with_key(key: &[u8]) -> Self {
        Self(Some(Sha256::digest(key).into()))
    }
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(hash), Some(other)) => hash.ct_eq(other).into(),
            (None, None) => true,
            _ => false,
        }
    }
}

impl Eq for Caller {}

/// Omits the hash.
impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("has_key", &self.0.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_are_equal_if_their_keys_are() {
        let none = Caller::ANYONE;
        let (one, other) = (Caller::with_key(b"one"), Caller::with_key(b"other"));
        assert!(one == Caller::with_key(b"one") && none == Caller::ANYONE);
        assert!(one != other && one != none && none != other);
        assert_eq!(format!("{one:?}"), "Caller { has_key: true, .. }");
    }
}
