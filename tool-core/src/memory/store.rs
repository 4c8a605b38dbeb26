//! The traits of stores for conversations and runs.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::model::{ConversationId, Message};
use crate::run::Run;

/// The future of one operation of a [`ChatStore`] or a [`RunStore`].
pub type StoreFuture<'a, T> =
    Pin<Box<dyn Future<Output = Result<T, Box<dyn Error + Send + Sync>>> + Send + 'a>>;

/// A store for the messages of conversations, used by [`ChatMemory`](crate::ChatMemory).
///
/// [`InMemoryStore`](crate::memory::InMemoryStore) holds them for the lifetime of the program;
#[cfg_attr(feature = "sqlite", doc = "[`SqliteStore`](crate::SqliteStore) stores them in a file.")]
#[cfg_attr(not(feature = "sqlite"), doc = "`SqliteStore` (feature `sqlite`) stores them in a file.")]
///
/// # Contract
///
/// - The store holds whole conversations. It does not decide how much of them a model receives.
/// - Messages are returned in the order in which they were appended.
/// - [`append`](Self::append) is atomic: it adds all of its messages or none, without other messages between them, even if
///   its future is dropped before it completes.
/// - An operation sees the effects of those that were started earlier, even if their futures were dropped: the memory
///   admits the next caller to a conversation when the future of an `append` is dropped.
/// - No operation blocks its thread.
///
/// # Examples
///
/// ```
/// use tool_core::memory::{ChatStore, InMemoryStore, StoreFuture};
/// use tool_core::model::ConversationId;
/// use tool_core::Message;
///
/// /// Stores no images.
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
    /// Returns all messages of a conversation, the oldest first. An unknown conversation is empty.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the messages cannot be read.
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>>;

    /// Appends messages to a conversation: all of them or none. An empty slice has no effect.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the messages cannot be stored; none of them is stored then.
    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()>;

    /// Removes all messages of a conversation.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the messages cannot be removed.
    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()>;

    /// Returns the ids of all conversations that have messages, sorted.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the conversations cannot be listed.
    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>>;
}

/// A store for the states of runs, such as those that await approval, under ids chosen by the application.
///
/// ```
/// use tool_core::memory::{InMemoryStore, RunStore};
/// use tool_core::run::Run;
/// use tool_core::Message;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let store = InMemoryStore::new();
/// store.save_run("order-17", &Run::new([Message::user("Cancel my order.")])).await?;
///
/// let run = store.load_run("order-17").await?.ok_or("unknown run")?;
/// assert_eq!(run.messages()[0].text(), "Cancel my order.");
/// store.remove_run("order-17").await?;
/// assert!(store.runs().await?.is_empty());
/// # Ok(())
/// # }
/// ```
pub trait RunStore: Send + Sync {
    /// Stores the state of a run and replaces the previous one with this id. If the future is dropped before it completes,
    /// one of the two is stored.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the state cannot be stored; the previous one remains then.
    fn save_run<'a>(&'a self, id: &'a str, run: &'a Run) -> StoreFuture<'a, ()>;

    /// Returns the last stored state of a run, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the state cannot be read.
    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>>;

    /// Removes a run. Removing an unknown run has no effect.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the state cannot be removed.
    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()>;

    /// Returns the ids of all stored runs, sorted.
    ///
    /// # Errors
    ///
    /// The future resolves to an error if the runs cannot be listed.
    fn runs(&self) -> StoreFuture<'_, Vec<String>>;
}

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
