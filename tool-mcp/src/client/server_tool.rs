//! A tool of a server as one that an agent can call.

use std::sync::Arc;

use serde_json::{Map, Value};
use tool_core::{DynamicTool, DynamicToolError, Tool, ToolContext, ToolDefinition, ToolFuture, ToolPolicy};

use super::McpTool;
use super::call::call;
use super::live::Live;

/// Checks the arguments by the server's schema, as any tool that is known at run time only, and has the server called.
pub(super) struct ServerTool {
    definition: ToolDefinition,
    tool: DynamicTool,
    origin: String,
}

impl ServerTool {
    /// # Errors
    ///
    /// The schema cannot be used.
    pub(super) fn new(live: &Arc<Live>, listed: &McpTool) -> Result<Self, DynamicToolError> {
        let schema = Value::Object(listed.input_schema().clone());
        let mut policy = ToolPolicy::default();
        policy.needs_approval = (live.settings().needs_approval)(listed);
        policy.at_most_once = !listed.is_idempotent();
        let origin = format!("the MCP server `{}`", listed.server());
        let (live, called) = (Arc::clone(live), listed.clone());
        let execute = move |arguments: Map<String, Value>, context: ToolContext| {
            call(Arc::clone(&live), called.clone(), arguments, context)
        };
        let tool = DynamicTool::new(listed.name(), listed.words(), schema, execute)?;
        let definition = tool.definition().clone().with_policy(policy);
        Ok(Self { definition, tool, origin })
    }
}

impl Tool for ServerTool {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        self.tool.call(arguments, context)
    }

    fn origin(&self) -> Option<&str> {
        Some(&self.origin)
    }
}
