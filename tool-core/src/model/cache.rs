//! What a provider keeps from one request of a run to the next.

use std::any::Any;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// What a provider keeps from one request to the next of those that share it, such as the messages in its own format, so
/// that a conversation is not written anew in every turn. Every [`Run`](crate::Run) has one.
///
/// # Contract
///
/// The messages of the requests that share a cache only grow: each request has those of the one before, unchanged, and
/// may have more behind them. Whoever changes what was sent takes a new cache.
///
/// ```
/// use tool_core::{ChatRequest, Message, RequestCache};
///
/// /// What a provider would do: it looks at what is new, and keeps what it made.
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
    /// Looks at what the provider kept, or at what its type begins with.
    pub(super) fn with<T: Any + Send + Default, R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken out, so that nothing half made stays if it panics.
        let mut value = kept.take().and_then(|any| any.downcast::<T>().ok()).unwrap_or_default();
        let looked = look(&mut value);
        *kept = Some(value);
        looked
    }
}

/// A clone keeps nothing: what it is a clone of may go on in another way.
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
