//! Why a conversation could not be read or added to.

use std::error::Error;
use std::fmt;

use crate::model::ConversationId;

/// Why a conversation could not be read or added to. The store's own error is inside.
///
/// ```
/// use tool_core::{ChatMemory, ChatStore, ConversationId, Message, StoreFuture};
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
/// let error = ChatMemory::new(Broken).open(&"user-7".into()).await.unwrap_err();
/// assert!(error.is_load());
/// assert_eq!(error.to_string(), "the conversation `user-7` could not be loaded: the disk is gone");
/// # }
/// ```
pub struct MemoryError {
    kind: Kind,
    error: Box<dyn Error + Send + Sync>,
}

#[derive(Debug)]
pub(super) enum Kind {
    Load(ConversationId),
    Commit(ConversationId),
    Clear(ConversationId),
    List,
    Runs,
    #[cfg(feature = "sqlite")]
    Open(std::path::PathBuf),
}

impl MemoryError {
    #[cold]
    pub(super) fn new(kind: Kind, error: Box<dyn Error + Send + Sync>) -> Self {
        Self { kind, error }
    }

    /// The messages of a conversation could not be loaded.
    #[must_use]
    pub fn is_load(&self) -> bool {
        matches!(self.kind, Kind::Load(_))
    }

    /// Messages could not be added to a conversation; none was.
    #[must_use]
    pub fn is_commit(&self) -> bool {
        matches!(self.kind, Kind::Commit(_))
    }

    /// A conversation could not be cleared.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        matches!(self.kind, Kind::Clear(_))
    }

    /// The conversations could not be listed.
    #[must_use]
    pub fn is_list(&self) -> bool {
        matches!(self.kind, Kind::List)
    }

    /// The runs that are kept could not be read.
    #[must_use]
    pub fn is_runs(&self) -> bool {
        matches!(self.kind, Kind::Runs)
    }

    pub(crate) fn of_runs(error: Box<dyn Error + Send + Sync>) -> Self {
        Self::new(Kind::Runs, error)
    }

    /// The file of a store could not be opened.
    #[cfg(feature = "sqlite")]
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.kind, Kind::Open(_))
    }

    /// Which conversation it is about, if it is about one.
    #[must_use]
    pub fn conversation(&self) -> Option<&ConversationId> {
        match &self.kind {
            Kind::Load(id) | Kind::Commit(id) | Kind::Clear(id) => Some(id),
            Kind::List | Kind::Runs => None,
            #[cfg(feature = "sqlite")]
            Kind::Open(_) => None,
        }
    }

    /// The error of the store.
    #[must_use]
    pub fn store_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, id) = match &self.kind {
            Kind::Load(id) => ("loaded", id),
            Kind::Commit(id) => ("added to", id),
            Kind::Clear(id) => ("cleared", id),
            Kind::List => return write!(f, "the conversations could not be listed: {}", self.error),
            Kind::Runs => return write!(f, "the runs that are kept could not be read: {}", self.error),
            #[cfg(feature = "sqlite")]
            Kind::Open(path) => {
                return write!(f, "the store `{}` could not be opened: {}", path.display(), self.error);
            }
        };
        write!(f, "the conversation `{}` could not be {what}: {}", id.as_str().escape_debug(), self.error)
    }
}

/// The text and the sources, so that a `main` that returns the error shows it readably.
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
    /// The store's error is in the text already, so it is that one's source.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}
