//! A server in this process whose responses are scripted by the test.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tool_core::{ToolCall, ToolContext, ToolError, ToolOutput, ToolSet};
use tool_mcp::McpServer;

/// The reaction of the server to a request.
pub(crate) enum Reply {
    /// Responds like an ordinary server with the tool `echo`.
    Default,
    Result(Value),
    Error(i64, &'static str),
    /// Sends this text and a line break.
    Raw(String),
    /// Never responds.
    NoResponse,
    /// Closes the connection.
    Disconnect,
}

/// The server's end of a connection.
#[derive(Clone)]
pub(crate) struct ServerConnection {
    out: UnboundedSender<Option<Vec<u8>>>,
    /// The number of the connection, starting at 1.
    pub(crate) number: usize,
}

impl ServerConnection {
    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.send_line(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    pub(crate) fn send_line(&self, line: impl Into<Vec<u8>>) {
        let mut line = line.into();
        line.push(b'\n');
        let _ = self.out.send(Some(line));
    }
}

/// All messages that the server received.
#[derive(Clone, Default)]
pub(crate) struct Received(Arc<Mutex<Vec<Value>>>);

impl Received {
    fn methods(&self) -> Vec<String> {
        let received = self.0.lock().unwrap();
        received.iter().map(|message| message["method"].as_str().unwrap_or("response").to_owned()).collect()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.methods().iter().filter(|received| *received == method).count()
    }

    pub(crate) fn find(&self, method: &str) -> Option<Value> {
        self.0.lock().unwrap().iter().find(|message| message["method"] == method).cloned()
    }

    /// Returns all requests of a method.
    pub(crate) fn all(&self, method: &str) -> Vec<Value> {
        self.0.lock().unwrap().iter().filter(|message| message["method"] == method).cloned().collect()
    }

    /// Returns the responses of the client.
    pub(crate) fn responses(&self) -> Vec<Value> {
        self.0.lock().unwrap().iter().filter(|message| message.get("method").is_none()).cloned().collect()
    }
}

/// The default result of `initialize`.
pub(crate) fn initialize_result() -> Value {
    json!({
        "protocolVersion": "2025-06-18",
        "capabilities": { "tools": { "listChanged": true }, "logging": {} },
        "serverInfo": { "name": "raw", "version": "1.0" },
    })
}

/// The definition of a tool as servers list it.
pub(crate) fn tool(name: &str) -> Value {
    json!({
        "name": name,
        "description": format!("Does {name}"),
        "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } },
        "annotations": { "readOnlyHint": true },
    })
}

pub(crate) fn text_result(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// Returns a trusted server named `raw` that handles each request with the function.
///
/// With `record_messages`, the SDK runs on the test's runtime, whose clock can then be paused.
pub(crate) fn scripted_server(
    handle: impl Fn(&ServerConnection, &str, &Value) -> Reply + Send + Sync + 'static,
) -> (McpServer, Received) {
    let (server, received) = untrusted_server(handle);
    (server.trusted(), received)
}

/// Returns a server named `raw` that handles each request with the function.
pub(crate) fn untrusted_server(
    handle: impl Fn(&ServerConnection, &str, &Value) -> Reply + Send + Sync + 'static,
) -> (McpServer, Received) {
    let (received, handle, connections) = (Received::default(), Arc::new(handle), AtomicUsize::new(0));
    let log = received.clone();
    let server = McpServer::connector("raw", move || {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let number = connections.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::spawn(serve(reader, writer, number, Arc::clone(&handle), log.clone()));
        std::future::ready(Ok(tokio::io::split(near)))
    });
    (server.timeout(Duration::from_secs(120)), received)
}

async fn serve(
    reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Send + Unpin + 'static,
    number: usize,
    handle: Arc<impl Fn(&ServerConnection, &str, &Value) -> Reply>,
    received: Received,
) {
    let (out, mut lines) = unbounded_channel::<Option<Vec<u8>>>();
    let writing = tokio::spawn(async move {
        while let Some(Some(line)) = lines.recv().await {
            if writer.write_all(&line).await.is_err() {
                break;
            }
        }
        let _ = writer.shutdown().await;
    });
    let connection = ServerConnection { out, number };
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        received.0.lock().unwrap().push(message.clone());
        let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else { continue };
        let (member, body) = match handle(&connection, method, &message) {
            Reply::Default => match method {
                "server/discover" => ("error", json!({ "code": -32601, "message": "Method not found" })),
                "initialize" => ("result", initialize_result()),
                "tools/list" => ("result", json!({ "tools": [tool("echo")] })),
                _ => {
                    let text = message["params"]["arguments"]["text"].as_str().unwrap_or_default();
                    ("result", text_result(text))
                }
            },
            Reply::Result(result) => ("result", result),
            Reply::Error(code, message) => ("error", json!({ "code": code, "message": message })),
            Reply::Raw(line) => {
                connection.send_line(line);
                continue;
            }
            Reply::NoResponse => continue,
            Reply::Disconnect => {
                let _ = connection.out.send(None);
                break;
            }
        };
        let mut response = json!({ "jsonrpc": "2.0", "id": id });
        response[member] = body;
        connection.send_line(response.to_string());
    }
    drop(connection);
    let _ = writing.await;
}

/// Calls a tool of a set.
pub(crate) async fn call(set: &ToolSet, name: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
    set.call(&ToolCall::new("call_1", name, arguments.to_string()), &ToolContext::new()).await
}

/// Polls the condition until it is true, for at most two minutes.
pub(crate) async fn wait_until(description: &str, condition: impl AsyncFn() -> bool) {
    for _ in 0..6000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("timed out waiting until {description}");
}

pub(crate) fn tool_names(set: &ToolSet) -> Vec<&str> {
    set.definitions().iter().map(tool_core::model::ToolDefinition::name).collect()
}
