//! A tool of a server as a `Tool` that an agent can call.

use std::sync::{Arc, OnceLock, Weak};

use serde_json::{Map, Value};
use tool_core::model::ToolDefinition;
use tool_core::tool::{DynamicTool, ToolFuture};
use tool_core::{Tool, ToolContext, ToolError};

use super::call::{call, give_up};
use super::connection_manager::ConnectionManager;
use super::{McpError, McpTool};

/// Checks the arguments with the server's schema, like any dynamic tool, and calls the server.
pub(super) struct ServerTool {
    origin: Arc<str>,
    listed: McpTool,
    manager: Arc<ConnectionManager>,
    /// Created by the first call: compiling a schema takes longer than parsing it, and most tools are never called.
    dynamic: OnceLock<Result<DynamicTool, McpError>>,
}

impl ServerTool {
    pub(super) fn new(manager: &Arc<ConnectionManager>, origin: &Arc<str>, listed: &McpTool) -> Self {
        Self {
            origin: Arc::clone(origin),
            listed: listed.clone(),
            manager: Arc::clone(manager),
            dynamic: OnceLock::new(),
        }
    }

    fn dynamic(&self) -> Result<&DynamicTool, &McpError> {
        self.dynamic.get_or_init(|| self.compile()).as_ref()
    }

    fn compile(&self) -> Result<DynamicTool, McpError> {
        // `self` owns the dynamic tool as well as the connection, so a weak reference suffices.
        let (manager, listed) = (Arc::downgrade(&self.manager), self.listed.clone());
        let execute = move |arguments: Map<String, Value>, context: ToolContext| {
            let (manager, listed) = (Weak::upgrade(&manager), listed.clone());
            async move {
                match manager {
                    Some(manager) => call(manager, listed, arguments, context).await,
                    None => Err(ToolError::failed(McpError::unreachable(
                        listed.server_name(),
                        "is no longer used",
                    ))),
                }
            }
        };
        DynamicTool::new(self.listed.name(), self.listed.input_schema().clone(), execute).map_err(|error| {
            let redactor = &self.manager.config().redactor;
            McpError::invalid_schema(self.listed.server_name(), &error, redactor)
        })
    }

    /// Returns the reason why the tool is offered but cannot be called.
    pub(super) fn problem(&self) -> Option<String> {
        self.dynamic().err().map(ToString::to_string)
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
        match self.dynamic() {
            Ok(tool) => tool.call(arguments, context),
            Err(error) => ToolFuture::ready(Err(ToolError::failed(error.clone()))),
        }
    }

    fn give_up(&self, context: &ToolContext) {
        give_up(&self.manager, context);
    }

    fn check_arguments(&self, arguments: &str, context: &ToolContext) -> Result<(), ToolError> {
        self.dynamic().map_or(Ok(()), |tool| tool.check_arguments(arguments, context))
    }

    fn origin(&self) -> Option<&str> {
        Some(&self.origin)
    }
}
