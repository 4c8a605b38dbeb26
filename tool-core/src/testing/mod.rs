//! Models for tests and first steps: no key, no network.

mod offline;
mod scripted;

pub use self::offline::OfflineModel;
pub use self::scripted::ScriptedModel;
