//! Serving over standard input and output, in a child process that runs this test binary.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tool_core::{tool, tools};
use tool_mcp::server::serve_stdio;

#[tool("Prints, which tools must not do, and starts a child process that prints and reads")]
fn prints() -> String {
    println!("not of the protocol");
    let status =
        std::process::Command::new("sh").args(["-c", "echo of a child; read line"]).status().unwrap();
    // `false`, because there is nothing to read.
    format!("{}", status.success())
}

/// The child process.
#[test]
#[ignore = "serves until its input ends; the other test starts it"]
fn serves_in_the_child_process() {
    // Ends the line that the test harness has started.
    println!();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(serve_stdio(tools![prints])).unwrap();
    println!("and so is this");
}

async fn send(input: &mut ChildStdin, message: Value) {
    input.write_all(format!("{message}\n").as_bytes()).await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn standard_output_has_only_the_protocol_and_the_server_ends_with_its_input() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "server::stdio::serves_in_the_child_process",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    send(
        &mut input,
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "tests", "version": "1" },
        } }),
    )
    .await;
    send(&mut input, json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    for id in 2..5 {
        send(
            &mut input,
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "prints" } }),
        )
        .await;
    }
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line =
        async || tokio::time::timeout(Duration::from_secs(120), lines.next_line()).await.unwrap().unwrap();
    let mut answers = Vec::new();
    while answers.len() < 4 {
        let line = line().await.unwrap();
        match serde_json::from_str::<Value>(&line) {
            Ok(answer) => answers.push(answer),
            // Output of the test harness before the server starts.
            Err(_) => assert!(answers.is_empty(), "{line}"),
        }
    }
    drop(input);
    assert_eq!(line().await, None);
    let output = tokio::time::timeout(Duration::from_secs(120), child.wait_with_output()).await;
    let output = output.unwrap().unwrap();
    assert!(output.status.success());
    answers.sort_by_key(|answer| answer["id"].as_u64());
    for answer in &answers[1..] {
        assert_eq!(answer["result"]["content"][0]["text"], "false", "{answer}");
    }
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("not of the protocol") && printed.contains("of a child"), "{printed}");
}
