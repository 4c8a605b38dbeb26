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

    /// Returns one of the users of this caller, who has none of the values of the others.
    #[must_use]
    pub fn with_user(self, user: &str) -> Self {
        let digest =
            Sha256::new().chain_update(self.0.unwrap_or_default()).chain_update("user ").chain_update(user);
        Self(Some(digest.finalize().into()))
    }

    /// Returns the id, of 32 hexadecimal digits, that this caller has for a text in every process. Nobody can derive it without the key.
    #[must_use]
    pub fn derive_id(&self, text: &str) -> String {
        let digest = Sha256::new().chain_update(self.0.unwrap_or_default()).chain_update(text).finalize();
        digest[..16].iter().map(|byte| format!("{byte:02x}")).collect()
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
        assert!(one.with_user("ada") == one.with_user("ada") && one.with_user("ada") != one);
        assert!(
            one.with_user("ada") != one.with_user("bob") && one.with_user("ada") != other.with_user("ada")
        );
        assert_eq!(format!("{one:?}"), "Caller { has_key: true, .. }");
    }

    #[test]
    fn ids_differ_by_caller_and_text() {
        let one = Caller::with_key(b"one");
        assert_eq!(one.derive_id("a"), Caller::with_key(b"one").derive_id("a"));
        let ids = [one.derive_id("a"), one.derive_id("b"), Caller::ANYONE.derive_id("a")];
        assert!(ids[0] != ids[1] && ids[0] != ids[2], "{ids:?}");
        assert_eq!(ids[0].len(), 32);
    }
}
