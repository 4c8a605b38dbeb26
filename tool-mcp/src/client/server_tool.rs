//! A tool of a server as one that an agent can call.

use std::sync::{Arc, OnceLock, Weak};

use serde_json::{Map, Value};
use tool_core::{DynamicTool, Tool, ToolContext, ToolDefinition, ToolError, ToolFuture};

use super::call::call;
use super::live::Live;
use super::{McpError, McpTool};

/// Checks the arguments by the server's schema, as any tool that is known at run time only, and has the server called.
pub(super) struct ServerTool {
    origin: Arc<str>,
    listed: McpTool,
    live: Arc<Live>,
    /// Made when it is first called: to compile a schema takes longer than to read it, and most tools are never called.
    checked: OnceLock<Result<DynamicTool, McpError>>,
}

impl ServerTool {
    pub(super) fn new(live: &Arc<Live>, origin: &Arc<str>, listed: &McpTool) -> Self {
        Self {
            origin: Arc::clone(origin),
            listed: listed.clone(),
            live: Arc::clone(live),
            checked: OnceLock::new(),
        }
    }

    fn checked(&self) -> Result<&DynamicTool, &McpError> {
        self.checked.get_or_init(|| self.check()).as_ref()
    }

    fn check(&self) -> Result<DynamicTool, McpError> {
        // The tool that is made is a part of this one, which keeps the server.
        let (live, called) = (Arc::downgrade(&self.live), self.listed.clone());
        let execute = move |arguments: Map<String, Value>, context: ToolContext| {
            let (live, called) = (Weak::upgrade(&live), called.clone());
            async move {
                match live {
                    Some(live) => call(live, called, arguments, context).await,
                    None => {
                        Err(ToolError::failed(McpError::unreachable(called.server(), "is not used any more")))
                    }
                }
            }
        };
        DynamicTool::new(self.listed.name(), "", self.listed.input_schema().clone(), execute)
            .map_err(|error| McpError::unusable(self.listed.server(), &error))
    }

    /// Why the tool cannot be called, though it is offered.
    pub(super) fn problem(&self) -> Option<String> {
        self.checked().err().map(ToString::to_string)
    }

    pub(super) fn listed(&self) -> &McpTool {
        &self.listed
    }
}

impl Tool for ServerTool {
    fn definition(&self) -> &ToolDefinition {
        self.listed.offered()
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        match self.checked() {
            Ok(tool) => tool.call(arguments, context),
            Err(error) => ToolFuture::ready(Err(ToolError::failed(error.clone()))),
        }
    }

    fn origin(&self) -> Option<&str> {
        Some(&self.origin)
    }
}
