//! The list of a server's tools, which is untrusted.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use rmcp::model::Tool;
use tool_core::content::printable;

use super::config::ServerConfig;
use super::text::truncate_name;
use super::tool_name::sanitize_tool_name;
use super::{McpError, McpTool};

/// The maximum number of recorded problems.
const MAX_PROBLEMS: usize = 1000;

/// The longest name of a tool that is accepted, in bytes. Names are shown to people and sent with each call.
const MAX_NAME_BYTES: usize = 256;

/// The usable tools of a server, the problems of the others, and the instructions for the use of all.
#[derive(Default, PartialEq)]
pub(super) struct Listing {
    pub(super) instructions: Option<String>,
    pub(super) tools: Vec<McpTool>,
    pub(super) problems: Vec<McpProblem>,
}

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

/// Collects the pages of a list, within the configured number of tools.
pub(super) struct ListingBuilder<'s> {
    listing: Listing,
    names: HashSet<String>,
    server: Arc<str>,
    config: &'s ServerConfig,
}

impl<'s> ListingBuilder<'s> {
    pub(super) fn new(listing: Listing, config: &'s ServerConfig) -> Self {
        Self { listing, names: HashSet::new(), server: config.name.as_str().into(), config }
    }

    pub(super) fn finish(self) -> Listing {
        self.listing
    }

    /// Adds a page. An invalid tool does not affect the others.
    pub(super) fn add_page(&mut self, page: Vec<Result<Tool, McpProblem>>) -> Result<(), McpError> {
        let Listing { tools, problems, .. } = &self.listing;
        let max_tools = self.config.max_tools;
        if tools.len() + problems.len() + page.len() > max_tools.saturating_add(MAX_PROBLEMS)
            || tools.len() + page.iter().filter(|tool| tool.is_ok()).count() > max_tools
        {
            let problem = format!("lists more than {max_tools} tools; raise the limit with `max_tools`");
            return Err(McpError::too_many_tools(&self.config.name, problem));
        }
        for tool in page {
            match tool {
                Ok(tool) => self.add_tool(tool),
                Err(problem) => self.listing.problems.push(problem),
            }
        }
        Ok(())
    }

    fn add_tool(&mut self, tool: Tool) {
        let problems = &mut self.listing.problems;
        if tool.name.len() > MAX_NAME_BYTES {
            let reason = format!("its name is longer than {MAX_NAME_BYTES} bytes");
            problems.push(McpProblem::skipped(&tool.name, reason));
            return;
        }
        let name = sanitize_tool_name(&tool.name);
        if !self.names.insert(name.to_string()) {
            problems.push(McpProblem::skipped(&tool.name, "another tool of the server has the same name"));
            return;
        }
        if *name != *tool.name {
            problems.push(McpProblem::offered(&tool.name, format!("is offered as `{name}`")));
        }
        let name = name.into_owned();
        match McpTool::new(name, &self.server, tool, &self.config.trust) {
            Ok(tool) => self.listing.tools.push(tool),
            Err(problem) => problems.push(problem),
        }
    }
}
