//! Where conversations and runs are kept.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::model::{ConversationId, Message};
use crate::run::Run;

/// The future of one operation of a [`ChatStore`] or a [`RunStore`].
pub type StoreFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// Keeps the messages of conversations. A [`ChatMemory`](crate::ChatMemory) is made of one.
///
/// [`InMemoryStore`](crate::InMemoryStore) keeps them as long as the program runs;
#[cfg_attr(feature = "sqlite", doc = "[`SqliteStore`](crate::SqliteStore) keeps them in a file.")]
#[cfg_attr(not(feature = "sqlite"), doc = "`SqliteStore`, in the feature `sqlite`, keeps them in a file.")]
///
/// # Contract
///
/// - The whole conversation is kept. How much of it a model is sent is none of the store's business.
/// - Messages come back in the order in which they were appended.
/// - [`append`](Self::append) adds all of its messages or none, and nobody's messages come between them. A future
///   that is dropped before it is ready has done the one or the other.
/// - What is begun later sees what was begun before, also if nobody waited for that: the memory lets the next one
///   at a conversation when the future of an `append` is dropped.
/// - No operation blocks its thread.
///
/// # Examples
///
/// ```
/// use tool_core::{ChatStore, ConversationId, InMemoryStore, Message, StoreFuture};
///
/// /// Keeps no pictures.
/// struct TextOnly(InMemoryStore);
///
/// impl ChatStore for TextOnly {
///     fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
///         self.0.load(id)
///     }
///
///     fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
///         Box::pin(async move {
///             let texts = messages.iter().map(|message| match message {
///                 Message::User(content) => Message::user(&*content.text()),
///                 other => other.clone(),
///             });
///             self.0.append(id, &texts.collect::<Vec<_>>()).await
///         })
///     }
///
///     fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
///         self.0.clear(id)
///     }
///
///     fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
///         self.0.conversations()
///     }
/// }
/// ```
pub trait ChatStore: Send + Sync {
    /// All messages of a conversation, the oldest first; none of a conversation that nobody added to.
    ///
    /// # Errors
    ///
    /// The future gives any error when they cannot be read.
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>>;

    /// Adds messages to the end of a conversation: all of them, or none. Without a message there is nothing to do.
    ///
    /// # Errors
    ///
    /// The future gives any error when they cannot be kept; none is then.
    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()>;

    /// Forgets all messages of a conversation.
    ///
    /// # Errors
    ///
    /// The future gives any error when they cannot be removed.
    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()>;

    /// The conversations that have messages, in the order of their ids.
    ///
    /// # Errors
    ///
    /// The future gives any error when they cannot be listed.
    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>>;
}

/// Keeps the states of runs, such as those that wait for a person, under ids of the application's.
///
/// ```
/// use tool_core::{InMemoryStore, Message, Run, RunStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let store = InMemoryStore::new();
/// store.save_run("order-17", &Run::new([Message::user("Cancel my order.")])).await?;
///
/// let run = store.load_run("order-17").await?.ok_or("nobody saved it")?;
/// assert_eq!(run.messages()[0].text(), "Cancel my order.");
/// store.remove_run("order-17").await?;
/// assert!(store.runs().await?.is_empty());
/// # Ok(())
/// # }
/// ```
pub trait RunStore: Send + Sync {
    /// Keeps the state of a run, in place of the one that was there under this id. A future that is dropped
    /// before it is ready leaves the one or the other.
    ///
    /// # Errors
    ///
    /// The future gives any error when the state cannot be kept; the one that was there then stays.
    fn save_run<'a>(&'a self, id: &'a str, run: &'a Run) -> StoreFuture<'a, ()>;

    /// The state of a run as it was saved last; `None` if none is kept under this id.
    ///
    /// # Errors
    ///
    /// The future gives any error when the state cannot be read.
    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>>;

    /// Forgets a run; one that is not kept is no error.
    ///
    /// # Errors
    ///
    /// The future gives any error when the state cannot be removed.
    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()>;

    /// The ids under which runs are kept, in order.
    ///
    /// # Errors
    ///
    /// The future gives any error when they cannot be listed.
    fn runs(&self) -> StoreFuture<'_, Vec<String>>;
}

/// A store that is shared.
impl<S: ChatStore + ?Sized> ChatStore for Arc<S> {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        (**self).load(id)
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        (**self).append(id, messages)
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        (**self).clear(id)
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        (**self).conversations()
    }
}
