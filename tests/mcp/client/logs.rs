//! The SDK's own records contain arguments, outputs and session ids, and reach no subscriber of the program.

use std::fmt;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tool_core::{ToolContext, tool, tools};
use tool_mcp::server::Server;
use tool_mcp::{McpServer, McpTools};
use tracing::field::{Field, Visit};
use tracing::span;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::support::{Reply, call, scripted_server, text_result};
use super::transports::{default_response, http_server, response, status};

/// All spans and events of this thread, as text.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<String>>);

impl Records {
    fn capture(&self) -> tracing::subscriber::DefaultGuard {
        tracing::subscriber::set_default(tracing_subscriber::registry().with(self.clone()))
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl Visit for Records {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.lock().unwrap().push_str(&format!(" {field}={value:?}"));
    }
}

impl<S: tracing::Subscriber> Layer<S> for Records {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        let metadata = attributes.metadata();
        self.0.lock().unwrap().push_str(&format!("\n{} {}", metadata.target(), metadata.name()));
        attributes.record(&mut self.clone());
    }

    fn on_record(&self, _: &span::Id, values: &span::Record<'_>, _: Context<'_, S>) {
        values.record(&mut self.clone());
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.lock().unwrap().push_str(&format!("\n{}", event.metadata().target()));
        event.record(&mut self.clone());
    }
}

fn assert_no_secret(records: &str) {
    for secret in ["secret-argument", "secret-output", "secret-session", "secret-token", "secret-progress"] {
        assert!(!records.contains(secret), "{secret}: {records}");
    }
}

async fn exercise(server: McpServer) -> McpTools {
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let output = call(&set, "echo", json!({ "text": "secret-argument" })).await.unwrap();
    assert!(output.to_string().contains("secret-output"), "{output}");
    tools
}

#[tokio::test]
async fn a_client_over_streams_records_no_secret() {
    let records = Records::default();
    let _guard = records.capture();
    let (server, received) = scripted_server(|connection, method, request| match method {
        "tools/call" => {
            let token = &request["params"]["_meta"]["progressToken"];
            let progress = json!({ "progressToken": token, "progress": 1, "message": "secret-progress" });
            connection.notify("notifications/progress", progress);
            connection.notify("notifications/message", json!({ "level": "info", "data": "secret-output" }));
            Reply::Result(text_result("secret-output"))
        }
        _ => Reply::Default,
    });
    let server = server.on_log(|log| tracing::info!(log.level, "a hook's own record"));
    drop(exercise(server).await);
    assert_eq!(received.count("tools/call"), 1);
    let records = records.text();
    assert_no_secret(&records);
    assert!(records.contains("a hook's own record"), "{records}");
}

#[tokio::test]
async fn a_client_over_http_records_no_secret() {
    let records = Records::default();
    let _guard = records.capture();
    let (url, requests) = http_server(|method, message, _| match method {
        "initialize" => {
            let mut response = default_response(method, message);
            response.headers_mut().insert("mcp-session-id", "secret-session".parse().unwrap());
            response
        }
        "GET" => status(405),
        "DELETE" => status(500),
        "tools/call" => {
            let result =
                json!({ "jsonrpc": "2.0", "id": message["id"], "result": text_result("secret-output") });
            response("text/event-stream", format!("data: {result}\n\n"))
        }
        _ => default_response(method, message),
    })
    .await;
    let tools = exercise(McpServer::http(url).bearer_token("secret-token")).await;
    drop(tools);
    super::support::wait_until("the session is deleted", async || requests.count("DELETE") == 1).await;
    assert_no_secret(&records.text());
}

#[tool("Echoes")]
fn echo(text: String) -> String {
    tracing::info!("a tool's own record");
    format!("secret-output of {} letters", text.len())
}

#[tokio::test]
async fn a_server_over_streams_records_no_secret() {
    let records = Records::default();
    let _guard = records.capture();
    let server = McpServer::connector("own", || {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (input, output) = tokio::io::split(far);
        tokio::spawn(Server::new(tools![echo]).context(ToolContext::new()).serve_streams(input, output));
        std::future::ready(Ok(tokio::io::split(near)))
    });
    exercise(server).await;
    let records = records.text();
    assert_no_secret(&records);
    assert!(records.contains("a tool's own record"), "{records}");
}

/// With the option, the SDK runs where the subscriber of the program is.
#[tokio::test]
async fn messages_are_recorded_on_request() {
    let records = Records::default();
    let _guard = records.capture();
    let (server, _) = scripted_server(|_, method, _| match method {
        "tools/call" => Reply::Result(text_result("secret-output")),
        _ => Reply::Default,
    });
    drop(exercise(server.record_messages()).await);
    let records = records.text();
    assert!(records.contains("secret-argument") && records.contains("secret-output"), "{records}");
}

#[tokio::test]
async fn a_server_over_http_records_no_secret() {
    let records = Records::default();
    let _guard = records.capture();
    let server = Server::new(tools![echo]).bearer_token("secret-token").spawn("127.0.0.1:0").await.unwrap();
    let client = crate::server::client::http();
    let post = |session: Option<String>, body: serde_json::Value| {
        let request = client
            .post(server.url())
            .header("authorization", "Bearer secret-token")
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .body(body.to_string());
        match session {
            Some(session) => request.header("mcp-session-id", session),
            None => request,
        }
        .send()
    };
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "raw", "version": "1" },
    } });
    let response = post(None, initialize).await.unwrap();
    let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    assert!(response.text().await.unwrap().contains("serverInfo"));
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    post(Some(session.clone()), initialized).await.unwrap();
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "echo", "arguments": { "text": "secret-argument" },
    } });
    let response = post(Some(session.clone()), call).await.unwrap().text().await.unwrap();
    assert!(response.contains("secret-output of 15 letters"), "{response}");
    server.stop().await.unwrap();
    let records = records.text();
    assert_no_secret(&records);
    assert!(!records.contains(&session), "{records}");
    assert!(records.contains("a tool's own record"), "{records}");
}
