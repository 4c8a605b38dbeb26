//! Stored conversations, runs and budgets: stores, the window that is sent to the model, and exclusive access.

pub(crate) mod error;
pub(crate) mod lease;
pub(crate) mod inbox;
mod filter;
pub(crate) mod summary;
pub(crate) mod run_log;
pub(crate) mod store;
pub(crate) mod output_store;
pub(crate) mod budget;
mod in_memory;
mod locks;
mod window;
pub(crate) mod chat_memory;
pub(crate) mod stored_runs;
pub(crate) mod run_reader;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(feature = "testing")]
pub(crate) mod run_store_check;

pub use self::budget::Budget;
pub(crate) use self::budget::BudgetUnit;
pub(crate) use self::budget::{
    BudgetPeriod, BudgetRemainder, BudgetReservation, BudgetStore, IntoKeyedBudget, KeyedBudget,
};
pub use self::chat_memory::ChatMemory;
pub(crate) use self::chat_memory::OpenConversation;
pub(crate) use self::error::RunConflict;
pub use self::error::{MemoryError, MemoryErrorKind};
pub use self::filter::RunFilter;
pub use self::in_memory::InMemoryStore;
pub(crate) use self::inbox::{PostOutcome, PostedCommand, RunCommand};
pub(crate) use self::lease::{DriverId, LeaseRequest, LeaseState};
pub(crate) use self::output_store::OutputStore;
pub(crate) use self::run_log::RunLog;
#[cfg(feature = "sqlite")]
pub use self::sqlite::SqliteStore;
pub(crate) use self::store::{ChatStore, RunStore, SaveOutcome, StoreFuture, UnreadableRun};
pub(crate) use self::stored_runs::StoredRun;
pub(crate) use self::stored_runs::{list, list_unreadable};
pub(crate) use self::summary::CompactionSummary;
pub use self::window::Window;
pub(crate) use self::window::group_start;
pub use crate::run::summary::{RunStatus, RunSummary};
