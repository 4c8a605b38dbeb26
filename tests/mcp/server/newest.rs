//! Requests of revision 2026-07-28, made by hand.

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use super::guarding::post;

/// The meta data of a request with these capabilities.
pub(super) fn meta(capabilities: &Value) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities,
        "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
    })
}

/// Returns a request with these capabilities, unless its parameters have meta data.
pub(super) fn request(url: &str, method: &str, mut params: Value, capabilities: &Value) -> RequestBuilder {
    if params["_meta"].is_null() {
        params["_meta"] = meta(capabilities);
    }
    let name = params["name"].as_str().or(params["taskId"].as_str()).map(str::to_owned);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = post(url, body.to_string());
    let request = request.header("mcp-protocol-version", "2026-07-28").header("mcp-method", method);
    name.into_iter().fold(request, |request, name| request.header("mcp-name", name))
}

/// Sends a request and returns the JSON-RPC message.
pub(super) async fn send(request: RequestBuilder) -> Value {
    message(&request.send().await.unwrap().text().await.unwrap())
}

/// Returns the last JSON-RPC message of a body, which can be a stream.
pub(super) fn message(body: &str) -> Value {
    let data =
        body.lines().filter_map(|line| line.strip_prefix("data:")).rfind(|data| data.contains("jsonrpc"));
    serde_json::from_str(data.unwrap_or(body)).unwrap_or_else(|_| panic!("{body}"))
}

/// Returns the text of a complete result.
pub(super) fn output(message: &Value) -> &str {
    let text = message["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{message}"))
}
