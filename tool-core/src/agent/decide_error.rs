//! The error of a decision about a stored run.

use std::error::Error;
use std::fmt;

use crate::run::ResolveError;
use crate::tool::DecisionRecord;

/// The reason that a decision about a stored run has no effect.
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct DecideError(#[from] DecideErrorKind);

/// The kind of a [`DecideError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecideErrorKind {
    /// No run of the agent is stored under this id. It may have ended.
    #[error("no run of this agent is stored under this id; it may have ended")]
    UnknownRun,
    /// The run does not wait for this, it was decided before, or the decision does not fit.
    #[error(transparent)]
    Refused(ResolveError),
    /// The answer is secret, so it is not stored for the driver that works on the run.
    #[error("another driver works on the run, and a secret answer is not stored for it; answer again")]
    RunningElsewhere,
    /// The store failed.
    #[error("the run store failed: {0}")]
    Store(Box<dyn Error + Send + Sync>),
}

impl DecideError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &DecideErrorKind {
        &self.0
    }

    /// Returns the decision that was made before, if that is the reason.
    #[must_use]
    pub fn decided(&self) -> Option<&DecisionRecord> {
        match &self.0 {
            DecideErrorKind::Refused(error) => error.decided(),
            _ => None,
        }
    }
}

impl From<ResolveError> for DecideError {
    fn from(error: ResolveError) -> Self {
        DecideErrorKind::Refused(error).into()
    }
}

impl fmt::Debug for DecideError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
