//! Problems of a server's tools.

use std::fmt;

use tool_core::provider::printable;

use super::text::truncate_name;

/// A problem of one tool of a server that the author of the program should know about. `Display` names the tool and
/// describes the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpProblem {
    tool: String,
    message: String,
    is_skipped: bool,
}

impl McpProblem {
    pub(super) fn skipped(tool: &str, message: impl AsRef<str>) -> Self {
        Self {
            tool: truncate_name(tool),
            message: printable(message.as_ref()).into_owned(),
            is_skipped: true,
        }
    }

    pub(super) fn offered(tool: &str, message: impl AsRef<str>) -> Self {
        Self { is_skipped: false, ..Self::skipped(tool, message) }
    }

    /// Returns the name that the server gives the tool.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns `true` if the tool cannot be used and is not offered. Otherwise it is offered, but differs from what the
    /// server lists.
    #[must_use]
    pub fn is_skipped(&self) -> bool {
        self.is_skipped
    }
}

impl fmt::Display for McpProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = if self.is_skipped { "is skipped: " } else { "" };
        write!(f, "the tool `{}` {skipped}{}", self.tool, self.message)
    }
}
