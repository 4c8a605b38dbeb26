//! The tools of the small MCP server that the tests start.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, Tool,
    ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData as McpError, ServerHandler};
use serde_json::{Map, Value, json};

/// Tools that echo, wait, report progress, fail, change the list of tools, and end the process.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    /// Set once `grow` was called and the tool `grown` exists.
    has_grown: Arc<AtomicBool>,
    /// Set once a call of `wait` was cancelled.
    pub was_cancelled: Arc<AtomicBool>,
}

fn schema(properties: Value) -> Map<String, Value> {
    let Value::Object(schema) = json!({ "type": "object", "properties": properties }) else { unreachable!() };
    schema
}

fn tool(name: &'static str, properties: Value, annotations: ToolAnnotations) -> Tool {
    Tool::new(name, format!("Does {name}"), schema(properties)).with_annotations(annotations)
}

fn text(text: impl Into<String>) -> Result<CallToolResult, McpError> {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        ServerConfig::new(capabilities).with_instructions("Be gentle.")
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let read_only = || ToolAnnotations::new().read_only(true);
        let mut tools = vec![
            tool("echo", json!({ "text": { "type": "string" } }), read_only()),
            tool("wait", json!({}), read_only()),
            tool("steps", json!({ "steps": { "type": "integer" } }), read_only()),
            tool("fail", json!({}), read_only()),
            tool("environment", json!({}), read_only()),
            tool("grow", json!({}), read_only()),
            tool("die", json!({}), ToolAnnotations::new().destructive(false)),
            tool("delete", json!({}), ToolAnnotations::new().destructive(true)),
        ];
        if self.has_grown.load(Ordering::SeqCst) {
            tools.push(tool("grown", json!({}), read_only()));
        }
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let result = match &*request.name {
            "echo" => text(arguments["text"].as_str().unwrap_or_default()),
            "wait" => {
                context.ct.cancelled().await;
                self.was_cancelled.store(true, Ordering::SeqCst);
                text("cancelled")
            }
            "steps" => {
                let steps = arguments["steps"].as_u64().unwrap_or(3);
                for step in 1..=steps {
                    if let Some(token) = context.meta.get_progress_token() {
                        let progress = ProgressNotificationParam::new(token, step as f64)
                            .with_total(steps as f64)
                            .with_message(format!("step {step}"));
                        let _ = context.peer.notify_progress(progress).await;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                text("all steps")
            }
            "fail" => Ok(CallToolResult::error(vec![ContentBlock::text("it is broken")])),
            "environment" => {
                let mut names: Vec<_> = std::env::vars().map(|(name, _)| name).collect();
                names.sort_unstable();
                text(names.join(" "))
            }
            "grow" => {
                self.has_grown.store(true, Ordering::SeqCst);
                let _ = context.peer.notify_tool_list_changed().await;
                text("grown")
            }
            "die" => std::process::exit(3),
            name => Err(ErrorData::invalid_params(Cow::Owned(format!("unknown tool `{name}`")), None)),
        };
        result.map(CallToolResponse::Complete)
    }
}
