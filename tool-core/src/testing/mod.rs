//! Models for tests and first steps: no key, no network.

mod scripted;

pub use self::scripted::ScriptedModel;
