//! The client that the conformance suite starts for each scenario with the URL of its server. It connects and calls every
//! tool with arguments that match its schema.

use std::error::Error;

use serde_json::{Map, Value, json};
use tool_core::{ToolCall, ToolContext};
use tool_mcp::McpServer;

pub(crate) async fn run(url: &str) -> Result<(), Box<dyn Error>> {
    let tools = McpServer::http(url).connect().await?;
    let set = tools.tools().await?;
    for definition in set.definitions().iter() {
        let none = Map::new();
        let properties = definition.parameters()["properties"].as_object().unwrap_or(&none);
        let arguments: Map<_, _> =
            properties.iter().map(|(name, schema)| (name.clone(), sample(schema))).collect();
        let call = ToolCall::new("call_1", definition.name(), Value::Object(arguments).to_string());
        match set.call(&call, &ToolContext::new()).await {
            Ok(output) => println!("{}: {output}", call.name),
            Err(error) => println!("{} failed: {error}", call.name),
        }
    }
    Ok(())
}

/// Returns a value of the schema's type.
fn sample(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("number" | "integer") => json!(5),
        Some("boolean") => json!(true),
        _ => json!("text"),
    }
}
