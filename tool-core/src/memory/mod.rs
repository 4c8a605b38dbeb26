//! Stored conversations and runs: stores, the window that is sent to the model, repair of histories, and exclusive access.

mod chat_memory;
mod error;
mod in_memory;
mod inbox;
mod lease;
mod locks;
mod repair;
#[cfg(feature = "testing")]
pub(crate) mod run_store_check;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod stored_runs;
mod window;

pub use self::chat_memory::{ChatMemory, OpenConversation};
pub use self::error::{MemoryError, MemoryErrorKind, RunConflict};
pub use self::in_memory::InMemoryStore;
pub(crate) use self::inbox::post;
pub use self::inbox::{PostOutcome, PostedCommand, RunCommand};
pub use self::lease::{DriverId, LeaseRequest, LeaseState};
pub use self::repair::repair_history;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStore;
pub use self::store::{ChatStore, RunStore, SaveOutcome, StoreFuture};
pub(crate) use self::stored_runs::has_expired;
pub use self::stored_runs::{RunStatus, StoredRun, StoredRuns};
pub use self::window::Window;
#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use rusqlite;
