//! Errors of stored conversations and runs.

use std::error::Error;
use std::fmt;

use crate::model::ConversationId;

/// An error of an operation on stored conversations or runs. It contains the error of the store.
///
/// ```
/// use tool_core::memory::MemoryErrorKind;
/// use tool_core::store::{ChatStore, StoreFuture};
/// use tool_core::model::ConversationId;
/// use tool_core::{ChatMemory, Message};
///
/// struct Broken;
///
/// impl ChatStore for Broken {
///     fn load<'a>(&'a self, _: &'a ConversationId) -> StoreFuture<'a, Vec<Message>> {
///         Box::pin(async { Err("the disk is gone".into()) })
///     }
/// #   fn append<'a>(&'a self, _: &'a ConversationId, _: &'a [Message]) -> StoreFuture<'a, ()> {
/// #       Box::pin(async { Err("the disk is gone".into()) })
/// #   }
/// #   fn clear<'a>(&'a self, _: &'a ConversationId) -> StoreFuture<'a, ()> {
/// #       Box::pin(async { Err("the disk is gone".into()) })
/// #   }
/// #   fn conversations(&self) -> StoreFuture<'_, Vec<ConversationId>> {
/// #       Box::pin(async { Err("the disk is gone".into()) })
/// #   }
///     // …
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let error = ChatMemory::new(Broken).open("user-7").await.unwrap_err();
/// assert_eq!(error.kind(), MemoryErrorKind::Load);
/// assert_eq!(error.to_string(), "could not load the conversation `user-7`: the disk is gone");
/// # }
/// ```
pub struct MemoryError {
    operation: Operation,
    error: Box<dyn Error + Send + Sync>,
}

/// The operation that failed with a [`MemoryError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryErrorKind {
    /// The messages of a conversation could not be loaded.
    Load,
    /// Messages could not be added to a conversation; none was added.
    Commit,
    /// The messages of a conversation could not be replaced.
    Replace,
    /// A conversation could not be cleared.
    Clear,
    /// The conversations could not be listed.
    List,
    /// The stored runs could not be listed.
    StoredRuns,
    /// A stored run could not be loaded.
    LoadRun,
    /// The file of a store could not be opened.
    Open,
}

/// The failed operation and its subject.
#[derive(Debug, thiserror::Error)]
pub(super) enum Operation {
    #[error("load the conversation `{}`", .0.as_str().escape_debug())]
    Load(ConversationId),
    #[error("add messages to the conversation `{}`", .0.as_str().escape_debug())]
    Commit(ConversationId),
    #[error("replace the messages of the conversation `{}`", .0.as_str().escape_debug())]
    Replace(ConversationId),
    #[error("clear the conversation `{}`", .0.as_str().escape_debug())]
    Clear(ConversationId),
    #[error("list the conversations")]
    List,
    #[error("list the stored runs")]
    StoredRuns,
    #[error("load the run `{}`", .0.escape_debug())]
    LoadRun(String),
    #[cfg(feature = "sqlite")]
    #[error("open the store `{}`", .0.display())]
    Open(std::path::PathBuf),
}

impl MemoryError {
    #[cold]
    pub(super) fn new(operation: Operation, error: Box<dyn Error + Send + Sync>) -> Self {
        Self { operation, error }
    }

    /// Returns the operation that failed.
    #[must_use]
    pub fn kind(&self) -> MemoryErrorKind {
        match &self.operation {
            Operation::Load(_) => MemoryErrorKind::Load,
            Operation::Commit(_) => MemoryErrorKind::Commit,
            Operation::Replace(_) => MemoryErrorKind::Replace,
            Operation::Clear(_) => MemoryErrorKind::Clear,
            Operation::List => MemoryErrorKind::List,
            Operation::StoredRuns => MemoryErrorKind::StoredRuns,
            Operation::LoadRun(_) => MemoryErrorKind::LoadRun,
            #[cfg(feature = "sqlite")]
            Operation::Open(_) => MemoryErrorKind::Open,
        }
    }

    /// Returns the conversation that the operation concerned, if it concerned one.
    #[must_use]
    pub fn conversation(&self) -> Option<&ConversationId> {
        match &self.operation {
            Operation::Load(id) | Operation::Commit(id) | Operation::Replace(id) | Operation::Clear(id) => {
                Some(id)
            }
            _ => None,
        }
    }

    /// Returns the id of the stored run that the operation concerned, if it concerned one.
    #[must_use]
    pub fn run(&self) -> Option<&str> {
        match &self.operation {
            Operation::LoadRun(id) => Some(id),
            _ => None,
        }
    }

    /// Returns the error of the store.
    #[must_use]
    pub fn store_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}: {}", self.operation, self.error)
    }
}

/// Shows the message and the sources, so that the error is readable when `main` returns it.
impl fmt::Debug for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut source = self.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl Error for MemoryError {
    /// Returns the source of the store's error, because the message includes the store's error itself.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

/// The error of [`RunStore::save_run`](crate::store::RunStore::save_run) for a copy of a run that is outdated: the run was saved
/// or removed elsewhere since the copy was loaded. Nothing was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the run `{}` was continued or removed elsewhere since this copy was loaded; \
     load its current state with `load_run`, if there is one",
    id.escape_debug()
)]
pub struct RunConflict {
    id: String,
}

impl RunConflict {
    #[cold]
    pub(super) fn new(id: &str) -> Self {
        Self { id: id.to_owned() }
    }

    /// Returns the id under which the run is stored.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }
}
