#![cfg_attr(not(doctest), doc = include_str!("../docs/links.md"))]
#![doc = include_str!("../docs/store.md")]

pub use crate::memory::budget::{BudgetPeriod, BudgetRemainder, BudgetReservation, BudgetStore};
pub use crate::memory::error::RunConflict;
pub use crate::memory::inbox::{PostOutcome, PostedCommand, RunCommand};
pub use crate::memory::lease::{DriverId, LeaseRequest, LeaseState};
pub use crate::memory::output_store::OutputStore;
pub use crate::memory::run_log::RunLog;
pub use crate::memory::run_reader::{RunNews, RunReader};
#[cfg(feature = "sqlite")]
pub use crate::memory::sqlite::{SqliteSchema, SqliteWorker};
pub use crate::memory::store::{ChatStore, RunStore, SaveOutcome, StoreFuture, UnreadableRun};
pub use crate::memory::summary::CompactionSummary;
pub use crate::run::changes::RunChanges;
pub use crate::run::reader::RunEvents;
pub use crate::run::revision::RunRevision;
pub use crate::run::user_message::MessageVolume;
#[cfg(feature = "sqlite")]
#[doc(no_inline)]
pub use rusqlite;
