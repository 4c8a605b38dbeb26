//! The error of recording an event that a run does not expect.

/// The error of recording an event that the run does not expect. The run is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected step: {0}")]
pub struct StepError(pub(super) &'static str);
