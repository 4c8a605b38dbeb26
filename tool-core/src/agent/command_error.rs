//! The error of a command to a stored run.

use std::error::Error;
use std::fmt;

use crate::run::{FULL, ResolveError};
use crate::tool::DecisionRecord;

/// The reason that a [decision](crate::Agent::decide) about a stored run, a [message](crate::Agent::say) to it, or its [cancellation](crate::Agent::cancel), has no effect.
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct CommandError(#[from] CommandErrorKind);

/// The kind of a [`CommandError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandErrorKind {
    /// No run of the agent is stored under this id. It may have ended.
    #[error("no run of this agent is stored under this id; it may have ended")]
    UnknownRun,
    /// The run does not wait for this, it was decided before, or the decision does not fit.
    #[error(transparent)]
    Refused(ResolveError),
    /// The application's [`RunSetup`](crate::agent::RunSetup::may_decide) does not let this person or system decide.
    #[error("{} may not decide about this", by.as_deref().unwrap_or("somebody unknown"))]
    NotAllowed {
        /// Who wanted to decide, as the decision states it.
        by: Option<String>,
    },
    /// The answer is secret, so it is not stored for the driver that works on the run.
    #[error("another driver works on the run, and a secret answer is not stored for it; answer again")]
    RunningElsewhere,
    /// The run has ended, or takes no more messages because it is being undone.
    #[error("the run has ended; a further message is a new question")]
    Ended,
    /// The message is too long, or the run has [too many](crate::store::MessageVolume).
    #[error("the message was not sent: {FULL}")]
    Full,
    /// The run store has no [inboxes](crate::store::RunStore::post).
    #[error(
        "the run store has no inboxes, which commands to a run need; implement `RunStore::post` and `posted`"
    )]
    NoInbox,
    /// The store failed.
    #[error("the run store failed: {0}")]
    Store(Box<dyn Error + Send + Sync>),
}

impl CommandError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> &CommandErrorKind {
        &self.0
    }

    /// Returns the decision that was made before, if that is the reason.
    #[must_use]
    pub fn decided(&self) -> Option<&DecisionRecord> {
        match &self.0 {
            CommandErrorKind::Refused(error) => error.decided(),
            _ => None,
        }
    }
}

impl From<ResolveError> for CommandError {
    fn from(error: ResolveError) -> Self {
        CommandErrorKind::Refused(error).into()
    }
}

impl fmt::Debug for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
