//! The error of recording an event that a run does not expect.

/// The error of recording an event that the run does not expect. The run is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the run does not expect this: {0}")]
pub struct StepError(pub(crate) &'static str);

/// The kind of a [`StepError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepErrorKind {
    /// The run is in another state.
    Unexpected,
    /// A [message](crate::run::Run::say) is too long, or the run has [too many](crate::store::MessageVolume).
    Full,
}

/// Why a run takes no further message.
pub(crate) const FULL: &str = "a run takes messages of up to 256 KiB, 100 messages or 4 MiB that it has not read, and 16 MiB in all; \
    send a shorter one, or wait until the run has read the others";

impl StepError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> StepErrorKind {
        match self.0 {
            FULL => StepErrorKind::Full,
            _ => StepErrorKind::Unexpected,
        }
    }
}
