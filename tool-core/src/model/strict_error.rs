//! Why a definition has no strict form.

use std::fmt;

use crate::schema::Unsupported;

/// Why the parameters of a tool have no strict form.
#[derive(thiserror::Error)]
#[error("the tool `{tool}` has no strict form: {unsupported}")]
pub struct StrictError {
    tool: String,
    unsupported: Unsupported,
}

impl StrictError {
    #[inline]
    pub(super) fn new(tool: String, unsupported: Unsupported) -> Self {
        Self { tool, unsupported }
    }

    /// The name of the tool.
    #[must_use]
    #[inline]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The place in its parameters, such as `$.properties.labels`.
    #[must_use]
    #[inline]
    pub fn path(&self) -> &str {
        &self.unsupported.path
    }
}

/// The text, so that a `main` that returns the error shows it readably.
impl fmt::Debug for StrictError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
