//! The error of resolving a wait.

use std::error::Error;
use std::fmt;

use super::step_error::StepError;
use crate::tool::DecisionRecord;

/// The error of [resolving](crate::run::Run::resolve) a wait. The run is unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolveError {
    pub(super) kind: ResolveErrorKind,
    pub(super) detail: Option<String>,
    pub(super) decided: Option<Box<DecisionRecord>>,
}

/// The kind of a [`ResolveError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResolveErrorKind {
    /// The run has no such wait: it is of another run, or what was shown has changed since.
    UnknownWait,
    /// The wait was decided before. [`ResolveError::decided`] says how and by whom.
    AlreadyDecided,
    /// The decision is of another kind than the wait, such as an answer to a call that awaits approval.
    WrongDecision,
    /// The answer is not valid.
    InvalidAnswer,
    /// The arguments of an approval are not valid.
    InvalidArguments,
}

impl ResolveError {
    pub(super) fn new(kind: ResolveErrorKind) -> Self {
        Self { kind, detail: None, decided: None }
    }

    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::new(ResolveErrorKind::InvalidAnswer) }
    }

    pub(crate) fn invalid_arguments(detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..Self::new(ResolveErrorKind::InvalidArguments) }
    }

    pub(crate) fn already_decided(by: DecisionRecord) -> Self {
        Self { decided: Some(Box::new(by)), ..Self::new(ResolveErrorKind::AlreadyDecided) }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ResolveErrorKind {
        self.kind
    }

    /// Returns the decision that was made before.
    #[must_use]
    pub fn decided(&self) -> Option<&DecisionRecord> {
        self.decided.as_deref()
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ResolveErrorKind::UnknownWait => {
                "the run does not wait for this any more; decide about one of `waits()`"
            }
            ResolveErrorKind::AlreadyDecided => "this was decided before",
            ResolveErrorKind::WrongDecision => "the decision is of another kind",
            ResolveErrorKind::InvalidAnswer => "the answer is not valid",
            ResolveErrorKind::InvalidArguments => "the call cannot be approved with these arguments",
        })?;
        if let Some(by) = self.decided.as_ref().and_then(|decided| decided.by.as_ref()) {
            write!(f, " by {by}")?;
        }
        self.detail.iter().try_for_each(|detail| write!(f, ": {detail}"))
    }
}

impl Error for ResolveError {}

impl From<StepError> for ResolveError {
    fn from(StepError(detail): StepError) -> Self {
        Self::invalid(detail)
    }
}
