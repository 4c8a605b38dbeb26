//! A scripted model for tests.

mod scripted;

pub use self::scripted::ScriptedModel;
