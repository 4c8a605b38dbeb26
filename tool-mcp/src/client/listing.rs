//! The list of a server's tools, which is untrusted.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use rmcp::model::{
    ClientRequest, ListToolsRequest, ListToolsResult, PaginatedRequestParams, ServerResult, Tool,
};
use rmcp::service::PeerRequestOptions;
use serde_json::Value;

use super::config::ServerConfig;
use super::connection::Connection;
use super::text::truncate_name;
use super::tool_name::sanitize_tool_name;
use super::{McpError, McpTool};

/// The maximum number of pages of a list.
const MAX_PAGES: usize = 1000;

/// The maximum number of recorded problems.
const MAX_PROBLEMS: usize = 1000;

/// The usable tools of a server, and the problems of the others.
#[derive(Default, PartialEq)]
pub(super) struct Listing {
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
    pub(super) fn skipped(tool: &str, message: impl Into<String>) -> Self {
        Self { tool: truncate_name(tool), message: message.into(), is_skipped: true }
    }

    pub(super) fn offered(tool: &str, message: impl Into<String>) -> Self {
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

impl Listing {
    /// Requests all pages.
    pub(super) async fn fetch(connection: &Connection, config: &ServerConfig) -> Result<Self, McpError> {
        let info = connection.peer().peer_info();
        if info.is_none_or(|info| info.capabilities.tools.is_none()) {
            return Ok(Self::default());
        }
        let server = config.name.as_str().into();
        let mut builder = ListingBuilder { listing: Self::default(), names: HashSet::new(), server, config };
        let mut cursor = None;
        let mut cursors = HashSet::new();
        for _ in 0..MAX_PAGES {
            let page = fetch_page(connection, config, cursor).await?;
            builder.add_page(page.tools)?;
            match page.next {
                // A repeated cursor would lead to an endless loop.
                Some(next) if cursors.insert(next.clone()) => cursor = Some(next),
                Some(_) => {
                    let problem = "returned the same cursor for two pages of its tools";
                    return Err(McpError::invalid_response(&config.name, problem));
                }
                None => return Ok(builder.listing),
            }
        }
        let problem = format_args!("lists its tools on more than {MAX_PAGES} pages");
        Err(McpError::too_many_tools(&config.name, problem))
    }
}

/// One page of a list. An invalid tool does not affect the others.
struct Page {
    tools: Vec<Result<Tool, McpProblem>>,
    next: Option<String>,
}

async fn fetch_page(
    connection: &Connection,
    config: &ServerConfig,
    cursor: Option<String>,
) -> Result<Page, McpError> {
    let request_name = "the request for its tools";
    let params = PaginatedRequestParams::default().with_cursor(cursor);
    let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
    let options = PeerRequestOptions::with_timeout(config.timeout);
    let sending =
        async { connection.peer().send_cancellable_request(request, options).await?.await_response().await };
    let response = tokio::select! {
        biased;
        response = tokio::time::timeout(config.timeout, sending) => match response {
            Ok(response) => response,
            Err(_) => return Err(McpError::timeout(&config.name, request_name, config.timeout)),
        },
        () = connection.monitor.closed() => {
            return Err(McpError::unreachable(&config.name, "disconnected before it listed its tools"));
        }
    };
    let result = response
        .map_err(|error| McpError::from_service_error(&config.name, request_name, error, &config.redactor))?;
    match result {
        ServerResult::ListToolsResult(ListToolsResult { tools, next_cursor, .. }) => {
            Ok(Page { tools: tools.into_iter().map(Ok).collect(), next: next_cursor })
        }
        // At least one tool is invalid, so each is parsed on its own.
        ServerResult::CustomResult(result) if result.0.get("tools").is_some_and(Value::is_array) => {
            let Value::Object(mut page) = result.0 else {
                return Err(McpError::unexpected_result(&config.name, request_name));
            };
            let next = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            let Some(Value::Array(tools)) = page.remove("tools") else {
                return Err(McpError::unexpected_result(&config.name, request_name));
            };
            Ok(Page { tools: tools.into_iter().map(parse_tool).collect(), next })
        }
        ServerResult::EmptyResult(_) => Ok(Page { tools: Vec::new(), next: None }),
        _ => Err(McpError::unexpected_result(&config.name, request_name)),
    }
}

fn parse_tool(value: Value) -> Result<Tool, McpProblem> {
    let name = value.get("name").and_then(Value::as_str).unwrap_or("(unnamed)").to_owned();
    let has_object_schema = value.get("inputSchema").is_some_and(Value::is_object);
    serde_json::from_value(value).map_err(|_| {
        let reason = match has_object_schema {
            true => "its definition does not follow the protocol",
            false => "its `inputSchema` is not an object",
        };
        McpProblem::skipped(&name, reason)
    })
}

struct ListingBuilder<'s> {
    listing: Listing,
    names: HashSet<String>,
    server: Arc<str>,
    config: &'s ServerConfig,
}

impl ListingBuilder<'_> {
    fn add_page(&mut self, page: Vec<Result<Tool, McpProblem>>) -> Result<(), McpError> {
        let Listing { tools, problems } = &self.listing;
        let max_tools = self.config.max_tools;
        if tools.len() + problems.len() + page.len() > max_tools.saturating_add(MAX_PROBLEMS)
            || tools.len() + page.iter().filter(|tool| tool.is_ok()).count() > max_tools
        {
            let problem = format_args!("lists more than {max_tools} tools; raise the limit with `max_tools`");
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
        let name = sanitize_tool_name(&tool.name);
        if !self.names.insert(name.to_string()) {
            problems.push(McpProblem::skipped(&tool.name, "another tool of the server has the same name"));
            return;
        }
        if *name != *tool.name {
            problems.push(McpProblem::offered(&tool.name, format!("is offered as `{name}`")));
        }
        let name = name.into_owned();
        match McpTool::new(name, &self.server, tool, &self.config.needs_approval) {
            Ok(tool) => self.listing.tools.push(tool),
            Err(problem) => problems.push(problem),
        }
    }
}

/// A listing, and the connection and the number of tool changes for which it is current.
pub(super) struct CachedListing {
    pub(super) listing: Arc<Listing>,
    pub(super) connection: u64,
    pub(super) tool_changes: u64,
}
