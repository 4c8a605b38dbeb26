//! Access to stored conversations: one caller at a time for each.
//!
//! Conversations are stored whole or not at all, one question at a time, because histories must remain valid.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::error::Operation;
use super::locks::{ConversationLock, ConversationLocks};
use crate::memory::{ChatStore, CompactionSummary, InMemoryStore, MemoryError, Window};
use crate::model::{ConversationId, Message, repair_history};

/// The memory of conversations, backed by a store. Clones share it.
///
/// A conversation is opened before a question is sent, and committed to when there is an answer. While it is open, all
/// other callers wait: two questions in one conversation are handled one after the other, in the order of arrival.
/// Opening a conversation that the caller itself has open therefore never completes, and a tool must not ask a question in
/// the conversation that calls it.
///
/// This applies to the clones of one memory. With two memories over one store, or two processes over one file, commits are
/// still atomic, but a question may be answered without the latest commit of the other.
///
/// The whole conversation is stored. A [`Window`] limits what is sent to a model.
///
/// ```
/// use tool_core::memory::Window;
/// use tool_core::model::ConversationId;
/// use tool_core::{ChatMemory, Message};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = ChatMemory::in_memory().window(Window::messages(2));
/// let id = ConversationId::new("user-7");
/// for question in ["What is 2 + 2?", "And plus 3?"] {
///     let conversation = memory.open(&id).await?;
///     let added = [Message::user(question), Message::assistant("Let me think.")];
///     conversation.commit(&added).await?;
/// }
/// assert_eq!(memory.open(&id).await?.messages()[0].text(), "And plus 3?");
/// assert_eq!(memory.messages(&id).await?.len(), 4);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ChatMemory {
    store: Arc<dyn ChatStore>,
    locks: ConversationLocks,
    window: Option<Window>,
}

/// Exclusive access to a conversation, returned by [`ChatMemory::open`].
///
/// Dropping it releases the conversation without a change.
pub struct OpenConversation {
    store: Arc<dyn ChatStore>,
    messages: Vec<Message>,
    /// The number of stored messages, including those outside the window.
    stored_len: usize,
    lock: ConversationLock,
}

impl ChatMemory {
    /// Creates a memory over a store. Without a [window](Self::window), whole conversations are sent to the model.
    pub fn new(store: impl ChatStore + 'static) -> Self {
        Self { store: Arc::new(store), locks: ConversationLocks::default(), window: None }
    }

    /// Creates a memory that lasts for the lifetime of the program.
    pub fn in_memory() -> Self {
        Self::new(InMemoryStore::new())
    }

    /// Limits what is sent to the model. Clones can have different windows.
    pub fn window(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    /// Waits until the conversation is free and opens it. A new conversation is empty.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot load the conversation, which then stays free.
    pub async fn open(&self, id: impl Into<ConversationId>) -> Result<OpenConversation, MemoryError> {
        let id = &id.into();
        let lock = self.locks.lock(id).await;
        let mut messages = self.messages(id).await?;
        let stored_len = messages.len();
        if let Some(window) = &self.window {
            messages = window.apply(messages);
        }
        Ok(OpenConversation { store: Arc::clone(&self.store), messages, stored_len, lock })
    }

    /// Waits until the conversation is free and adds messages to it, all or none. It is meant for the messages of a run that
    /// was resumed long after its question.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot store the messages. None of them is stored then.
    pub async fn commit(&self, id: impl Into<ConversationId>, added: &[Message]) -> Result<(), MemoryError> {
        let id = &id.into();
        let _lock = self.locks.lock(id).await;
        append(&*self.store, id, added, None).await
    }

    /// Adds the messages unless the conversation contains them already after its first `previous_len` messages. This
    /// happens if a process ends after a run's messages were added and the run is resumed. Equal messages before that
    /// position do not count. The summary counts the messages of the conversation, so it is not stored if others were added before these.
    pub(crate) async fn commit_once(
        &self,
        id: &ConversationId,
        added: &[Message],
        previous_len: Option<usize>,
        summary: Option<&CompactionSummary>,
    ) -> Result<(), MemoryError> {
        let _lock = self.locks.lock(id).await;
        let messages = self.messages(id).await?;
        // If the length is unknown, or the conversation was cleared since, they can only be the last messages.
        let last = messages.len().saturating_sub(added.len());
        let first = previous_len.filter(|length| *length <= messages.len()).unwrap_or(last);
        if (first..=last).any(|start| messages[start..].starts_with(added)) {
            return Ok(());
        }
        let summary = summary.filter(|_| previous_len == Some(messages.len()));
        append(&*self.store, id, added, summary).await
    }

    /// Returns all messages of a conversation, for display, [repaired](repair_history) if necessary. It does not wait for an
    /// open conversation, whose uncommitted messages are not included.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot load the messages.
    pub async fn messages(&self, id: impl Into<ConversationId>) -> Result<Vec<Message>, MemoryError> {
        let id = &id.into();
        let failed = |error| MemoryError::new(Operation::Load(id.clone()), error);
        let messages = self.store.load(id).await.map_err(failed)?;
        let Cow::Owned(repaired) = repair_history(&messages) else { return Ok(messages) };
        Ok(repaired)
    }

    /// Waits until the conversation is free and replaces all of its messages, for example by those before a question that is asked
    /// again. Both stores of this crate replace all or none; see [`ChatStore::replace`].
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot replace the messages.
    pub async fn replace(
        &self,
        id: impl Into<ConversationId>,
        messages: &[Message],
    ) -> Result<(), MemoryError> {
        let id = &id.into();
        let _lock = self.locks.lock(id).await;
        let failed = |error| MemoryError::new(Operation::Replace(id.clone()), error);
        self.store.replace(id, messages).await.map_err(failed)
    }

    /// Waits until the conversation is free and removes all of its messages.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot remove the messages.
    pub async fn clear(&self, id: impl Into<ConversationId>) -> Result<(), MemoryError> {
        let id = &id.into();
        let _lock = self.locks.lock(id).await;
        let failed = |error| MemoryError::new(Operation::Clear(id.clone()), error);
        self.store.clear(id).await.map_err(failed)
    }

    /// Returns the ids of all conversations that have messages, sorted.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot list the conversations.
    pub async fn conversations(&self) -> Result<Vec<ConversationId>, MemoryError> {
        self.store.conversations().await.map_err(|error| MemoryError::new(Operation::List, error))
    }
}

impl OpenConversation {
    /// Returns the id of the conversation.
    #[must_use]
    pub fn id(&self) -> &ConversationId {
        self.lock.id()
    }

    /// Returns the messages that precede the question in the request: those within the window,
    /// [repaired](repair_history) if necessary.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the number of stored messages, including those outside the window.
    pub(crate) fn stored_len(&self) -> usize {
        self.stored_len
    }

    /// Adds the question and the messages that follow it, all or none, and releases the conversation.
    ///
    /// If the future is dropped before it completes, it has added all of them or none.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot store the messages. None of them is stored then; [`ChatMemory::commit`] can
    /// retry.
    pub async fn commit(self, added: &[Message]) -> Result<(), MemoryError> {
        self.append(added, None).await
    }

    /// Returns what the model reads in place of the first messages.
    pub(crate) async fn summary(&self) -> Result<Option<CompactionSummary>, MemoryError> {
        let failed = |error| MemoryError::new(Operation::Load(self.id().clone()), error);
        self.store.load_summary(self.id()).await.map_err(failed)
    }

    /// Adds messages to the conversation, which stays open, and what the next question reads in place of the first ones.
    pub(crate) async fn append(
        &self,
        added: &[Message],
        summary: Option<&CompactionSummary>,
    ) -> Result<(), MemoryError> {
        // Another process can have added messages meanwhile, which the summary does not count.
        let is_unchanged = match summary {
            Some(_) => {
                let stored = self.store.load(self.id()).await;
                stored.is_ok_and(|stored| repair_history(&stored).len() == self.stored_len)
            }
            None => true,
        };
        append(&*self.store, self.id(), added, summary.filter(|_| is_unchanged)).await
    }
}

async fn append(
    store: &dyn ChatStore,
    id: &ConversationId,
    added: &[Message],
    summary: Option<&CompactionSummary>,
) -> Result<(), MemoryError> {
    let failed = |error| MemoryError::new(Operation::Commit(id.clone()), error);
    store.append(id, added).await.map_err(failed)?;
    if let Some(summary) = summary {
        // Without it, the next question reads more. The messages are stored.
        let _ = store.store_summary(id, summary).await;
    }
    Ok(())
}

impl<S: ChatStore + 'static> From<S> for ChatMemory {
    fn from(store: S) -> Self {
        Self::new(store)
    }
}

impl fmt::Debug for ChatMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatMemory").field("window", &self.window).finish_non_exhaustive()
    }
}

/// Shows the number of messages only, because conversations are private.
impl fmt::Debug for OpenConversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenConversation")
            .field("id", self.id())
            .field("messages", &self.messages.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_summary_is_stored_only_with_the_messages_that_it_counts() {
        let (memory, id) = (ChatMemory::in_memory(), ConversationId::new("c"));
        let commit = |question: &str, previous_len, summary| {
            let added = [Message::user(question), Message::assistant("Yes.")];
            memory.commit_once(&id, &added, previous_len, summary).now_or_never().unwrap().unwrap();
            memory.open(&id).now_or_never().unwrap().unwrap().summary().now_or_never().unwrap().unwrap()
        };
        let summary = CompactionSummary { messages: 1, text: "One was asked.".to_owned(), details: None };
        for previous_len in [None, Some(7)] {
            assert_eq!(commit("Is it?", previous_len, Some(&summary)), None, "{previous_len:?}");
        }
        let stored = memory.messages(&id).now_or_never().unwrap().unwrap().len();
        assert_eq!(commit("Was it?", Some(stored), Some(&summary)), Some(summary.clone()));
        // Another process adds messages to an open conversation.
        let other = CompactionSummary { messages: 2, ..summary.clone() };
        for (is_changed, expected) in [(true, summary), (false, other.clone())] {
            let open = memory.open(&id).now_or_never().unwrap().unwrap();
            if is_changed {
                memory.store.append(&id, &[Message::user("And now?")]).now_or_never().unwrap().unwrap();
            }
            let added = [Message::assistant("No.")];
            open.append(&added, Some(&other)).now_or_never().unwrap().unwrap();
            assert_eq!(open.summary().now_or_never().unwrap().unwrap(), Some(expected));
        }
    }
}
