//! A store in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::memory::{ChatStore, RunStore, StoreFuture};
use crate::model::{ConversationId, Message};
use crate::run::Run;

/// A store that holds conversations and runs for the lifetime of the program. Clones share their contents.
///
/// ```
/// use tool_core::memory::{ChatStore, InMemoryStore};
/// use tool_core::model::ConversationId;
/// use tool_core::Message;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let (store, id) = (InMemoryStore::new(), ConversationId::new("user-7"));
/// store.append(&id, &[Message::user("Hello"), Message::assistant("Good morning!")]).await?;
/// assert_eq!(store.clone().load(&id).await?.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct InMemoryStore(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    conversations: BTreeMap<ConversationId, Vec<Message>>,
    runs: BTreeMap<String, Run>,
}

impl InMemoryStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        // A panic leaves no partial change, because every change is a single operation on a map.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ChatStore for InMemoryStore {
    fn load<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
        Box::pin(async move { Ok(self.contents().conversations.get(id).cloned().unwrap_or_default()) })
    }

    fn append<'a>(&'a self, id: &'a ConversationId, messages: &'a [Message]) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            if !messages.is_empty() {
                self.contents().conversations.entry(id.clone()).or_default().extend_from_slice(messages);
            }
            Ok(())
        })
    }

    fn clear<'a>(&'a self, id: &'a ConversationId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.contents().conversations.remove(id);
            Ok(())
        })
    }

    fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
        Box::pin(async move { Ok(self.contents().conversations.keys().cloned().collect()) })
    }
}

impl RunStore for InMemoryStore {
    fn save_run<'a>(&'a self, id: &'a str, run: &'a Run) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.contents().runs.insert(id.to_owned(), run.clone());
            Ok(())
        })
    }

    fn load_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, Option<Run>> {
        Box::pin(async move { Ok(self.contents().runs.get(id).cloned()) })
    }

    fn remove_run<'a>(&'a self, id: &'a str) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            self.contents().runs.remove(id);
            Ok(())
        })
    }

    fn runs(&self) -> StoreFuture<'_, Vec<String>> {
        Box::pin(async move { Ok(self.contents().runs.keys().cloned().collect()) })
    }
}

/// Shows only counts, because conversations are private.
impl fmt::Debug for InMemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let contents = self.contents();
        f.debug_struct("InMemoryStore")
            .field("conversations", &contents.conversations.len())
            .field("runs", &contents.runs.len())
            .finish()
    }
}
