//! The tools that a server lists, read with distrust.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use rmcp::model::{
    ClientRequest, ListToolsRequest, ListToolsResult, PaginatedRequestParams, ServerResult, Tool,
};
use rmcp::service::PeerRequestOptions;
use serde_json::Value;

use super::connection::Connection;
use super::names::offered_name;
use super::settings::Settings;
use super::{McpError, McpTool};

/// How many pages a list may have.
const MOST_PAGES: usize = 1000;

/// How many problems are kept.
const MOST_PROBLEMS: usize = 1000;

/// What a server listed, as far as it can be used.
#[derive(Default, PartialEq)]
pub(super) struct Listing {
    pub(super) tools: Vec<McpTool>,
    pub(super) problems: Vec<McpProblem>,
}

/// Something about one tool of a server that the author of the program should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpProblem {
    tool: String,
    message: String,
    is_left_out: bool,
}

impl McpProblem {
    pub(super) fn left_out(tool: &str, message: impl Into<String>) -> Self {
        Self { tool: super::names::cut(tool), message: message.into(), is_left_out: true }
    }

    pub(super) fn noted(tool: &str, message: impl Into<String>) -> Self {
        Self { is_left_out: false, ..Self::left_out(tool, message) }
    }

    /// The tool, by the server's name for it.
    #[must_use]
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// The tool cannot be used and is not offered; otherwise it is, but not as the server has it.
    #[must_use]
    pub fn is_left_out(&self) -> bool {
        self.is_left_out
    }
}

/// The tool and what is the matter with it.
impl fmt::Display for McpProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_left_out { "is left out: " } else { "" };
        write!(f, "the tool `{}` {what}{}", self.tool, self.message)
    }
}

impl Listing {
    /// Asks for all pages.
    pub(super) async fn ask(connection: &Connection, settings: &Settings) -> Result<Self, McpError> {
        let info = connection.peer().peer_info();
        if info.is_none_or(|info| info.capabilities.tools.is_none()) {
            return Ok(Self::default());
        }
        let server = settings.name.as_str().into();
        let mut reading = Reading { listing: Self::default(), names: HashSet::new(), server, settings };
        let mut cursor = None;
        let mut cursors = HashSet::new();
        for _ in 0..MOST_PAGES {
            let page = page(connection, settings, cursor).await?;
            reading.take(page.tools)?;
            match page.next {
                // What leads back to a page that was read would go on for ever.
                Some(next) if cursors.insert(next.clone()) => cursor = Some(next),
                Some(_) => {
                    let what = "lists its tools in a circle: two pages have one cursor";
                    return Err(McpError::unreadable(&settings.name, what));
                }
                None => return Ok(reading.listing),
            }
        }
        Err(McpError::too_much(
            &settings.name,
            format_args!("lists its tools on more than {MOST_PAGES} pages"),
        ))
    }
}

/// One page. A tool that is none does not spoil those beside it.
struct Page {
    tools: Vec<Result<Tool, McpProblem>>,
    next: Option<String>,
}

async fn page(
    connection: &Connection,
    settings: &Settings,
    cursor: Option<String>,
) -> Result<Page, McpError> {
    let what = "the request for its tools";
    let params = PaginatedRequestParams::default().with_cursor(cursor);
    let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
    let options = PeerRequestOptions::with_timeout(settings.timeout);
    let asked =
        async { connection.peer().send_cancellable_request(request, options).await?.await_response().await };
    let answer = tokio::select! {
        biased;
        answer = tokio::time::timeout(settings.timeout, asked) => match answer {
            Ok(answer) => answer,
            Err(_) => return Err(McpError::timed_out(&settings.name, what, settings.timeout)),
        },
        () = connection.inbox.closed() => {
            return Err(McpError::unreachable(&settings.name, "went away before it listed its tools"));
        }
    };
    match answer.map_err(|error| McpError::of_request(&settings.name, what, error, &settings.secrets))? {
        ServerResult::ListToolsResult(ListToolsResult { tools, next_cursor, .. }) => {
            Ok(Page { tools: tools.into_iter().map(Ok).collect(), next: next_cursor })
        }
        // One of the tools is not as it should be: each is looked at alone.
        ServerResult::CustomResult(result) if result.0.get("tools").is_some_and(Value::is_array) => {
            let Value::Object(mut page) = result.0 else {
                return Err(McpError::unexpected(&settings.name, what));
            };
            let next = page.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            let Some(Value::Array(tools)) = page.remove("tools") else {
                return Err(McpError::unexpected(&settings.name, what));
            };
            Ok(Page { tools: tools.into_iter().map(read_tool).collect(), next })
        }
        // No tools at all.
        ServerResult::EmptyResult(_) => Ok(Page { tools: Vec::new(), next: None }),
        _ => Err(McpError::unexpected(&settings.name, what)),
    }
}

fn read_tool(value: Value) -> Result<Tool, McpProblem> {
    let name = value.get("name").and_then(Value::as_str).unwrap_or("(without a name)").to_owned();
    let is_object = value.get("inputSchema").is_some_and(Value::is_object);
    serde_json::from_value(value).map_err(|_| {
        let what = match is_object {
            true => "its definition is not as the protocol has it",
            false => "its `inputSchema` is no object",
        };
        McpProblem::left_out(&name, what)
    })
}

struct Reading<'s> {
    listing: Listing,
    names: HashSet<String>,
    server: Arc<str>,
    settings: &'s Settings,
}

impl Reading<'_> {
    fn take(&mut self, tools: Vec<Result<Tool, McpProblem>>) -> Result<(), McpError> {
        let Listing { tools: listed, problems } = &self.listing;
        let most = self.settings.max_tools;
        if listed.len() + problems.len() + tools.len() > most.saturating_add(MOST_PROBLEMS)
            || listed.len() + tools.iter().filter(|tool| tool.is_ok()).count() > most
        {
            let what = format_args!("lists more than {most} tools; `max_tools` lets it have more");
            return Err(McpError::too_much(&self.settings.name, what));
        }
        for tool in tools {
            match tool {
                Ok(tool) => self.take_tool(tool),
                Err(problem) => self.listing.problems.push(problem),
            }
        }
        Ok(())
    }

    fn take_tool(&mut self, tool: Tool) {
        let problems = &mut self.listing.problems;
        let name = offered_name(&tool.name);
        if !self.names.insert(name.to_string()) {
            problems.push(McpProblem::left_out(&tool.name, "another tool of the server has its name"));
            return;
        }
        if *name != *tool.name {
            problems.push(McpProblem::noted(&tool.name, format!("is offered as `{name}`")));
        }
        let name = name.into_owned();
        match McpTool::new(name, &self.server, tool, &self.settings.needs_approval) {
            Ok(tool) => self.listing.tools.push(tool),
            Err(problem) => problems.push(problem),
        }
    }
}

/// What was listed, and when.
pub(super) struct Kept {
    pub(super) listing: Arc<Listing>,
    pub(super) connection: u64,
    pub(super) changes: u64,
}
