//! What the author of a program lets the tools of a server do.
//!
//! Annotations of servers decide nothing unless the author trusts them, because servers are not trusted: every call needs approval, and
//! none is repeated.

use std::collections::BTreeSet;
use std::sync::Arc;

use tool_core::model::ToolPolicy;

use super::text::truncate_name;
use super::tool::McpTool;

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
    fn needs_approval(&self, tool: &McpTool) -> bool {
        match &self.needs_approval {
            _ if self.approved.contains(tool.original_name()) => false,
            Some(rule) => rule(tool),
            None => !self.trusts_annotations || tool.annotations_suggest_approval(),
        }
    }

    /// Returns the tool with the policy that follows from this trust.
    pub(super) fn apply(&self, tool: McpTool) -> McpTool {
        let mut policy = ToolPolicy::default();
        policy.needs_approval = self.needs_approval(&tool);
        policy.at_most_once = !(self.trusts_annotations && tool.is_idempotent());
        let reason = policy.needs_approval.then(|| self.approval_reason(&tool));
        tool.with_policy(policy, reason)
    }

    /// Returns the reason why calls of a tool need approval, and the way to avoid that.
    fn approval_reason(&self, tool: &McpTool) -> String {
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
}
