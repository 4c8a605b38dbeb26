//! The requests for the list of a server's tools.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{CustomResult, ListToolsResult, PaginatedRequestParams, ServerResult, Tool};
use serde_json::Value;

use super::config::ServerConfig;
use super::connection::Connection;
use super::error::McpError;
use super::listing::Listing;
use super::problem::McpProblem;
use super::resources::{RESOURCE_TOOLS, resource_tools};
use super::tool::McpTool;
use super::tool_name::sanitize_tool_name;

/// The maximum number of pages of a list.
const MAX_PAGES: usize = 1000;

/// The maximum number of recorded problems.
const MAX_PROBLEMS: usize = 1000;

/// The longest name of a tool that is accepted, in bytes. Names are shown to people and sent with each call.
const MAX_NAME_BYTES: usize = 256;

/// The request in errors.
const REQUEST_NAME: &str = "the request for its tools";

/// Requests all pages within the time and the size of one response. Also returns the time for which the server allows to use them, if it
/// states one.
pub(super) async fn fetch_listing(
    connection: &Connection,
    config: &ServerConfig,
) -> Result<(Listing, Option<Duration>), McpError> {
    match tokio::time::timeout(config.timeout, fetch_pages(connection, config)).await {
        Ok(result) => result,
        Err(_) => Err(McpError::timeout(&config.name, REQUEST_NAME, config.timeout)),
    }
}

async fn fetch_pages(
    connection: &Connection,
    config: &ServerConfig,
) -> Result<(Listing, Option<Duration>), McpError> {
    let Some(info) = connection.info() else { return Ok((Listing::default(), None)) };
    let listing = Listing { instructions: info.instructions.clone(), ..Listing::default() };
    let server = config.name.as_str().into();
    let mut builder = ListingBuilder { listing, names: HashSet::new(), server, config };
    if config.lists_resources && info.capabilities.resources.is_some() {
        // Before those of the server, which cannot take their names then.
        resource_tools(&config.name).into_iter().for_each(|tool| builder.add_tool(tool, true));
    } else if config.lists_resources {
        // The author may have approved these names.
        builder.names.extend(RESOURCE_TOOLS.map(str::to_owned));
    }
    if info.capabilities.tools.is_none() {
        return Ok((builder.listing, None));
    }
    // Measured as JSON.
    let mut bytes_left = config.max_message_bytes;
    let (mut cursor, mut ttl_ms) = (None, None::<u64>);
    let mut cursors = HashSet::new();
    for _ in 0..MAX_PAGES {
        let page = fetch_page(connection, config, cursor, &mut bytes_left).await?;
        builder.add_page(page.tools)?;
        ttl_ms = ttl_ms.into_iter().chain(page.ttl_ms).min();
        match page.next {
            // A repeated cursor would lead to an endless loop.
            Some(next) if cursors.insert(next.clone()) => cursor = Some(next),
            Some(_) => {
                let problem = "returned the same cursor for two pages of its tools";
                return Err(McpError::invalid_response(&config.name, problem));
            }
            None => return Ok((builder.listing, ttl_ms.map(Duration::from_millis))),
        }
    }
    let problem = format!("lists its tools on more than {MAX_PAGES} pages");
    Err(McpError::too_many_tools(&config.name, problem))
}

/// One page of a list. An invalid tool does not affect the others.
struct Page {
    tools: Vec<Result<Tool, McpProblem>>,
    next: Option<String>,
    ttl_ms: Option<u64>,
}

async fn fetch_page(
    connection: &Connection,
    config: &ServerConfig,
    cursor: Option<String>,
    bytes_left: &mut usize,
) -> Result<Page, McpError> {
    let params = PaginatedRequestParams::default().with_cursor(cursor);
    let response = tokio::select! {
        biased;
        response = connection.request_tools(params, config.timeout) => response,
        () = connection.monitor.closed() => {
            return Err(McpError::unreachable(&config.name, "disconnected before it listed its tools"));
        }
    };
    let result = response
        .map_err(|error| McpError::from_service_error(&config.name, REQUEST_NAME, error, &config.redactor))?;
    // As large as the response, which was limited.
    let bytes = serde_json::to_vec(&result).map_or(usize::MAX, |json| json.len());
    let Some(left) = bytes_left.checked_sub(bytes) else {
        let limit = config.max_message_bytes;
        let problem =
            format!("lists its tools with more than {limit} bytes; raise the limit with `max_message_bytes`");
        return Err(McpError::invalid_response(&config.name, problem));
    };
    *bytes_left = left;
    match result {
        ServerResult::ListToolsResult(ListToolsResult { tools, next_cursor, ttl_ms, .. }) => {
            Ok(Page { tools: tools.into_iter().map(Ok).collect(), next: next_cursor, ttl_ms })
        }
        // At least one tool is invalid, so each is parsed on its own.
        ServerResult::CustomResult(CustomResult(mut page)) => {
            let next = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            let ttl_ms = page.get("ttlMs").and_then(Value::as_u64);
            let Some(Value::Array(tools)) = page.get_mut("tools").map(Value::take) else {
                return Err(McpError::unexpected_result(&config.name, REQUEST_NAME));
            };
            Ok(Page { tools: tools.into_iter().map(parse_tool).collect(), next, ttl_ms })
        }
        ServerResult::EmptyResult(_) => Ok(Page { tools: Vec::new(), next: None, ttl_ms: None }),
        _ => Err(McpError::unexpected_result(&config.name, REQUEST_NAME)),
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

/// Collects the pages of a list, within the configured number of tools.
struct ListingBuilder<'s> {
    listing: Listing,
    names: HashSet<String>,
    server: Arc<str>,
    config: &'s ServerConfig,
}

impl ListingBuilder<'_> {
    /// Adds a page. An invalid tool does not affect the others.
    fn add_page(&mut self, page: Vec<Result<Tool, McpProblem>>) -> Result<(), McpError> {
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
                Ok(tool) => self.add_tool(tool, false),
                Err(problem) => self.listing.problems.push(problem),
            }
        }
        Ok(())
    }

    fn add_tool(&mut self, tool: Tool, is_of_client: bool) {
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
        match McpTool::new(name.into_owned(), &self.server, tool, is_of_client) {
            Ok(tool) => self.listing.tools.push(self.config.trust.apply(tool)),
            Err(problem) => problems.push(problem),
        }
    }
}
