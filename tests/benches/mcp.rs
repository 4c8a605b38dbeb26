//! Cost of importing the tools of a server: listing 1000 tools and running an agent once, compared with listing them with
//! the SDK alone.
//!
//! Both use the same server over a pipe in this process. Rounds alternate, and their medians are compared; the bench fails
//! if the ratio exceeds its bound.

use std::time::{Duration, Instant};

use rmcp::ServiceExt;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tool_core::Agent;
use tool_core::testing::ScriptedModel;
use tool_mcp::McpServer;

const TOOLS: usize = 1000;
const ROUNDS: usize = 41;
const BOUND: f64 = 1.3;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let (mut bare, mut imported) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (one, other) = (with_the_sdk().await, with_an_agent().await);
        // The first round is a warm-up.
        if round > 0 {
            bare.push(one);
            imported.push(other);
        }
    }
    let (bare, imported) = (median(bare), median(imported));
    let ratio = imported.as_secs_f64() / bare.as_secs_f64();
    println!(
        "{TOOLS} tools: the SDK alone {bare:.2?}, imported and asked once {imported:.2?}: {ratio:.2} times (at most {BOUND})"
    );
    assert!(ratio <= BOUND, "importing costs too much");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

async fn with_the_sdk() -> Duration {
    let begun = Instant::now();
    let client = ().serve(server()).await.unwrap();
    let tools = client.list_all_tools().await.unwrap();
    let time = begun.elapsed();
    assert_eq!(tools.len(), TOOLS);
    time
}

async fn with_an_agent() -> Duration {
    let begun = Instant::now();
    let server = McpServer::connector("bench", || std::future::ready(Ok(tokio::io::split(server()))));
    let tools = server.connect().await.unwrap();
    let model = ScriptedModel::new().expects(|request| request.tools().len() == TOOLS).says("Hello.");
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let answer = agent.ask("Hello").await.unwrap();
    let time = begun.elapsed();
    assert_eq!(answer.text(), "Hello.");
    time
}

/// Starts a server with prepared answers, so that only the client is measured.
fn server() -> DuplexStream {
    static LIST: std::sync::LazyLock<String> = std::sync::LazyLock::new(list);
    let (near, far) = tokio::io::duplex(1 << 20);
    tokio::spawn(async move {
        let (reader, mut writer) = tokio::io::split(far);
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let message: Value = serde_json::from_str(&line).unwrap();
            let Some(id) = message.get("id") else { continue };
            let result = match message["method"].as_str() {
                Some("initialize") => {
                    r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#
                }
                _ => &**LIST,
            };
            let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
            writer.write_all(answer.as_bytes()).await.unwrap();
            writer.write_all(b"\n").await.unwrap();
        }
    });
    near
}

fn list() -> String {
    let tool = |number: usize| {
        json!({
            "name": format!("search_issues_{number}"),
            "title": "Search issues",
            "description": "Searches the issues of a repository and gives those that match best, newest first.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "repository": { "type": "string", "description": "Owner and name, such as `rust-lang/rust`" },
                    "words": { "type": "string", "description": "What to look for", "minLength": 1 },
                    "state": { "type": "string", "enum": ["open", "closed", "all"], "default": "open" },
                    "labels": { "type": "array", "items": { "type": "string" } },
                    "limit": { "type": "integer", "minimum": 1, "maximum": 100 },
                },
                "required": ["repository", "words"],
                "additionalProperties": false,
            },
            "annotations": { "readOnlyHint": true, "openWorldHint": true },
        })
    };
    json!({ "tools": (0..TOOLS).map(tool).collect::<Vec<_>>() }).to_string()
}
