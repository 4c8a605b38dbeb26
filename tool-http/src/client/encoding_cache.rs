//! The encoded tools of a set.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::error::Error;

/// The encoded tools of a set, for each of the rules that they were encoded by: an application may use several endpoints.
pub struct EncodingCache<R, T: ?Sized>(Mutex<Vec<(R, Encoding<T>)>>);

/// The encoded tools, or why they cannot be sent.
type Encoding<T> = Result<Arc<T>, String>;

impl<R: PartialEq, T: ?Sized> EncodingCache<R, T> {
    /// Returns the tools as `encode` returns them by these rules, which it does once.
    ///
    /// # Errors
    ///
    /// Returns why the tools cannot be sent.
    pub fn get_or_encode(
        &self,
        rules: R,
        encode: impl FnOnce(&R) -> Result<Arc<T>, String>,
    ) -> Result<Arc<T>, Error> {
        let entries = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries().iter().find(|(known, _)| *known == rules).map(|(_, encoded)| encoded.clone());
        let encoded = known.unwrap_or_else(|| {
            // The lock is not held, because `encode` calls hooks that may use the same tools.
            let encoded = encode(&rules);
            entries().push((rules, encoded.clone()));
            encoded
        });
        encoded.map_err(Error::request)
    }
}

impl<R, T: ?Sized> Default for EncodingCache<R, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// Shows no tools.
impl<R, T: ?Sized> fmt::Debug for EncodingCache<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodingCache").finish_non_exhaustive()
    }
}
