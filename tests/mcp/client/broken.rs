//! Misbehaving servers: clear and timely errors, bounded memory, and an unaffected rest of the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use serde_json::json;
use tests::support::sampling::size;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ToolError};
use tool_mcp::{McpError, McpErrorKind, McpServer};

use super::support::{
    Received, Reply, ServerConnection, call, scripted_server, text_result, tool, tool_names,
    untrusted_server, wait_until,
};

const LIMIT: Duration = Duration::from_secs(1);

fn failure(error: &ToolError) -> McpError {
    error.failure().unwrap().downcast_ref::<McpError>().unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_response_times_out() {
    let requests = [("the handshake", "initialize"), ("the request for its tools", "tools/list")];
    let connections = requests.map(async |(request, silent)| {
        let (server, _) = scripted_server(
            move |_, method, _| if method == silent { Reply::NoResponse } else { Reply::Default },
        );
        let server = server.record_messages().connect_timeout(LIMIT).timeout(LIMIT);
        let error = server.connect().await.unwrap_err();
        assert_eq!(error.kind(), McpErrorKind::Timeout, "{error}");
        assert_eq!(error.to_string(), format!("the MCP server `raw` did not respond to {request} within 1s"));
    });
    let calling = async {
        let (server, received) = scripted_server(|_, method, _| match method {
            "tools/call" => Reply::NoResponse,
            _ => Reply::Default,
        });
        let server = server.record_messages().timeout(LIMIT);
        let set = server.connect().await.unwrap().tools().await.unwrap();
        let error = call(&set, "echo", json!({})).await.unwrap_err();
        assert_eq!(error.to_string(), "the MCP server `raw` did not respond to the call of `echo` within 1s");
        assert_eq!(failure(&error).kind(), McpErrorKind::Timeout);
        // The call is cancelled at the server.
        wait_until("the call is cancelled", async || received.count("notifications/cancelled") == 1).await;
        let cancelled = received.find("notifications/cancelled").unwrap();
        assert_eq!(cancelled["params"]["requestId"], received.find("tools/call").unwrap()["id"]);
    };
    join(join_all(connections), calling).await;
}

#[tokio::test(start_paused = true)]
async fn progress_extends_the_timeout_of_a_call() {
    let (server, _) = scripted_server(|connection, method, request| match method {
        "tools/call" => {
            let token = request["params"]["_meta"]["progressToken"].clone();
            let (id, out) = (request["id"].clone(), connection.clone());
            tokio::spawn(async move {
                for step in 0..4 {
                    tokio::time::sleep(LIMIT * 9 / 10).await;
                    out.notify("notifications/progress", json!({ "progressToken": token, "progress": step }));
                }
                out.send_line(
                    json!({ "jsonrpc": "2.0", "id": id, "result": text_result("at last") }).to_string(),
                );
            });
            Reply::NoResponse
        }
        _ => Reply::Default,
    });
    let server = server.record_messages().timeout(LIMIT);
    let set = server.connect().await.unwrap().tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "at last");
}

/// The error does not wait for the timeout.
#[tokio::test]
async fn an_invalid_response_fails_immediately() {
    let deep = format!("{}1{}", "[".repeat(1000), "]".repeat(1000));
    let table: [(String, &str); 6] = [
        (r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[}}"#.into(), "it is not a valid protocol message"),
        (r#"{"jsonrpc":"1.0","id":ID,"answer":7}"#.into(), "it is not a valid protocol message"),
        (r#"{"jsonrpc":"2.0","id":ID,"result":7}"#.into(), "with an unexpected result"),
        (r#"{"jsonrpc":"2.0","id":ID,"result":{"content":"no"}}"#.into(), "with an unexpected result"),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":ID,"result":{{"content":[{{"type":"text","text":"{}"}}]}}}}"#,
                "x".repeat(17 << 20)
            ),
            "it is larger than 16777216 bytes",
        ),
        (
            format!(
                r#"{{"result":{{"content":[{{"type":"text","text":"{}"}}]}},"jsonrpc":"2.0","id":ID}}"#,
                "x".repeat(17 << 20)
            ),
            "it is larger than 16777216 bytes",
        ),
    ];
    for (response, expected) in table {
        let (server, _) = scripted_server(move |_, method, request| match method {
            "tools/call" if request["params"]["arguments"]["text"] == "bad" => {
                Reply::Raw(response.replace("ID", &request["id"].to_string()))
            }
            _ => Reply::Default,
        });
        let set = server.connect().await.unwrap().tools().await.unwrap();
        let error = call(&set, "echo", json!({ "text": "bad" })).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(failure(&error).kind(), McpErrorKind::InvalidResponse);
        assert!(error.to_string().len() < 300, "{error}");
        // The connection still works.
        assert_eq!(call(&set, "echo", json!({ "text": "good" })).await.unwrap().to_string(), "good");
    }
    // Values that are nested too deeply are removed, and the rest of the response is used.
    let (server, _) = scripted_server(move |_, method, request| match method {
        "tools/call" => Reply::Raw(format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"text","text":"shallow"}}],"structuredContent":{deep}}}}}"#,
            request["id"]
        )),
        _ => Reply::Default,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "shallow");
}

#[tokio::test]
async fn ignores_invalid_messages_between_valid_ones() {
    let (server, _) = scripted_server(|connection, method, _| {
        connection.send_line("Listening on stdio...");
        connection.send_line(b"\xff\xfe\x00".to_vec());
        connection.send_line(r#"{"jsonrpc":"2.0","id":"unknown","result":{}}"#);
        connection.send_line(r#"{"jsonrpc":"2.0","method":"notifications/unheard_of"}"#);
        connection.send_line("[1,2,3]");
        // More than a response can have.
        if method == "tools/call" {
            connection.send_line("x".repeat(17 << 20));
        }
        if method == "tools/call" { Reply::Result(text_result("found")) } else { Reply::Default }
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "found");
}

#[tokio::test]
async fn reports_output_that_is_not_the_protocol() {
    let (server, _) = scripted_server(|connection, _, _| {
        connection.send_line("usage: server [--help]");
        Reply::Disconnect
    });
    let error = server.connect().await.unwrap_err().to_string();
    let expected = "the MCP server `raw` disconnected before it was initialized; 1 line of its output is not a valid protocol message";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn rejects_a_response_beyond_the_configured_limit() {
    let (server, _) = scripted_server(|_, method, _| match method {
        "tools/call" => Reply::Result(text_result(&"x".repeat(5000))),
        _ => Reply::Default,
    });
    let set = server.max_message_bytes(4000).connect().await.unwrap().tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("larger than 4000 bytes"), "{error}");
}

/// A server that disconnects during a call, on the first `crashes` connections.
fn crashing_server(crashes: usize, is_read_only: bool) -> (McpServer, Received) {
    scripted_server(move |connection: &ServerConnection, method, _| match method {
        "tools/list" => {
            let mut tool = tool("echo");
            tool["annotations"] = json!({ "readOnlyHint": is_read_only, "destructiveHint": false });
            Reply::Result(json!({ "tools": [tool] }))
        }
        "tools/call" if connection.number <= crashes => Reply::Disconnect,
        "tools/call" => Reply::Result(text_result("alive")),
        _ => Reply::Default,
    })
}

#[tokio::test]
async fn a_call_in_flight_fails_when_the_connection_is_lost() {
    let (server, received) = crashing_server(1, false);
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert_eq!(failure(&error).kind(), McpErrorKind::ConnectionLost);
    assert!(error.to_string().contains("may or may not"), "{error}");
    // Until the reconnection, calls fail immediately and the tools are still offered.
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert_eq!(failure(&error).kind(), McpErrorKind::Unreachable, "{error}");
    assert!(tools.last_error().is_some() && tools.info().is_none());
    assert_eq!(tool_names(&tools.tools().await.unwrap()), ["echo"]);
    wait_until("the server is connected again", async || tools.last_error().is_none()).await;
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "alive");
    assert_eq!(received.count("tools/call"), 2, "the call is not repeated");
    // The tools are requested again; they did not change, so the set is the same.
    let again = tools.tools().await.unwrap();
    assert!(std::ptr::eq(set.get("echo").unwrap(), again.get("echo").unwrap()));
    assert_eq!(received.count("tools/list"), 2);
}

#[tokio::test]
async fn a_read_only_call_is_repeated_once() {
    let (server, received) = crashing_server(1, true);
    let set = server.connect().await.unwrap().tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "alive");
    assert_eq!(received.count("tools/call"), 2);

    let (server, received) = crashing_server(9, true);
    let set = server.connect().await.unwrap().tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert_eq!(failure(&error).kind(), McpErrorKind::ConnectionLost, "{error}");
    assert_eq!(received.count("tools/call"), 2, "the call is repeated only once");
}

/// The server's statement that the tool is read-only may be false.
#[tokio::test]
async fn a_call_of_an_untrusted_server_is_not_repeated() {
    let (server, received) = untrusted_server(|connection, method, _| match method {
        "tools/call" if connection.number == 1 => Reply::Disconnect,
        _ => Reply::Default,
    });
    let tools = server.approved(["echo"]).connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert_eq!(failure(&error).kind(), McpErrorKind::ConnectionLost, "{error}");
    wait_until("the server is connected again", async || tools.last_error().is_none()).await;
    assert_eq!(received.count("tools/call"), 1);
}

#[tokio::test]
async fn reconnects_with_increasing_delays_until_dropped() {
    let (in_use, started_at) = (Arc::new(()), Instant::now());
    let is_used = Arc::downgrade(&in_use);
    let (server, received) = scripted_server(move |connection, method, _| {
        let _in_use = &in_use;
        match method {
            "initialize" if connection.number > 1 => Reply::Disconnect,
            "tools/call" => Reply::Disconnect,
            _ => Reply::Default,
        }
    });
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let calling = tokio::spawn({
        let set = set.clone();
        async move { call(&set, "echo", json!({})).await }
    });
    wait_until("the call has arrived", async || received.count("tools/call") == 1).await;
    calling.abort();
    wait_until("three attempts were made", async || received.count("initialize") >= 4).await;
    // Between them are delays of at least 150 and 300 ms.
    assert!(started_at.elapsed() >= Duration::from_millis(450), "{:?}", started_at.elapsed());
    let error = tools.last_error().unwrap().to_string();
    assert!(error.contains("disconnected before it was initialized"), "{error}");
    // No attempts are made after the tools were dropped.
    drop((tools, set));
    wait_until("the server is dropped", async || is_used.upgrade().is_none()).await;
}

#[tokio::test]
async fn an_agent_runs_without_an_optional_server() {
    let missing = || McpServer::stdio("no-such-program-at-all");
    let error = missing().connect().await.unwrap_err();
    assert_eq!(error.kind(), McpErrorKind::Unreachable, "{error}");
    assert!(
        error.to_string().starts_with("the MCP server `no-such-program-at-all` cannot be started"),
        "{error}"
    );

    let optional = missing().optional().connect().await.unwrap();
    assert!(optional.tools().await.unwrap().is_empty());
    assert!(optional.last_error().unwrap().to_string().contains("cannot be started"));
    let (alive, _) = scripted_server(|_, _, _| Reply::Default);
    let model = ScriptedModel::new().calls("echo", r#"{"text": "hello"}"#).says("Done.");
    let alive = alive.connect().await.unwrap();
    let agent = Agent::builder(model).tool_provider(optional).tool_provider(alive).build().unwrap();
    let answer = agent.ask("Say hello").await.unwrap();
    assert_eq!(answer.tool_executions()[0].outcome().unwrap().to_string(), "hello");
}

#[tokio::test]
async fn a_run_continues_after_its_server_crashes() {
    let (server, _) = crashing_server(9, false);
    let model = ScriptedModel::new().calls("echo", "{}").calls("echo", "{}").says("It is down.");
    let tools = server.connect().await.unwrap();
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let answer = agent.ask("Say hello").await.unwrap();
    assert_eq!(answer.text(), "It is down.");
    let errors =
        answer.tool_executions().iter().map(|execution| failure(execution.outcome().unwrap_err()).kind());
    assert_eq!(errors.collect::<Vec<_>>(), [McpErrorKind::ConnectionLost, McpErrorKind::Unreachable]);
}

#[tokio::test]
async fn rejects_requests_for_undeclared_capabilities() {
    let (server, received) = scripted_server(|connection, method, _| {
        if method == "tools/call" {
            for (id, method) in
                ["sampling/createMessage", "elicitation/create", "roots/list"].iter().enumerate()
            {
                let params = match *method {
                    "sampling/createMessage" => json!({ "messages": [], "maxTokens": 1 }),
                    "elicitation/create" => {
                        json!({ "message": "?", "requestedSchema": { "type": "object", "properties": {} } })
                    }
                    _ => json!({}),
                };
                let id = format!("request_{id}");
                connection.send_line(
                    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
                );
            }
            connection.send_line(r#"{"jsonrpc":"2.0","id":"request_3","method":"ping"}"#);
        }
        Reply::Default
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    call(&set, "echo", json!({})).await.unwrap();
    wait_until("all requests are answered", async || received.responses().len() == 4).await;
    for response in received.responses() {
        match response["id"].as_str().unwrap() {
            "request_3" => assert!(response.get("result").is_some(), "{response}"),
            _ => assert_eq!(response["error"]["code"], -32601, "{response}"),
        }
    }
    assert_eq!(received.find("initialize").unwrap()["params"]["capabilities"], json!({}));
}

#[tokio::test]
async fn a_flood_of_notifications_causes_few_requests() {
    let floods = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&floods);
    let (server, received) = scripted_server(move |connection, method, _| {
        if method == "tools/call" {
            counter.fetch_add(1, Ordering::SeqCst);
            for _ in 0..size(1_000, 5_000) {
                connection.notify("notifications/tools/list_changed", json!({}));
                connection.notify("notifications/progress", json!({ "progressToken": 12345, "progress": 1 }));
            }
        }
        Reply::Default
    });
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    call(&set, "echo", json!({ "text": "hello" })).await.unwrap();
    tools.tools().await.unwrap();
    assert!(received.count("tools/list") <= 3);
}
