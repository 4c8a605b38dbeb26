//! Servers of the older revisions, of the newest one, and of both.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::asking::{discovered, listed};
use super::support::{
    Received, Reply, ServerConnection, call, initialize_result, scripted_server, text_result, tool,
};
use super::transports::{Requests, default_response, http_server, response, status};
use tool_mcp::McpServer;

/// Returns a result of the newest revision.
fn modern(method: &str) -> Value {
    match method {
        "server/discover" => discovered(json!({ "tools": {} })),
        "tools/list" => listed(),
        _ => json!({ "resultType": "complete", "content": [{ "type": "text", "text": "called" }] }),
    }
}

async fn call_book(server: McpServer) -> String {
    let tools = server.connect().await.unwrap().tools().await.unwrap();
    call(&tools, "book", json!({})).await.unwrap().to_string()
}

/// Calls a tool of the server, and returns the requests of both handshakes that it got.
async fn handshakes((server, received): (McpServer, Received)) -> [usize; 2] {
    assert_eq!(call_book(server.record_messages()).await, "called");
    let declared = received.find("tools/call").unwrap()["params"]["_meta"].clone();
    let is_modern = declared["io.modelcontextprotocol/protocolVersion"] == "2026-07-28";
    assert_eq!(is_modern, received.count("initialize") == 0, "{declared}");
    if let Some(initialize) = received.find("initialize") {
        assert_eq!(initialize["params"]["protocolVersion"], "2025-11-25");
        assert_eq!(initialize["params"]["capabilities"], json!({}));
    }
    ["server/discover", "initialize"].map(|method| received.count(method))
}

/// Both revisions on one connection: the newest one is used.
#[tokio::test]
async fn a_server_of_both_eras_is_used_with_the_newest_revision() {
    let dual = scripted_server(|_, method, _| {
        Reply::Result(if method == "initialize" { initialize_result() } else { modern(method) })
    });
    assert_eq!(handshakes(dual).await, [1, 0]);
    let newest = scripted_server(|_, method, _| match method {
        "initialize" => Reply::Error(-32601, "Method not found"),
        _ => Reply::Result(modern(method)),
    });
    assert_eq!(handshakes(newest).await, [1, 0]);
}

/// A server of both eras whose tools ask in the older way alone can do so, and one that has no older revision is used with its own.
#[tokio::test]
async fn the_author_selects_the_older_revision() {
    let (server, received) = scripted_server(|_, method, _| match method {
        "server/discover" => Reply::Result(modern(method)),
        "initialize" => Reply::Result(initialize_result()),
        "tools/list" => Reply::Result(json!({ "tools": [tool("book")] })),
        _ => Reply::Result(text_result("called")),
    });
    assert_eq!(handshakes((server.older_revision(), received)).await, [0, 1]);
    let (newest, _) = scripted_server(|_, method, _| match method {
        "initialize" => Reply::Error(-32601, "Method not found"),
        _ => Reply::Result(modern(method)),
    });
    assert_eq!(call_book(newest.older_revision()).await, "called");
}

/// Quotes the messages of FastMCP 4.2.3 and of the Python SDK 2.3.0.
#[tokio::test]
async fn a_question_that_needs_the_older_revision_names_it() {
    let failed = "elicitation via server-initiated requests is unavailable on 2026-07-28 connections.";
    let refused = "Cannot send 'elicitation/create': this transport context has no back-channel for server-initiated requests.";
    for (text, is_result) in [(failed, true), (refused, false)] {
        let answer = move || match is_result {
            true => {
                let mut result = modern("tools/call");
                (result["isError"], result["content"][0]["text"]) = (true.into(), text.into());
                Reply::Result(result)
            }
            false => Reply::Error(-32600, text),
        };
        let (server, _) = scripted_server(move |_, method, _| match method {
            "initialize" => Reply::Result(initialize_result()),
            "tools/call" => answer(),
            _ => Reply::Result(modern(method)),
        });
        let tools = server.clone().connect().await.unwrap().tools().await.unwrap();
        let error = call(&tools, "book", json!({})).await.unwrap_err();
        let expected = format!(
            "the MCP server `raw` did not answer the call of `book`, because it asks the user in the way of older revisions: {text}; \
             connect to it with `McpServer::older_revision` and `McpServer::question_timeout`"
        );
        assert_eq!(error.to_string(), expected);
        // It is of another kind where the server can ask.
        let tools = server.older_revision().connect().await.unwrap().tools().await.unwrap();
        let error = call(&tools, "book", json!({})).await.unwrap_err().to_string();
        assert!(error.contains(text) && !error.contains("McpServer::older_revision"), "{error}");
    }
}

/// Answers as a server that knows nothing of `server/discover`, or what this function returns for it.
fn older(discover: impl Fn(&ServerConnection) -> Reply + Send + Sync + 'static) -> (McpServer, Received) {
    scripted_server(move |connection, method, _| match method {
        "server/discover" => discover(connection),
        "initialize" => Reply::Result(initialize_result()),
        "tools/list" => Reply::Result(json!({ "tools": [tool("book")] })),
        _ => Reply::Result(text_result("called")),
    })
}

#[tokio::test(start_paused = true)]
async fn an_older_server_is_initialized() {
    // On the same connection, if it answers or is silent; on another one if it ends or answers nonsense.
    for (discover, expected) in [
        (
            Box::new(|_: &ServerConnection| Reply::Error(-32601, "Method not found"))
                as Box<dyn Fn(&_) -> _ + Send + Sync>,
            [1, 1],
        ),
        (
            Box::new(|_: &_| Reply::Error(-32602, "Received request before initialization was complete")),
            [1, 1],
        ),
        (Box::new(|_: &_| Reply::NoResponse), [1, 1]),
        (Box::new(|_: &_| Reply::Disconnect), [1, 1]),
        (Box::new(|_: &_| Reply::Result(json!({}))), [1, 1]),
    ] {
        assert_eq!(handshakes(older(discover)).await, expected);
    }
}

/// A server that starts slowly reads both requests of the handshake, and answers both.
#[tokio::test(start_paused = true)]
async fn a_late_answer_is_not_that_of_the_next_request() {
    let probe = Mutex::new(Value::Null);
    let late = scripted_server(move |connection, method, message| match method {
        "server/discover" => {
            *probe.lock().unwrap() = message["id"].clone();
            Reply::NoResponse
        }
        "initialize" => {
            let error = json!({ "code": -32601, "message": "Method not found" });
            let id = probe.lock().unwrap().clone();
            connection.send_line(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string());
            Reply::Result(initialize_result())
        }
        "tools/list" => Reply::Result(json!({ "tools": [tool("book")] })),
        _ => Reply::Result(text_result("called")),
    });
    assert_eq!(handshakes(late).await, [1, 1]);
}

/// What an older server was is known when it is connected again.
#[tokio::test]
async fn an_older_server_is_probed_once() {
    let (server, received) = scripted_server(|connection, method, _| match method {
        "tools/call" if connection.number == 1 => Reply::Disconnect,
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({ "text": "a" })).await.unwrap().to_string(), "a");
    assert_eq!((received.count("server/discover"), received.count("initialize")), (1, 2));
}

/// Older servers over HTTP reject a request without a session in different ways.
#[tokio::test]
async fn an_older_server_over_http_is_initialized() {
    let count = |requests: &Requests| ["server/discover", "initialize"].map(|method| requests.count(method));
    for rejection in [
        (
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#,
        ),
        (
            400,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ID"}}"#,
        ),
        (404, "Not found"),
        (405, ""),
        (422, "Unexpected message, expect initialize request"),
        (500, ""),
        (202, ""),
    ] {
        let (url, requests) = http_server(move |method, message, _| match method {
            "server/discover" => {
                let mut response = response("application/json", rejection.1);
                *response.status_mut() = rejection.0.try_into().unwrap();
                response
            }
            _ => default_response(method, message),
        })
        .await;
        let tools = McpServer::http(url).trusted().connect().await.unwrap().tools().await.unwrap();
        assert_eq!(call(&tools, "echo", json!({})).await.unwrap().to_string(), "called", "{rejection:?}");
        assert_eq!(count(&requests), [1, 1], "{rejection:?}");
    }
    // An error of the newest revision, and a refusal, say nothing about older ones.
    for rejection in [401, 403] {
        let (url, requests) = http_server(move |_, _, _| status(rejection)).await;
        McpServer::http(url).connect().await.unwrap_err();
        assert_eq!(requests.count("tools/list"), 0);
    }
}
