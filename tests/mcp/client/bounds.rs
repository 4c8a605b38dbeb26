//! Bounds of a listing as a whole, and of names.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tool_mcp::McpErrorKind;

use super::support::{Reply, call, scripted_server, tool, tool_names};

fn page_of(number: usize, tools: Value) -> Value {
    json!({ "tools": tools, "nextCursor": number.to_string() })
}

#[tokio::test(start_paused = true)]
async fn a_listing_has_one_deadline() {
    let pages = AtomicUsize::new(0);
    let (server, _) = scripted_server(move |connection, method, request| match method {
        "tools/list" => {
            let page = page_of(pages.fetch_add(1, Ordering::SeqCst), json!([]));
            let (connection, id) = (connection.clone(), request["id"].clone());
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                connection.send_line(json!({ "jsonrpc": "2.0", "id": id, "result": page }).to_string());
            });
            Reply::NoResponse
        }
        _ => Reply::Default,
    });
    let server = server.record_messages().timeout(Duration::from_millis(400));
    let error = server.connect().await.unwrap_err();
    assert_eq!(error.kind(), McpErrorKind::Timeout, "{error}");
}

#[tokio::test]
async fn a_listing_has_one_budget_of_bytes() {
    let describe = |tool: &mut Value| tool["description"] = "x".repeat(2500).into();
    let mark = |page: &mut Value| page["_meta"] = json!({ "x": "x".repeat(2500) });
    for is_in_tools in [true, false] {
        let pages = AtomicUsize::new(0);
        let (server, received) = scripted_server(move |_, method, _| match method {
            "tools/list" => {
                let number = pages.fetch_add(1, Ordering::SeqCst);
                let mut tool = tool(&format!("tool_{number}"));
                if is_in_tools {
                    describe(&mut tool);
                }
                let mut page = page_of(number, json!([tool]));
                if !is_in_tools {
                    mark(&mut page);
                }
                Reply::Result(page)
            }
            _ => Reply::Default,
        });
        let error = server.max_message_bytes(4000).connect().await.unwrap_err();
        assert_eq!(error.kind(), McpErrorKind::InvalidResponse, "{error}");
        assert!(error.to_string().contains("lists its tools with more than 4000 bytes"), "{error}");
        assert_eq!(received.count("tools/list"), 2);
    }
}

#[tokio::test]
async fn skips_tools_whose_name_is_too_long() {
    let long = "x".repeat(1_000_000);
    let (server, _) = scripted_server(move |_, method, _| match method {
        "tools/list" => {
            Reply::Result(json!({ "tools": [tool(&long), tool(&"y".repeat(256)), tool("echo")] }))
        }
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap();
    assert_eq!(tool_names(&tools.tools().await.unwrap()).len(), 2);
    let problem = tools.problems().await.unwrap()[0].to_string();
    assert!(problem.ends_with("is skipped: its name is longer than 256 bytes"), "{problem}");
    assert!(problem.len() < 200, "{problem}");
    assert!(tools.listed_tools().await.unwrap().iter().all(|tool| tool.original_name().len() <= 256));
}

#[tokio::test(start_paused = true)]
async fn a_name_is_bounded_and_printable_in_every_error() {
    let name = format!("a\n{}", "b".repeat(250));
    let listed = name.clone();
    let replies = [|| Reply::Disconnect, || Reply::NoResponse, || Reply::Error(-32602, "no")];
    let calls = replies.map(async |reply| {
        let listed = listed.clone();
        let (server, _) = scripted_server(move |_, method, _| match method {
            "tools/list" => Reply::Result(json!({ "tools": [tool(&listed)] })),
            "tools/call" => reply(),
            _ => Reply::Default,
        });
        let set = server.record_messages().connect().await.unwrap().tools().await.unwrap();
        let error = call(&set, tool_names(&set)[0], json!({})).await.unwrap_err().to_string();
        assert!(error.contains("`a bbb") && error.len() < 400 && !error.contains('\n'), "{error}");
    });
    join_all(calls).await;
}

#[tokio::test]
async fn problems_control_no_terminal() {
    let (server, _) = scripted_server(|_, method, _| match method {
        "tools/list" => {
            let mut tool = tool("a");
            tool["inputSchema"]["type"] = "\u{9b}2J\u{202e}".into();
            Reply::Result(json!({ "tools": [tool] }))
        }
        _ => Reply::Default,
    });
    let problems = server.connect().await.unwrap().problems().await.unwrap();
    let expected =
        r#"the tool `a` is skipped: its schema is not a valid JSON Schema: `type` is "\u{9b}2J\u{202e}""#;
    assert_eq!(problems[0].to_string(), expected);
}
