//! What tracing hears of a run: a span for the run, each turn, each call of the model and each call of a tool. Without
//! the feature it is all empty, so that drivers need not ask whether anybody listens.

#[cfg(feature = "tracing")]
mod content;
#[cfg(feature = "tracing")]
mod names;
#[cfg(not(feature = "tracing"))]
mod silent;
#[cfg(feature = "tracing")]
mod spans;

#[cfg(not(feature = "tracing"))]
pub(super) use self::silent::{CallTrace, RunTrace, Settings};
#[cfg(feature = "tracing")]
pub(super) use self::spans::{CallTrace, RunTrace, Settings};
