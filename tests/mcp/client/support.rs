//! A server whose every word is written by the test, in this process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tool_core::{ToolCall, ToolContext, ToolError, ToolOutput, ToolSet};
use tool_mcp::McpServer;

/// What the server answers to a request.
pub(crate) enum Reply {
    /// As a server would.
    Usual,
    Result(Value),
    Error(i64, &'static str),
    /// These bytes, and a line break.
    Raw(String),
    /// Nothing, for ever.
    Nothing,
    /// It closes the connection.
    End,
}

/// The server's end of a connection.
#[derive(Clone)]
pub(crate) struct Talk {
    out: UnboundedSender<Option<Vec<u8>>>,
    /// The number of the connection, from 1.
    pub(crate) connection: usize,
}

impl Talk {
    pub(crate) fn notify(&self, method: &str, params: Value) {
        self.raw(json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    pub(crate) fn raw(&self, line: impl Into<Vec<u8>>) {
        let mut line = line.into();
        line.push(b'\n');
        let _ = self.out.send(Some(line));
    }
}

/// All that servers were told.
#[derive(Clone, Default)]
pub(crate) struct Heard(Arc<Mutex<Vec<Value>>>);

impl Heard {
    pub(crate) fn methods(&self) -> Vec<String> {
        let heard = self.0.lock().unwrap();
        heard.iter().map(|message| message["method"].as_str().unwrap_or("answer").to_owned()).collect()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.methods().iter().filter(|heard| *heard == method).count()
    }

    pub(crate) fn find(&self, method: &str) -> Option<Value> {
        self.0.lock().unwrap().iter().find(|message| message["method"] == method).cloned()
    }

    /// What came that has no method: the answers of the client.
    pub(crate) fn answers(&self) -> Vec<Value> {
        self.0.lock().unwrap().iter().filter(|message| message.get("method").is_none()).cloned().collect()
    }
}

/// The usual answer to the handshake.
pub(crate) fn initialized() -> Value {
    json!({
        "protocolVersion": "2025-06-18",
        "capabilities": { "tools": { "listChanged": true }, "logging": {} },
        "serverInfo": { "name": "raw", "version": "1.0" },
    })
}

/// A tool as servers list them.
pub(crate) fn tool(name: &str) -> Value {
    json!({
        "name": name,
        "description": format!("Does {name}"),
        "inputSchema": { "type": "object", "properties": { "text": { "type": "string" } } },
        "annotations": { "readOnlyHint": true },
    })
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

/// A server that answers so to each request: usually it has the tool `echo`.
pub(crate) fn raw(
    answer: impl Fn(&Talk, &str, &Value) -> Reply + Send + Sync + 'static,
) -> (McpServer, Heard) {
    let (heard, answer, connections) = (Heard::default(), Arc::new(answer), AtomicUsize::new(0));
    let log = heard.clone();
    let server = McpServer::connector("raw", move || {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let connection = connections.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::spawn(serve(reader, writer, connection, Arc::clone(&answer), log.clone()));
        std::future::ready(Ok(tokio::io::split(near)))
    });
    (server.timeout(Duration::from_secs(20)), heard)
}

async fn serve(
    reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Send + Unpin + 'static,
    connection: usize,
    answer: Arc<impl Fn(&Talk, &str, &Value) -> Reply>,
    heard: Heard,
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
    let talk = Talk { out, connection };
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        heard.0.lock().unwrap().push(message.clone());
        let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else { continue };
        let body = match answer(&talk, method, &message) {
            Reply::Usual => match method {
                "initialize" => ("result", initialized()),
                "tools/list" => ("result", json!({ "tools": [tool("echo")] })),
                _ => ("result", text(message["params"]["arguments"]["text"].as_str().unwrap_or_default())),
            },
            Reply::Result(result) => ("result", result),
            Reply::Error(code, message) => ("error", json!({ "code": code, "message": message })),
            Reply::Raw(line) => {
                talk.raw(line);
                continue;
            }
            Reply::Nothing => continue,
            Reply::End => {
                let _ = talk.out.send(None);
                break;
            }
        };
        let mut message = json!({ "jsonrpc": "2.0", "id": id });
        message[body.0] = body.1;
        talk.raw(message.to_string());
    }
    drop(talk);
    let _ = writing.await;
}

/// Calls a tool of a set.
pub(crate) async fn call(set: &ToolSet, name: &str, arguments: Value) -> Result<ToolOutput, ToolError> {
    set.call(&ToolCall::new("call_1", name, arguments.to_string()), &ToolContext::new()).await
}

/// Looks again and again until it is so, as a server takes its time.
pub(crate) async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    for _ in 0..1000 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never came to be: {what}");
}

pub(crate) fn names(set: &ToolSet) -> Vec<&str> {
    set.definitions().iter().map(tool_core::ToolDefinition::name).collect()
}
