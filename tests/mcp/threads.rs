//! The threads of the SDK end with its last user.

#![cfg(target_os = "linux")]

use serde_json::json;
use tool_core::{tool, tools};
use tool_mcp::McpServer;
use tool_mcp::server::Server;

use crate::client::support::{call, scripted_server, wait_until};

#[tool("Echoes")]
fn echo(text: String) -> String {
    text
}

/// Returns the number of threads of the SDK.
fn threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread can end while the folder is read.
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")).ok());
    names.filter(|name| name.trim_end() == "tool-mcp").count()
}

async fn wait_until_there_are_none() {
    wait_until("the threads have ended", async || threads() == 0).await;
}

#[tokio::test]
#[ignore = "needs a process without other connections; the other test starts it"]
async fn uses_threads_in_the_child_process() {
    assert_eq!(threads(), 0);
    let server = Server::new(tools![echo]).spawn("127.0.0.1:0").await.unwrap();
    let own = std::thread::available_parallelism().unwrap().get().min(4);
    wait_until("the threads have their name", async || threads() == own).await;
    let tools = McpServer::http(server.url()).connect().await.unwrap();
    let output = call(&tools.tools().await.unwrap(), "echo", json!({ "text": "a" })).await.unwrap();
    assert_eq!(output.to_string(), "a");
    let (scripted, _) = scripted_server(|_, _, _| crate::client::support::Reply::Default);
    let more = scripted.connect().await.unwrap();
    assert_eq!(threads(), own);
    drop(tools);
    server.stop().await.unwrap();
    call(&more.tools().await.unwrap(), "echo", json!({ "text": "a" })).await.unwrap();
    drop(more);
    wait_until_there_are_none().await;

    // A session that its client has left ends with the router.
    let server = Server::new(tools![echo]).spawn("127.0.0.1:0").await.unwrap();
    let (name, url) = ("mcp-session-id", server.url());
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "raw", "version": "1" },
    } });
    let request = crate::server::client::http()
        .post(url)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .body(initialize.to_string());
    let response = request.send().await.unwrap();
    assert!(response.headers().contains_key(name));
    wait_until("the threads have their name", async || threads() == own).await;
    drop((response, server));
    wait_until_there_are_none().await;

    let recorded = Server::new(tools![echo]).record_messages().spawn("127.0.0.1:0").await.unwrap();
    let tools = McpServer::http(recorded.url()).record_messages().connect().await.unwrap();
    call(&tools.tools().await.unwrap(), "echo", json!({ "text": "a" })).await.unwrap();
    assert_eq!(threads(), 0);
}

#[tokio::test]
async fn threads_end_with_the_last_connection_and_server() {
    let child = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "threads::uses_threads_in_the_child_process", "--ignored", "--nocapture"])
        .kill_on_drop(true)
        .output();
    let output = child.await.unwrap();
    let printed = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&printed));
    assert!(String::from_utf8_lossy(&printed).contains("1 passed"));
}
