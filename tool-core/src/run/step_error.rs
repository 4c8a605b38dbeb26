//! The error of recording an event that a run does not expect.

/// The error of recording an event that the run does not expect. The run is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run does not expect this: {0}")]
pub struct StepError(pub(crate) &'static str);
