//! The errors of creating dynamic tools.

use std::fmt;

use crate::content::abbreviate;

/// The maximum length of a quoted text, in characters.
const MAX_QUOTE_CHARS: usize = 200;

/// The error of creating a [`DynamicTool`](super::DynamicTool). Its text names the tool and the location in the schema.
#[derive(thiserror::Error)]
#[error("the schema of the tool `{tool}` cannot be used: {reason}")]
pub struct DynamicToolError {
    tool: String,
    reason: String,
    kind: DynamicToolErrorKind,
}

/// The kind of a [`DynamicToolError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DynamicToolErrorKind {
    /// The schema does not describe an object, but models pass arguments by name.
    NotAnObject,
    /// The schema is not a valid JSON Schema of a supported draft.
    InvalidSchema,
    /// The schema is too large or too deep, or checking a value against it would take too long.
    TooLarge,
    /// A `$ref` refers to another document or to a part that does not exist, or the schema uses an unsupported form of
    /// reference.
    InvalidReference,
}

impl DynamicToolError {
    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> DynamicToolErrorKind {
        self.kind
    }

    pub(super) fn new(tool: &str, Flaw { kind, reason }: Flaw) -> Self {
        Self { tool: cut(tool), reason, kind }
    }
}

/// Writes the text, so that a `main` that returns the error shows it readably.
impl fmt::Debug for DynamicToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A flaw of a schema.
pub(super) struct Flaw {
    kind: DynamicToolErrorKind,
    pub(super) reason: String,
}

impl Flaw {
    pub(super) fn new(kind: DynamicToolErrorKind, reason: impl Into<String>) -> Self {
        Self { kind, reason: reason.into() }
    }

    pub(super) fn too_large(reason: String) -> Self {
        Self::new(DynamicToolErrorKind::TooLarge, reason)
    }

    pub(super) fn invalid_reference(reason: String) -> Self {
        Self::new(DynamicToolErrorKind::InvalidReference, reason)
    }
}

/// Truncates a text to a readable length.
pub(super) fn cut(text: &str) -> String {
    abbreviate(text, MAX_QUOTE_CHARS).into_owned()
}
