//! Servers that misbehave: a clear error in time, bounded memory, and the rest goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ToolError};
use tool_mcp::{McpError, McpServer};

use super::support::{Heard, Reply, Talk, call, names, raw, text, tool, until};

const SHORT: Duration = Duration::from_millis(300);

fn failure(error: &ToolError) -> McpError {
    error.failure().unwrap().downcast_ref::<McpError>().unwrap().clone()
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    for (what, silent) in
        [("the `initialize` request", "initialize"), ("the request for its tools", "tools/list")]
    {
        let (server, _) =
            raw(move |_, method, _| if method == silent { Reply::Nothing } else { Reply::Usual });
        let begun = Instant::now();
        let error = server.connect_timeout(SHORT).timeout(SHORT).connect().await.unwrap_err();
        assert!(error.is_timed_out(), "{error}");
        assert_eq!(error.to_string(), format!("the MCP server `raw` has not answered {what} within 300ms"));
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    let (server, heard) = raw(|_, method, _| match method {
        "tools/call" => Reply::Nothing,
        _ => Reply::Usual,
    });
    let set = server.timeout(SHORT).connect().await.unwrap().tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "the MCP server `raw` has not answered the call of `echo` within 300ms");
    assert!(failure(&error).is_timed_out());
    // The server is told that nobody waits any more.
    until("the call is cancelled", async || heard.count("notifications/cancelled") == 1).await;
    let cancelled = heard.find("notifications/cancelled").unwrap();
    assert_eq!(cancelled["params"]["requestId"], heard.find("tools/call").unwrap()["id"]);
}

#[tokio::test]
async fn progress_keeps_a_call_alive() {
    let (server, _) = raw(|talk, method, request| match method {
        "tools/call" => {
            let token = request["params"]["_meta"]["progressToken"].clone();
            let (id, out) = (request["id"].clone(), talk.clone());
            tokio::spawn(async move {
                for step in 0..6 {
                    tokio::time::sleep(Duration::from_millis(250)).await;
                    out.notify("notifications/progress", json!({ "progressToken": token, "progress": step }));
                }
                out.raw(json!({ "jsonrpc": "2.0", "id": id, "result": text("at last") }).to_string());
            });
            Reply::Nothing
        }
        _ => Reply::Usual,
    });
    let set = server.timeout(Duration::from_millis(800)).connect().await.unwrap().tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "at last");
}

/// What answers to a call are no answers, and what is said of them, at once and not after the timeout.
#[tokio::test]
async fn an_answer_that_cannot_be_read_fails_at_once() {
    let deep = format!("{}1{}", "[".repeat(1000), "]".repeat(1000));
    let table: [(String, &str); 6] = [
        (
            r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[}}"#.into(),
            "the answer is no message of the protocol",
        ),
        (r#"{"jsonrpc":"1.0","id":ID,"answer":7}"#.into(), "the answer is no message of the protocol"),
        (r#"{"jsonrpc":"2.0","id":ID,"result":7}"#.into(), "with something else"),
        (r#"{"jsonrpc":"2.0","id":ID,"result":{"content":"no"}}"#.into(), "with something else"),
        (
            format!(
                r#"{{"jsonrpc":"2.0","id":ID,"result":{{"content":[{{"type":"text","text":"{}"}}]}}}}"#,
                "x".repeat(17 << 20)
            ),
            "the answer is larger than 16777216 bytes",
        ),
        (
            format!(
                r#"{{"result":{{"content":[{{"type":"text","text":"{}"}}]}},"jsonrpc":"2.0","id":ID}}"#,
                "x".repeat(17 << 20)
            ),
            "the answer is larger than 16777216 bytes",
        ),
    ];
    for (answer, expected) in table {
        let (server, _) = raw(move |_, method, request| match method {
            "tools/call" if request["params"]["arguments"]["text"] == "bad" => {
                Reply::Raw(answer.replace("ID", &request["id"].to_string()))
            }
            _ => Reply::Usual,
        });
        let set = server.connect().await.unwrap().tools().await.unwrap();
        let error = call(&set, "echo", json!({ "text": "bad" })).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(failure(&error).is_unreadable() && error.to_string().len() < 300, "{error}");
        // The connection goes on.
        assert_eq!(call(&set, "echo", json!({ "text": "good" })).await.unwrap().to_string(), "good");
    }
    // Of an answer that is too deep the rest is read.
    let (server, _) = raw(move |_, method, request| match method {
        "tools/call" => Reply::Raw(format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[{{"type":"text","text":"shallow"}}],"structuredContent":{deep}}}}}"#,
            request["id"]
        )),
        _ => Reply::Usual,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "shallow");
}

#[tokio::test]
async fn garbage_between_messages_is_passed_over() {
    let (server, _) = raw(|talk, method, _| {
        talk.raw("Listening on stdio...");
        talk.raw(b"\xff\xfe\x00".to_vec());
        talk.raw(r#"{"jsonrpc":"2.0","id":"nobody's","result":{}}"#);
        talk.raw(r#"{"jsonrpc":"2.0","method":"notifications/unheard_of"}"#);
        talk.raw("[1,2,3]");
        // More than an answer may have.
        if method == "tools/call" {
            talk.raw("x".repeat(17 << 20));
        }
        if method == "tools/call" { Reply::Result(text("found")) } else { Reply::Usual }
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "found");
}

#[tokio::test]
async fn a_server_that_talks_something_else_is_told_of() {
    let (server, _) = raw(|talk, _, _| {
        talk.raw("usage: server [--help]");
        Reply::End
    });
    let error = server.connect().await.unwrap_err().to_string();
    let expected = "the MCP server `raw` ended before it was initialized; 1 lines of its output were no messages of the protocol";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn what_is_larger_than_was_said_is_refused() {
    let (server, _) = raw(|_, method, _| match method {
        "tools/call" => Reply::Result(text(&"x".repeat(5000))),
        _ => Reply::Usual,
    });
    let set = server.max_message(4000).connect().await.unwrap().tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("larger than 4000 bytes"), "{error}");
}

/// A server that ends while a tool runs, each time for so many connections.
fn mortal(deaths: usize, is_read_only: bool) -> (McpServer, Heard) {
    raw(move |talk: &Talk, method, _| match method {
        "tools/list" => {
            let mut tool = tool("echo");
            tool["annotations"] = json!({ "readOnlyHint": is_read_only, "destructiveHint": false });
            Reply::Result(json!({ "tools": [tool] }))
        }
        "tools/call" if talk.connection <= deaths => Reply::End,
        "tools/call" => Reply::Result(text("alive")),
        _ => Reply::Usual,
    })
}

#[tokio::test]
async fn a_call_in_flight_fails_when_the_server_goes_away_and_the_server_comes_back() {
    let (server, heard) = mortal(1, false);
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert!(failure(&error).is_outcome_unknown() && error.to_string().contains("may or may not"), "{error}");
    // Meanwhile calls fail at once, and the tools are still offered.
    let begun = Instant::now();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert!(failure(&error).is_unreachable() && begun.elapsed() < Duration::from_secs(5), "{error}");
    assert!(tools.down().is_some() && tools.info().is_none());
    assert_eq!(names(&tools.tools().await.unwrap()), ["echo"]);
    until("it is there again", async || tools.down().is_none()).await;
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "alive");
    assert_eq!(heard.count("tools/call"), 2, "it is not called again by itself");
    // It is asked for its tools anew, which are the same: so the set is.
    let again = tools.tools().await.unwrap();
    assert!(std::ptr::eq(set.get("echo").unwrap(), again.get("echo").unwrap()));
    assert_eq!(heard.count("tools/list"), 2);
}

#[tokio::test]
async fn a_call_that_changes_nothing_is_made_once_more() {
    let (server, heard) = mortal(1, true);
    let set = server.connect().await.unwrap().tools().await.unwrap();
    assert_eq!(call(&set, "echo", json!({})).await.unwrap().to_string(), "alive");
    assert_eq!(heard.count("tools/call"), 2);

    let (server, heard) = mortal(9, true);
    let set = server.connect().await.unwrap().tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert!(failure(&error).is_outcome_unknown(), "{error}");
    assert_eq!(heard.count("tools/call"), 2, "once more and not for ever");
}

#[tokio::test]
async fn a_server_that_comes_and_goes_is_connected_to_later_and_later() {
    let (server, heard) = raw(|talk, method, _| match method {
        "initialize" if talk.connection > 1 => Reply::End,
        "tools/call" => Reply::End,
        _ => Reply::Usual,
    });
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let _ = tokio::time::timeout(Duration::from_millis(100), call(&set, "echo", json!({}))).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let attempts = heard.count("initialize");
    assert!((3..=6).contains(&attempts), "{attempts}");
    let down = tools.down().unwrap().to_string();
    assert!(down.contains("ended before it was initialized"), "{down}");
    // Nobody wants it any more.
    drop((tools, set));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let attempts = heard.count("initialize");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(heard.count("initialize"), attempts);
}

#[tokio::test]
async fn an_agent_goes_on_without_an_optional_server() {
    let dead = || McpServer::stdio("no-such-program-at-all");
    let error = dead().connect().await.unwrap_err();
    assert!(error.is_unreachable(), "{error}");
    assert!(
        error.to_string().starts_with("the MCP server `no-such-program-at-all` cannot be started"),
        "{error}"
    );

    let optional = dead().optional().connect().await.unwrap();
    assert!(optional.tools().await.unwrap().is_empty());
    assert!(optional.down().unwrap().to_string().contains("cannot be started"));
    let (alive, _) = raw(|_, _, _| Reply::Usual);
    let model = ScriptedModel::new().calls("echo", r#"{"text": "hello"}"#).says("Done.");
    let alive = alive.connect().await.unwrap();
    let agent = Agent::builder(model).tool_provider(optional).tool_provider(alive).build().unwrap();
    let answer = agent.ask("Say hello").await.unwrap();
    assert_eq!(answer.tool_executions()[0].outcome().unwrap().to_string(), "hello");
}

#[tokio::test]
async fn a_run_goes_on_when_a_server_dies_in_it() {
    let (server, _) = mortal(9, false);
    let model = ScriptedModel::new().calls("echo", "{}").calls("echo", "{}").says("It is down.");
    let tools = server.connect().await.unwrap();
    let agent = Agent::builder(model).tool_provider(tools).build().unwrap();
    let answer = agent.ask("Say hello").await.unwrap();
    assert_eq!(answer.text(), "It is down.");
    assert!(answer.tool_executions().iter().all(|execution| execution.outcome().is_err()));
}

#[tokio::test]
async fn a_server_is_refused_what_was_never_offered_to_it() {
    let (server, heard) = raw(|talk, method, _| {
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
                let id = format!("ask_{id}");
                talk.raw(
                    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string(),
                );
            }
            talk.raw(r#"{"jsonrpc":"2.0","id":"ask_3","method":"ping"}"#);
        }
        Reply::Usual
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    call(&set, "echo", json!({})).await.unwrap();
    until("all are answered", async || heard.answers().len() == 4).await;
    for answer in heard.answers() {
        match answer["id"].as_str().unwrap() {
            "ask_3" => assert!(answer.get("result").is_some(), "{answer}"),
            _ => assert_eq!(answer["error"]["code"], -32601, "{answer}"),
        }
    }
    assert_eq!(heard.find("initialize").unwrap()["params"]["capabilities"], json!({}));
}

#[tokio::test]
async fn a_flood_of_notifications_is_survived() {
    let floods = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&floods);
    let (server, heard) = raw(move |talk, method, _| {
        if method == "tools/call" {
            counter.fetch_add(1, Ordering::SeqCst);
            for _ in 0..5000 {
                talk.notify("notifications/tools/list_changed", json!({}));
                talk.notify("notifications/progress", json!({ "progressToken": 12345, "progress": 1 }));
            }
        }
        Reply::Usual
    });
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    call(&set, "echo", json!({ "text": "hello" })).await.unwrap();
    tools.tools().await.unwrap();
    assert!(heard.count("tools/list") <= 3);
}
