//! Stored conversations and runs: stores, the window that is sent to the model, repair of histories, and exclusive access.

mod chat_memory;
mod error;
mod in_memory;
mod locks;
mod repair;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod stored_runs;
mod window;

pub use self::chat_memory::{ChatMemory, OpenConversation};
pub use self::error::{MemoryError, MemoryErrorKind, RunConflict};
pub use self::in_memory::InMemoryStore;
pub use self::repair::repair_history;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStore;
pub use self::store::{ChatStore, RunStore, SaveOutcome, StoreFuture};
pub use self::stored_runs::StoredRuns;
pub use self::window::Window;
#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use rusqlite;
