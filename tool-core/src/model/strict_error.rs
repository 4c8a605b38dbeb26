//! The error of creating the strict form of a definition.

use std::fmt;

use crate::schema::Refusal;

/// The error of creating the [strict form](crate::model::ToolDefinition::into_strict) of a tool's parameters.
#[derive(thiserror::Error)]
#[error("the tool `{tool}` has no strict form: {refusal}")]
pub struct StrictError {
    tool: String,
    refusal: Refusal,
}

impl StrictError {
    #[inline]
    pub(super) fn new(tool: String, refusal: Refusal) -> Self {
        Self { tool, refusal }
    }

    /// Returns the name of the tool.
    #[must_use]
    #[inline]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns the path in the parameters, such as `$.properties.labels`.
    #[must_use]
    #[inline]
    pub fn path(&self) -> &str {
        &self.refusal.path
    }
}

/// Writes the text, so that a `main` that returns the error shows it readably.
impl fmt::Debug for StrictError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
