//! Tracing: a span for the run, for each turn, for each model request and for each tool call. Without the feature, the same
//! types exist and do nothing, so that drivers need no `cfg`.

#[cfg(feature = "tracing")]
mod content;
#[cfg(not(feature = "tracing"))]
mod disabled;
#[cfg(feature = "tracing")]
mod names;
#[cfg(feature = "tracing")]
mod spans;

/// Warns that a tool of a provider is not offered, because its name is taken.
pub(super) fn warn_of_taken_name(tool: &str, provider: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "tool_core", tool, provider, "left out a tool whose name is taken");
    #[cfg(not(feature = "tracing"))]
    let _ = (tool, provider);
}

#[cfg(not(feature = "tracing"))]
pub(super) use self::disabled::{Disabled as CallTrace, Disabled as RunTrace, Disabled as Settings};
#[cfg(feature = "tracing")]
pub(super) use self::spans::{CallTrace, RunTrace, Settings};
