//! Why a question has no answer.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use super::call_notes::MAX_QUESTIONS;
use crate::tool::ToolError;

/// The error of a question. A tool can handle it; with `?`, the model reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskError {
    kind: AskErrorKind,
    why: Option<Cow<'static, str>>,
}

/// The kind of an [`AskError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AskErrorKind {
    /// The user declined to answer.
    Declined,
    /// The question expired.
    Expired,
    /// There is nobody to be asked: the call is executed by a program outside a run, or for an MCP host that cannot ask; it undoes another,
    /// or is of a `pure` tool.
    Unavailable,
    /// The call has asked too many questions.
    TooMany,
    /// The question cannot be asked, or a recorded value cannot be read.
    Invalid,
}

impl AskError {
    /// Nobody can be asked where the call is executed.
    pub(super) const OUTSIDE: Self = Self { kind: AskErrorKind::Unavailable, why: None };

    /// The tool may not ask.
    pub(super) const PURE: Self = Self {
        kind: AskErrorKind::Unavailable,
        why: Some(Cow::Borrowed(
            "a `pure` tool cannot ask, because its output depends on its arguments alone; remove `pure`",
        )),
    };

    pub(super) fn new(kind: AskErrorKind, why: String) -> Self {
        Self { kind, why: Some(why.into()) }
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> AskErrorKind {
        self.kind
    }
}

impl From<AskErrorKind> for AskError {
    fn from(kind: AskErrorKind) -> Self {
        Self { kind, why: None }
    }
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            AskErrorKind::Declined => f.write_str("the user declined to answer")?,
            AskErrorKind::Expired => f.write_str("the question to the user expired without an answer")?,
            AskErrorKind::Unavailable => {
                f.write_str("the tool has to ask the user, and nobody can be asked here")?
            }
            AskErrorKind::TooMany => {
                write!(f, "the call has asked {MAX_QUESTIONS} questions and may not ask more")?
            }
            AskErrorKind::Invalid => f.write_str("the user cannot be asked")?,
        }
        self.why.iter().try_for_each(|why| write!(f, ": {why}"))
    }
}

impl Error for AskError {}

impl From<AskError> for ToolError {
    fn from(error: AskError) -> Self {
        Self::failed(error)
    }
}

impl From<AskError> for String {
    fn from(error: AskError) -> Self {
        error.to_string()
    }
}
