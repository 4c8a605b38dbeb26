//! Listing of tools: pages, tools that cannot be used, and when the list is requested.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tests::support::sampling::size;
use tool_core::toolset::{ToolProvider, ToolProviderRequest};
use tool_core::{Message, ToolContext, ToolSet};
use tool_mcp::{McpErrorKind, McpServer};

use super::asking::{discovered, listed};
use super::support::{
    Received, Reply, ServerConnection, call, initialize_result, scripted_server, text_result, tool,
    tool_names, wait_until,
};

#[tokio::test]
async fn requests_each_page_once_and_in_order() {
    let (server, received) = scripted_server(|_, method, request| match method {
        "tools/list" => Reply::Result(match request["params"]["cursor"].as_str() {
            None => json!({ "tools": [tool("a"), tool("b")], "nextCursor": "2" }),
            Some("2") => json!({ "tools": [tool("c")], "nextCursor": "3" }),
            _ => json!({ "tools": [tool("d")] }),
        }),
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    assert_eq!(tool_names(&set), ["a", "b", "c", "d"]);
    let definition = &set.definitions()[0];
    assert_eq!(definition.description(), Some("Does a"));
    assert_eq!(definition.parameters(), &tool("a")["inputSchema"]);
    // The same set is returned again without a request, so that definitions are serialized once.
    let again = tools.tools().await.unwrap();
    assert!(std::ptr::eq(set.get("a").unwrap(), again.get("a").unwrap()));
    assert_eq!(received.count("tools/list"), 3);
}

#[tokio::test]
async fn does_not_list_tools_of_a_server_without_the_capability() {
    let (server, received) = scripted_server(|_, method, _| match method {
        "initialize" => {
            let mut initialized = initialize_result();
            initialized["capabilities"] = json!({});
            Reply::Result(initialized)
        }
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap();
    assert!(tools.tools().await.unwrap().is_empty());
    assert_eq!(received.count("tools/list"), 0);
}

/// The tools before and after the unusable one are not affected.
#[tokio::test]
async fn skips_and_reports_a_tool_that_cannot_be_used() {
    let nested = |depth: usize| {
        let (open, close) = (r#"{"type":"object","properties":{"a":"#.repeat(depth), "}}".repeat(depth));
        format!(r#"{{"type":"object","properties":{{"a":{open}{{}}{close}}}}}"#)
    };
    let schemas: [(String, Option<&str>); 11] = [
        (r#"{"type":"object"}"#.into(), None),
        (r#"{"properties":{"a":{"type":"string"}}}"#.into(), None),
        ("{}".into(), None),
        (nested(40), None),
        (
            r##"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","definitions":{"x":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/x"}}}"##.into(),
            None,
        ),
        ("true".into(), Some("its `inputSchema` is not an object")),
        (r#"{"type":"string"}"#.into(), Some("its schema does not describe an object")),
        (r#"{"type":"object","properties":{"a":{"type":"strong"}}}"#.into(), Some("not a valid JSON Schema: `type` is \"strong\"")),
        (r##"{"type":"object","properties":{"a":{"$ref":"#/nowhere"}}}"##.into(), Some("not a valid JSON Schema: `$ref` is \"#/nowhere\"")),
        (nested(500), Some("nested deeper than 100 levels")),
        (format!(r#"{{"type":"object","description":"{}"}}"#, "x".repeat(2 << 20)), Some("larger than 1024 KiB")),
    ];
    for (schema, expected) in schemas {
        let list = format!(
            r#"{{"tools":[{},{{"name":"odd","inputSchema":{schema}}},{}]}}"#,
            tool("before"),
            tool("after")
        );
        let (server, _) = scripted_server(move |connection, method, request| match method {
            "tools/list" => {
                connection
                    .send_line(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{list}}}"#, request["id"]));
                Reply::NoResponse
            }
            _ => Reply::Default,
        });
        let tools = server.connect().await.unwrap();
        let set = tools.tools().await.unwrap();
        let problems: Vec<_> = tools.problems().await.unwrap().iter().map(ToString::to_string).collect();
        let schema = schema.chars().take(60).collect::<String>();
        match expected {
            None => assert_eq!((tool_names(&set).len(), problems.len()), (3, 0), "{schema}: {problems:?}"),
            Some(expected) => {
                assert_eq!(tool_names(&set), ["before", "after"], "{schema}");
                assert!(problems[0].starts_with("the tool `odd` is skipped: "), "{problems:?}");
                assert!(problems[0].contains(expected), "{problems:?}");
            }
        }
    }
}

/// Schemas are compiled when a tool is first called or when problems are requested.
#[tokio::test]
async fn reports_an_invalid_schema_when_the_tool_is_called() {
    let (server, received) = scripted_server(|_, method, _| match method {
        "tools/list" => {
            let mut odd = tool("odd");
            odd["inputSchema"]["properties"]["text"]["pattern"] = "(?=x)".into();
            Reply::Result(json!({ "tools": [odd, tool("echo")] }))
        }
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let expected = "the MCP server `raw` has a tool that cannot be called: the schema of the tool `odd` cannot be used: \
                    the regular expression \"(?=x)\" at `properties.text.pattern` is invalid";
    let error = call(&set, "odd", json!({ "text": "x" })).await.unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(received.count("tools/call"), 0);
    let problems = tools.problems().await.unwrap();
    assert!(!problems[0].is_skipped());
    assert!(
        problems[0].to_string().starts_with("the tool `odd` is offered, but the MCP server"),
        "{problems:?}"
    );
    assert_eq!(call(&set, "echo", json!({ "text": "x" })).await.unwrap().to_string(), "x");
}

#[tokio::test]
async fn replaces_and_reports_names_that_models_cannot_call() {
    let (server, received) = scripted_server(|_, method, _| match method {
        "tools/list" => {
            Reply::Result(json!({ "tools": [tool("fs.read"), tool("größe"), tool("ok"), tool("ok")] }))
        }
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    assert_eq!(tool_names(&set), ["fs_read_4074bc02", tool_names(&set)[1], "ok"]);
    let problems: Vec<_> = tools.problems().await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(problems[0], "the tool `fs.read` is offered as `fs_read_4074bc02`");
    assert_eq!(problems[2], "the tool `ok` is skipped: another tool of the server has the same name");
    // The call uses the server's own name.
    call(&set, "fs_read_4074bc02", json!({ "text": "hello" })).await.unwrap();
    assert_eq!(received.find("tools/call").unwrap()["params"]["name"], "fs.read");
}

#[tokio::test]
async fn truncates_long_descriptions() {
    let (server, _) = scripted_server(|_, method, _| match method {
        "tools/list" => {
            let mut long = tool("long");
            long["description"] = "ä".repeat(100_000).into();
            let mut titled = tool("titled");
            titled["description"] = Value::Null;
            titled["title"] = "A title".into();
            Reply::Result(json!({ "tools": [long, titled] }))
        }
        _ => Reply::Default,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    assert_eq!(set.definitions()[0].description().unwrap().chars().count(), 8001);
    assert_eq!(set.definitions()[1].description(), Some("A title"));
}

#[tokio::test]
async fn requests_the_tools_again_after_a_change() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let (server, received) = scripted_server(move |connection, method, _| match method {
        "tools/list" if counter.fetch_add(1, Ordering::SeqCst) == 0 => Reply::Default,
        "tools/list" => Reply::Result(json!({ "tools": [tool("echo"), tool("new")] })),
        "tools/call" => {
            connection.notify("notifications/tools/list_changed", json!({}));
            Reply::Default
        }
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap().prefix("x_");
    let before = tools.tools().await.unwrap();
    assert_eq!(tool_names(&before), ["x_echo"]);
    call(&before, "x_echo", json!({})).await.unwrap();
    assert_eq!(tool_names(&tools.tools().await.unwrap()), ["x_echo", "x_new"]);
    assert_eq!(tool_names(&tools.tools().await.unwrap()), ["x_echo", "x_new"]);
    assert_eq!(received.count("tools/list"), 2);
    // An agent requests the tools in each turn.
    let (messages, context) = ([Message::user("Hello")], ToolContext::new());
    let request = ToolProviderRequest::new(&messages, &context);
    assert!(tools.is_dynamic());
    assert_eq!(ToolProvider::tools(&tools, &request).await.unwrap().len(), 2);
    assert_eq!(tools.name(), "raw");
}

#[tokio::test]
async fn the_provider_selects_and_renames_tools() {
    let (server, _) = scripted_server(|_, method, _| match method {
        "tools/list" => Reply::Result(json!({ "tools": [tool("a"), tool("b"), tool("c")] })),
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap();
    let table = [
        (tools.clone().prefix("x_"), vec!["x_a", "x_b", "x_c"]),
        (tools.clone().only(["c", "a"]), vec!["a", "c"]),
        (tools.clone().map_tools(|set| set.without(["b"])), vec!["a", "c"]),
        (tools.clone().map_tools(|set| Ok(set.filter(|tool| tool.name() > "a"))), vec!["b", "c"]),
        (
            tools.clone().map_tools(|set| set.rename("a", "first")).only(["first"]).prefix("x_"),
            vec!["x_first"],
        ),
        (tools.clone().map_tools(|set| Ok(set.max_output_chars(5))), vec!["a", "b", "c"]),
    ];
    for (tools, expected) in table {
        assert_eq!(tool_names(&tools.tools().await.unwrap()), expected);
    }
    let error = tools.clone().only(["d"]).tools().await.unwrap_err();
    assert_eq!(error.kind(), McpErrorKind::InvalidToolSet);
    assert!(error.to_string().contains("there is no tool `d`"), "{error}");
    // The set remains usable without the provider.
    let set = tools.tools().await.unwrap();
    drop(tools);
    assert_eq!(call(&set, "a", json!({ "text": "hello" })).await.unwrap().to_string(), "hello");
}

#[tokio::test]
async fn rejects_endless_lists() {
    let (server, _) = scripted_server(|_, method, _| match method {
        "tools/list" => Reply::Result(json!({ "tools": [], "nextCursor": "again" })),
        _ => Reply::Default,
    });
    let error = server.connect().await.unwrap_err();
    assert_eq!(error.to_string(), "the MCP server `raw` returned the same cursor for two pages of its tools");

    let page = Arc::new(AtomicUsize::new(0));
    let (server, _) = scripted_server(move |_, method, _| match method {
        "tools/list" => {
            let page = page.fetch_add(1, Ordering::SeqCst);
            Reply::Result(json!({ "tools": [], "nextCursor": page.to_string() }))
        }
        _ => Reply::Default,
    });
    let error = server.connect().await.unwrap_err();
    assert_eq!(error.kind(), McpErrorKind::TooManyTools);
    assert!(error.to_string().contains("more than 1000 pages"), "{error}");

    let server_with = |count: usize| {
        scripted_server(move |_, method, _| match method {
            "tools/list" => {
                let tools: Vec<_> = (0..count).map(|number| tool(&format!("tool_{number}"))).collect();
                Reply::Result(json!({ "tools": tools }))
            }
            _ => Reply::Default,
        })
        .0
    };
    let many = size(3_000, 10_000);
    let error = server_with(many).connect().await.unwrap_err();
    assert_eq!(error.kind(), McpErrorKind::TooManyTools);
    assert!(error.to_string().contains("lists more than 2000 tools"), "{error}");
    assert_eq!(server_with(many).max_tools(many).connect().await.unwrap().tools().await.unwrap().len(), many);
}

#[tokio::test]
async fn retains_the_tools_when_a_later_request_fails() {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let (server, _) = scripted_server(move |connection, method, _| match method {
        "tools/list" if counter.fetch_add(1, Ordering::SeqCst) > 0 => Reply::Error(-32603, "no"),
        "tools/call" => {
            connection.notify("notifications/tools/list_changed", json!({}));
            Reply::Result(text_result("called"))
        }
        _ => Reply::Default,
    });
    let tools = server.connect().await.unwrap();
    let set: ToolSet = tools.tools().await.unwrap();
    call(&set, "echo", json!({})).await.unwrap();
    assert_eq!(tools.tools().await.unwrap().len(), 1);
    // The list is requested again each time until the server returns it.
    wait_until("the list is requested again", async || {
        tools.tools().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        requests.load(Ordering::SeqCst) >= 3
    })
    .await;
}

type Streams = Arc<Mutex<Vec<(ServerConnection, Value)>>>;

/// A server of the newest revision whose list names its number, and that keeps the connection and the id of each subscription.
fn with_subscriptions(ttl_ms: u64) -> (McpServer, Received, Streams) {
    let (lists, streams) = (AtomicUsize::new(0), Arc::new(Mutex::new(Vec::new())));
    let opened = Arc::clone(&streams);
    let (server, received) = scripted_server(move |connection, method, message| match method {
        "initialize" => Reply::Error(-32601, "Method not found"),
        "server/discover" => Reply::Result(discovered(json!({ "tools": { "listChanged": true } }))),
        "tools/list" => {
            let name = format!("v{}", lists.fetch_add(1, Ordering::SeqCst) + 1);
            let mut listed = listed();
            (listed["tools"], listed["ttlMs"]) = (json!([tool(&name)]), ttl_ms.into());
            Reply::Result(listed)
        }
        "subscriptions/listen" => {
            let id = message["id"].clone();
            let filter = json!({ "toolsListChanged": true });
            let acknowledged = json!({ "_meta": { SUBSCRIPTION: id }, "notifications": filter });
            connection.notify("notifications/subscriptions/acknowledged", acknowledged);
            opened.lock().unwrap().push((connection.clone(), id));
            Reply::NoResponse
        }
        _ => Reply::Default,
    });
    (server.record_messages(), received, streams)
}

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// When the stream of changes ends, tools can have changed without notice. A stream of another request takes its place.
#[tokio::test(start_paused = true)]
async fn lists_again_after_changes_and_when_their_stream_ends() {
    let (server, received, streams) = with_subscriptions(3_600_000);
    let tools = server.connect().await.unwrap();
    let is_listed = async |name: &str| {
        wait_until(name, async || tool_names(&tools.tools().await.unwrap()) == [name]).await;
    };
    let are_open = async |count: usize| {
        wait_until("it listens", async || streams.lock().unwrap().len() == count).await;
        streams.lock().unwrap()[count - 1].clone()
    };
    is_listed("v1").await;
    let mut next = 2;
    for count in 1..=3 {
        let (connection, id) = are_open(count).await;
        connection.notify("notifications/tools/list_changed", json!({ "_meta": { SUBSCRIPTION: id } }));
        is_listed(&format!("v{next}")).await;
        let end = match count {
            1 => json!({ "result": { "resultType": "complete", "_meta": { SUBSCRIPTION: id } } }),
            _ => json!({ "error": { "code": -32603, "message": "Internal error" } }),
        };
        let mut end = end;
        (end["jsonrpc"], end["id"]) = ("2.0".into(), id);
        connection.send_line(end.to_string());
        is_listed(&format!("v{}", next + 1)).await;
        are_open(count + 1).await;
        // Changes before the new stream are not reported.
        is_listed(&format!("v{}", next + 2)).await;
        next += 3;
    }
    assert_eq!(received.count("tools/list"), next - 1);
}

/// A list is used as long as the server allows. It is requested once by `connect`.
#[tokio::test(start_paused = true)]
async fn lists_again_after_the_time_of_a_list() {
    for (ttl_ms, expected) in [(0, ["v2", "v3", "v4"]), (60_000, ["v1", "v1", "v2"])] {
        let (server, _, streams) = with_subscriptions(ttl_ms);
        let tools = server.connect().await.unwrap();
        wait_until("it listens", async || streams.lock().unwrap().len() == 1).await;
        let mut listed = Vec::new();
        for wait in [0, 59, 2] {
            tokio::time::sleep(Duration::from_secs(wait)).await;
            listed.push(tool_names(&tools.tools().await.unwrap())[0].to_owned());
        }
        assert_eq!(listed, expected);
    }
}

/// Callers that need the list at the same time share a request, also if the server does not allow to use the list again.
#[tokio::test(start_paused = true)]
async fn callers_share_a_list() {
    let (server, received, streams) = with_subscriptions(0);
    let tools = server.connect().await.unwrap();
    wait_until("it listens", async || streams.lock().unwrap().len() == 1).await;
    let before = received.count("tools/list");
    let listed = futures_util::future::join_all((0..20).map(|_| tools.tools())).await;
    assert!(listed.iter().all(Result::is_ok));
    // The first caller has asked before the others needed it.
    assert_eq!(received.count("tools/list"), before + 2);
}

/// A list that was requested after it was needed is current, also if the server reports a change with each of its lists.
#[tokio::test]
async fn callers_share_the_lists_of_a_server_that_always_changes() {
    let (server, received) = scripted_server(|connection, method, _| {
        if method == "tools/list" {
            connection.notify("notifications/tools/list_changed", json!({}));
        }
        Reply::Default
    });
    let tools = server.connect().await.unwrap();
    let before = received.count("tools/list");
    let listed = futures_util::future::join_all((0..20).map(|_| tools.tools())).await;
    assert!(listed.iter().all(Result::is_ok));
    assert_eq!(received.count("tools/list"), before + 2);
}
