//! Stored conversations, runs and budgets: stores, the window that is sent to the model, and exclusive access.

mod error;
mod lease;
mod inbox;
mod filter;
mod summary;
mod store;
mod output_store;
mod budget;
mod in_memory;
mod locks;
mod window;
mod chat_memory;
mod stored_runs;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "testing")]
pub(crate) mod run_store_check;

pub(crate) use self::budget::BudgetUnit;
pub use self::budget::{
    Budget, BudgetPeriod, BudgetRemainder, BudgetReservation, BudgetStore, IntoKeyedBudget, KeyedBudget,
};
pub use self::chat_memory::{ChatMemory, OpenConversation};
pub use self::error::{MemoryError, MemoryErrorKind, RunConflict};
pub use self::filter::RunFilter;
pub use self::in_memory::InMemoryStore;
pub use self::inbox::{PostOutcome, PostedCommand, RunCommand};
pub use self::lease::{DriverId, LeaseRequest, LeaseState};
pub use self::output_store::OutputStore;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStore;
#[cfg(feature = "sqlite")]
#[doc(hidden)] // For the crates of this project.
pub use self::sqlite::{SqliteSchema, SqliteWorker};
pub use self::store::{ChatStore, RunStore, SaveOutcome, StoreFuture, UnreadableRun};
pub use self::stored_runs::{StoredRun, StoredRuns};
pub(crate) use self::stored_runs::{list, post};
pub use self::summary::ConversationSummary;
pub use self::window::Window;
pub(crate) use self::window::group_start;
pub use crate::run::summary::{RunStatus, RunSummary};
#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use rusqlite;
