//! The error of creating the strict form of a definition.

use std::fmt;

use crate::schema::Unsupported;

/// The error of creating the [strict form](crate::model::ToolDefinition::into_strict) of a tool's parameters.
#[derive(thiserror::Error)]
#[error("the tool `{tool}` has no strict form: {unsupported}")]
pub struct StrictError {
    tool: String,
    unsupported: Unsupported,
}

impl StrictError {
    pub(super) fn new(tool: String, unsupported: Unsupported) -> Self {
        Self { tool, unsupported }
    }

    /// Returns the name of the tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns the path in the parameters, such as `$.properties.labels`.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.unsupported.path
    }
}

/// Writes the text, so that a `main` that returns the error shows it readably.
impl fmt::Debug for StrictError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
