//! The cache that a provider uses across the requests of a run.
//!
//! A request's bytes begin with the bytes of the request before, because prompt caches depend on it. Messages that were sent are cached in
//! wire form, because a turn should cost no more for a longer history.

use std::any::Any;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A cache that a provider uses across requests, for example for the messages in its own format, so that each turn
/// converts only the new ones. Every [`Run`](crate::run::Run) has one.
///
/// # Contract
///
/// Requests that share a cache only append messages: each request starts with the messages of the one before,
/// unchanged. Callers that change a message that was sent must use a new cache.
///
/// ```
/// use tool_core::Message;
/// use tool_core::provider::RequestCache;
/// use tool_core::model::ChatRequest;
///
/// /// Converts only the new messages, as a provider would.
/// fn lengths(request: &ChatRequest<'_>) -> Vec<usize> {
///     request.cached(|lengths: &mut Vec<usize>| {
///         let new = &request.messages()[lengths.len()..];
///         lengths.extend(new.iter().map(|message| message.text().len()));
///         lengths.clone()
///     })
/// }
///
/// let cache = RequestCache::default();
/// let messages = [Message::user("Hello"), Message::assistant("Good morning!")];
/// assert_eq!(lengths(&ChatRequest::borrowing(&messages[..1]).with_cache(&cache)), [5]);
/// assert_eq!(lengths(&ChatRequest::borrowing(&messages).with_cache(&cache)), [5, 13]);
/// ```
#[derive(Default)]
pub struct RequestCache(Mutex<Option<Box<dyn Any + Send>>>);

impl RequestCache {
    /// Calls `f` with the cached value, or with the default if no value of this type is cached.
    pub(super) fn with<T: Any + Send + Default, R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken out of the slot, so that a panic in `f` leaves no partial value in it.
        let mut value = slot.take().and_then(|any| any.downcast::<T>().ok()).unwrap_or_default();
        let result = f(&mut value);
        *slot = Some(value);
        result
    }
}

/// Returns an empty cache, as the conversation of the clone may continue differently.
impl Clone for RequestCache {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for RequestCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RequestCache")
    }
}
