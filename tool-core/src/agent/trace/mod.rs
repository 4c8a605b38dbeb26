//! Tracing: a span for the run, for each turn, for each model request and for each tool call. Without the feature, the same
//! types exist and do nothing, so that drivers need no `cfg`.

#[cfg(not(feature = "tracing"))]
mod disabled;
#[cfg(feature = "tracing")]
mod names;
#[cfg(feature = "tracing")]
mod content;
#[cfg(feature = "tracing")]
mod open_span;
#[cfg(feature = "tracing")]
mod spans;
mod warning;

#[cfg(not(feature = "tracing"))]
pub(super) use self::disabled::{
    Disabled as CallSpan, Disabled as CallTrace, Disabled as RunTrace, Disabled as Scope,
    Disabled as Settings,
};
#[cfg(feature = "tracing")]
pub(super) use self::spans::{CallSpan, CallTrace, RunTrace, Scope, Settings};
pub(super) use self::warning::{
    warn_of_compaction, warn_of_lost_values, warn_of_taken_name, warn_of_unreadable_runs,
};
