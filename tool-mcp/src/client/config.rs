//! Configuration of a server before a connection is opened.

use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tool_http::client::Redactor;

use super::http::HttpConfig;
use super::monitor::LogHook;
use super::process::{Pipes, ProcessConfig};
use super::text::truncate_name;
use super::{Fingerprint, McpTool};

pub(super) type Connector =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Pipes>> + Send>> + Send + Sync>;

/// The shortest secret that is redacted, in bytes. Shorter ones also occur as parts of ordinary words.
const MIN_SECRET_BYTES: usize = 6;

/// The transport of a server.
#[derive(Clone)]
pub(super) enum Endpoint {
    Process(ProcessConfig),
    Http(HttpConfig),
    Connector(Connector),
}

/// Returns `true` if calls of the tool need a person's approval.
pub(super) type ApprovalRule = Arc<dyn Fn(&McpTool) -> bool + Send + Sync>;

/// The author's trust in the statements of a server.
#[derive(Clone, Default)]
pub(super) struct Trust {
    /// The rule for the tools that are not named.
    pub(super) needs_approval: Option<ApprovalRule>,
    /// The server's names of tools that need no approval.
    pub(super) approved: BTreeSet<String>,
    pub(super) trusts_annotations: bool,
}

impl Trust {
    pub(super) fn needs_approval(&self, tool: &McpTool) -> bool {
        match &self.needs_approval {
            _ if self.approved.contains(tool.original_name()) => false,
            Some(rule) => rule(tool),
            None => !self.trusts_annotations || tool.annotations_suggest_approval(),
        }
    }

    /// Returns the reason why calls of a tool need approval, and the way to avoid that.
    pub(super) fn approval_reason(&self, tool: &McpTool) -> String {
        let (server, name) = (truncate_name(tool.server_name()), truncate_name(tool.original_name()));
        if self.needs_approval.is_some() {
            return format!(
                "the rule `McpServer::needs_approval` of the MCP server `{server}` asks for approval of `{name}`: change it, or \
                 use `approved([\"{name}\"])`"
            );
        }
        match self.trusts_annotations || tool.annotations_suggest_approval() {
            true => format!(
                "the MCP server `{server}` does not state that `{name}` is harmless: if it is, use \
                 `McpServer::approved([\"{name}\"])`"
            ),
            false => format!(
                "the MCP server `{server}` states that `{name}` is harmless, but is not trusted: use \
                 `McpServer::approved([\"{name}\"])` or `McpServer::trust_annotations`"
            ),
        }
    }

    /// Returns `true` if a call whose outcome is unknown may be repeated.
    pub(super) fn is_repeatable(&self, tool: &McpTool) -> bool {
        self.trusts_annotations && tool.is_idempotent()
    }
}

#[derive(Clone)]
pub(super) struct ServerConfig {
    pub(super) name: String,
    pub(super) endpoint: Endpoint,
    pub(super) timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) max_message_bytes: usize,
    pub(super) max_tools: usize,
    pub(super) max_output_chars: usize,
    pub(super) is_optional: bool,
    pub(super) trust: Trust,
    pub(super) pinned: Option<Arc<Fingerprint>>,
    pub(super) on_log: Option<LogHook>,
    pub(super) records_messages: bool,
    pub(super) redactor: Redactor,
}

impl ServerConfig {
    pub(super) fn new(name: String, endpoint: Endpoint) -> Self {
        Self {
            name,
            endpoint,
            timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(60),
            max_message_bytes: 16 << 20,
            max_tools: 2000,
            max_output_chars: 100_000,
            is_optional: false,
            trust: Trust::default(),
            pinned: None,
            on_log: None,
            records_messages: false,
            redactor: Redactor::new("[…]", MIN_SECRET_BYTES),
        }
    }
}
