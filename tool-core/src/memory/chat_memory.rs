//! What is kept of conversations, and who may add to it when.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::error::Kind;
use super::locks::{ConversationLock, ConversationLocks};
use crate::memory::{ChatStore, InMemoryStore, MemoryError, Window, repair_history};
use crate::model::{ConversationId, Message};

/// What is kept of conversations. Clones share it.
///
/// A conversation is opened before a question is asked and committed to when there is an answer. As long as it is
/// open nobody else gets it: two asks on one conversation go one after the other, in the order in which they
/// came. So who has it open and waits for it once more waits for ever; a tool must not ask on the
/// conversation that calls it. This holds among the clones of one memory. Of two memories over one store, or two
/// processes over one file, the commits come one after the other as well, but who asks may not have seen the other's last one.
///
/// The whole conversation is kept. A [`Window`] cuts what is sent to a model.
///
/// ```
/// use tool_core::{ChatMemory, ConversationId, Message, Window};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = ChatMemory::in_memory().with_window(Window::messages(2));
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
pub struct ChatMemory {
    store: Arc<dyn ChatStore>,
    locks: ConversationLocks,
    window: Option<Window>,
}

/// A conversation that nobody else gets until this is dropped.
///
/// Dropping it changes nothing. [`ChatMemory::open`] gives it.
pub struct OpenConversation {
    store: Arc<dyn ChatStore>,
    messages: Vec<Message>,
    /// How many messages the conversation has, with those that the window has no room for.
    kept: usize,
    lock: ConversationLock,
}

impl ChatMemory {
    /// A memory of what a store keeps; without a window, so whole conversations are sent.
    #[must_use]
    pub fn new(store: impl ChatStore + 'static) -> Self {
        Self { store: Arc::new(store), locks: ConversationLocks::default(), window: None }
    }

    /// A memory that lasts as long as the program runs.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::new(InMemoryStore::new())
    }

    /// The same memory, sending only what a window has room for. A clone may have another window.
    #[must_use]
    pub fn with_window(mut self, window: Window) -> Self {
        self.window = Some(window);
        self
    }

    /// Waits until nobody has the conversation open, and opens it. One that is new is empty.
    ///
    /// # Errors
    ///
    /// The store cannot load it. It is then not open.
    pub async fn open(&self, id: &ConversationId) -> Result<OpenConversation, MemoryError> {
        let lock = self.locks.lock(id).await;
        let mut messages = self.messages(id).await?;
        let kept = messages.len();
        if let Some(window) = &self.window {
            messages = window.cut(messages);
        }
        Ok(OpenConversation { store: Arc::clone(&self.store), messages, kept, lock })
    }

    /// Adds messages to a conversation, all or none, when nobody has it open: what a run added that was resumed long after
    /// its question.
    ///
    /// # Errors
    ///
    /// The store cannot keep them. None is kept then.
    pub async fn commit(&self, id: &ConversationId, added: &[Message]) -> Result<(), MemoryError> {
        let _lock = self.locks.lock(id).await;
        append(&*self.store, id, added).await
    }

    /// The same, unless these messages were added already, behind as many as the conversation had before: a run may be
    /// resumed whose messages were added just before its process ended. What stood there before may be the very same.
    pub(crate) async fn commit_once(
        &self,
        id: &ConversationId,
        added: &[Message],
        had: Option<usize>,
    ) -> Result<(), MemoryError> {
        let _lock = self.locks.lock(id).await;
        let messages = self.messages(id).await?;
        // It may have been cleared since, or nobody knows: then they can only be the last.
        let last = messages.len().saturating_sub(added.len());
        let had = had.filter(|had| *had <= messages.len()).unwrap_or(last);
        if (had..=last).any(|place| messages[place..].starts_with(added)) {
            return Ok(());
        }
        append(&*self.store, id, added).await
    }

    /// All messages of a conversation, for showing it. What providers would refuse is
    /// [repaired](repair_history). It does not wait: what is being asked now is not among them.
    ///
    /// # Errors
    ///
    /// The store cannot load them.
    pub async fn messages(&self, id: &ConversationId) -> Result<Vec<Message>, MemoryError> {
        let failed = |error| MemoryError::new(Kind::Load(id.clone()), error);
        let messages = self.store.load(id).await.map_err(failed)?;
        let Cow::Owned(repaired) = repair_history(&messages) else { return Ok(messages) };
        Ok(repaired)
    }

    /// Forgets all messages of a conversation, when nobody has it open.
    ///
    /// # Errors
    ///
    /// The store cannot remove them.
    pub async fn clear(&self, id: &ConversationId) -> Result<(), MemoryError> {
        let _lock = self.locks.lock(id).await;
        let failed = |error| MemoryError::new(Kind::Clear(id.clone()), error);
        self.store.clear(id).await.map_err(failed)
    }

    /// The conversations that have messages, in the order of their ids.
    ///
    /// # Errors
    ///
    /// The store cannot list them.
    pub async fn conversations(&self) -> Result<Vec<ConversationId>, MemoryError> {
        self.store.conversations().await.map_err(|error| MemoryError::new(Kind::List, error))
    }
}

impl OpenConversation {
    /// Which conversation it is.
    #[must_use]
    pub fn id(&self) -> &ConversationId {
        self.lock.id()
    }

    /// What the model is sent before the question: what the window has room for, repaired where providers would
    /// refuse it.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub(crate) fn kept(&self) -> usize {
        self.kept
    }

    /// Adds messages to the conversation, all or none, and lets the next one at it: the question and what followed.
    ///
    /// A future that is dropped before it is ready has added all of them or none.
    ///
    /// # Errors
    ///
    /// The store cannot keep them. None is kept then; [`ChatMemory::commit`] tries once more.
    pub async fn commit(self, added: &[Message]) -> Result<(), MemoryError> {
        append(&*self.store, self.id(), added).await
    }
}

async fn append(store: &dyn ChatStore, id: &ConversationId, added: &[Message]) -> Result<(), MemoryError> {
    store.append(id, added).await.map_err(|error| MemoryError::new(Kind::Commit(id.clone()), error))
}

impl fmt::Debug for ChatMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatMemory").field("window", &self.window).finish_non_exhaustive()
    }
}

/// Tells how much there is, not what: conversations are private.
impl fmt::Debug for OpenConversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenConversation")
            .field("id", self.id())
            .field("messages", &self.messages.len())
            .finish_non_exhaustive()
    }
}
