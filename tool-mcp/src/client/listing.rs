//! The list of a server's tools, which is untrusted.

use super::problem::McpProblem;
use super::tool::McpTool;

/// The usable tools of a server, the problems of the others, and the instructions for the use of all.
#[derive(Default, PartialEq)]
pub(super) struct Listing {
    pub(super) instructions: Option<String>,
    pub(super) tools: Vec<McpTool>,
    pub(super) problems: Vec<McpProblem>,
}
