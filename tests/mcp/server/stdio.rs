//! A program that serves over standard input and output: this very one, started for it.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tool_core::{tool, tools};
use tool_mcp::server::serve_stdio;

/// The path of [`serves`].
const SERVES: &str = "server::stdio::serves";

#[tool("Prints, as no tool should, and lets a child process print and read")]
fn prints() -> String {
    println!("not of the protocol");
    let status =
        std::process::Command::new("sh").args(["-c", "echo of a child; read line"]).status().unwrap();
    // There was nothing to read.
    format!("{}", status.success())
}

#[test]
#[ignore = "needs a client: the other test starts it as a process of its own"]
fn serves() {
    // The harness leaves its line open.
    println!();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve_stdio(tools![prints])).unwrap();
    println!("and so is this");
}

async fn say(input: &mut ChildStdin, message: Value) {
    input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_but_the_protocol_is_on_standard_output_and_it_ends_with_its_input() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", SERVES, "--nocapture", "--test-threads=1"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    say(
        &mut input,
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "tests", "version": "1" },
        } }),
    )
    .await;
    say(&mut input, json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    for id in 2..5 {
        say(
            &mut input,
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "prints" } }),
        )
        .await;
    }
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line =
        async || tokio::time::timeout(Duration::from_secs(60), lines.next_line()).await.unwrap().unwrap();
    let mut answers = Vec::new();
    while answers.len() < 4 {
        let line = line().await.unwrap();
        match serde_json::from_str::<Value>(&line) {
            Ok(answer) => answers.push(answer),
            // What the test program says before it serves.
            Err(_) => assert!(answers.is_empty(), "{line}"),
        }
    }
    drop(input);
    assert_eq!(line().await, None);
    let output = tokio::time::timeout(Duration::from_secs(60), child.wait_with_output()).await;
    let output = output.unwrap().unwrap();
    assert!(output.status.success());
    answers.sort_by_key(|answer| answer["id"].as_u64());
    for answer in &answers[1..] {
        assert_eq!(answer["result"]["content"][0]["text"], "false", "{answer}");
    }
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("not of the protocol") && printed.contains("of a child"), "{printed}");
}
