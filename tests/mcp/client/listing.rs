//! The tools that a server lists: all pages of them, those that cannot be used, and when it is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tool_core::{Message, ToolContext, ToolProvider, ToolProviderRequest, ToolSet};

use super::support::{Reply, call, initialized, names, raw, text, tool, until};

#[tokio::test]
async fn all_pages_are_read_in_order_and_once() {
    let (server, heard) = raw(|_, method, request| match method {
        "tools/list" => Reply::Result(match request["params"]["cursor"].as_str() {
            None => json!({ "tools": [tool("a"), tool("b")], "nextCursor": "2" }),
            Some("2") => json!({ "tools": [tool("c")], "nextCursor": "3" }),
            _ => json!({ "tools": [tool("d")] }),
        }),
        _ => Reply::Usual,
    });
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    assert_eq!(names(&set), ["a", "b", "c", "d"]);
    let definition = &set.definitions()[0];
    assert_eq!(definition.description(), Some("Does a"));
    assert_eq!(definition.parameters(), &tool("a")["inputSchema"]);
    // Who asks again gets the very same set, so that requests are written once; the server is not asked.
    let again = tools.tools().await.unwrap();
    assert!(std::ptr::eq(set.get("a").unwrap(), again.get("a").unwrap()));
    assert_eq!(heard.count("tools/list"), 3);
}

#[tokio::test]
async fn a_server_without_the_capability_is_not_asked() {
    let (server, heard) = raw(|_, method, _| match method {
        "initialize" => {
            let mut initialized = initialized();
            initialized["capabilities"] = json!({});
            Reply::Result(initialized)
        }
        _ => Reply::Usual,
    });
    let tools = server.connect().await.unwrap();
    assert!(tools.tools().await.unwrap().is_empty());
    assert_eq!(heard.count("tools/list"), 0);
}

/// Each of these spoils itself and nothing beside it.
#[tokio::test]
async fn a_tool_that_cannot_be_used_is_left_out_and_told_of() {
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
        ("true".into(), Some("its `inputSchema` is no object")),
        (r#"{"type":"string"}"#.into(), Some("its schema is not that of an object")),
        (r#"{"type":"object","properties":{"a":{"type":"strong"}}}"#.into(), Some("no JSON Schema: `type` is \"strong\"")),
        (r##"{"type":"object","properties":{"a":{"$ref":"#/nowhere"}}}"##.into(), Some("no JSON Schema: `$ref` is \"#/nowhere\"")),
        (nested(500), Some("nested deeper than 100 levels")),
        (format!(r#"{{"type":"object","description":"{}"}}"#, "x".repeat(2 << 20)), Some("larger than 1024 KiB")),
    ];
    for (schema, expected) in schemas {
        let list = format!(
            r#"{{"tools":[{},{{"name":"odd","inputSchema":{schema}}},{}]}}"#,
            tool("before"),
            tool("behind")
        );
        let (server, _) = raw(move |talk, method, request| match method {
            "tools/list" => {
                talk.raw(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{list}}}"#, request["id"]));
                Reply::Nothing
            }
            _ => Reply::Usual,
        });
        let tools = server.connect().await.unwrap();
        let set = tools.tools().await.unwrap();
        let problems: Vec<_> = tools.problems().await.unwrap().iter().map(ToString::to_string).collect();
        let schema = schema.chars().take(60).collect::<String>();
        match expected {
            None => assert_eq!((names(&set).len(), problems.len()), (3, 0), "{schema}: {problems:?}"),
            Some(expected) => {
                assert_eq!(names(&set), ["before", "behind"], "{schema}");
                assert!(problems[0].starts_with("the tool `odd` is left out: "), "{problems:?}");
                assert!(problems[0].contains(expected), "{problems:?}");
            }
        }
    }
}

/// What takes long to find is found when the tool is called, or when somebody asks for it.
#[tokio::test]
async fn a_tool_whose_schema_cannot_be_compiled_says_so_when_it_is_called() {
    let (server, heard) = raw(|_, method, _| match method {
        "tools/list" => {
            let mut odd = tool("odd");
            odd["inputSchema"]["properties"]["text"]["pattern"] = "(?=x)".into();
            Reply::Result(json!({ "tools": [odd, tool("echo")] }))
        }
        _ => Reply::Usual,
    });
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    let expected = "the MCP server `raw` has a tool that cannot be called: the schema of the tool `odd` cannot be used: \
                    the regular expression \"(?=x)\" at `properties.text.pattern` is not valid";
    let error = call(&set, "odd", json!({ "text": "x" })).await.unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
    assert_eq!(heard.count("tools/call"), 0);
    let problems = tools.problems().await.unwrap();
    assert!(!problems[0].is_left_out());
    assert!(
        problems[0].to_string().starts_with("the tool `odd` is offered, but the MCP server"),
        "{problems:?}"
    );
    assert_eq!(call(&set, "echo", json!({ "text": "x" })).await.unwrap().to_string(), "x");
}

#[tokio::test]
async fn names_that_models_cannot_call_become_such_and_are_told_of() {
    let (server, heard) = raw(|_, method, _| match method {
        "tools/list" => {
            Reply::Result(json!({ "tools": [tool("fs.read"), tool("größe"), tool("ok"), tool("ok")] }))
        }
        _ => Reply::Usual,
    });
    let tools = server.connect().await.unwrap();
    let set = tools.tools().await.unwrap();
    assert_eq!(names(&set), ["fs_read_4074bc02", names(&set)[1], "ok"]);
    let problems: Vec<_> = tools.problems().await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(problems[0], "the tool `fs.read` is offered as `fs_read_4074bc02`");
    assert_eq!(problems[2], "the tool `ok` is left out: another tool of the server has its name");
    // The server is called by its own name.
    call(&set, "fs_read_4074bc02", json!({ "text": "hello" })).await.unwrap();
    assert_eq!(heard.find("tools/call").unwrap()["params"]["name"], "fs.read");
}

#[tokio::test]
async fn what_is_said_of_a_tool_is_bounded() {
    let (server, _) = raw(|_, method, _| match method {
        "tools/list" => {
            let mut long = tool("long");
            long["description"] = "ä".repeat(100_000).into();
            let mut titled = tool("titled");
            titled["description"] = Value::Null;
            titled["title"] = "A title".into();
            Reply::Result(json!({ "tools": [long, titled] }))
        }
        _ => Reply::Usual,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    assert_eq!(set.definitions()[0].description().unwrap().chars().count(), 8001);
    assert_eq!(set.definitions()[1].description(), Some("A title"));
}

#[tokio::test]
async fn the_server_is_asked_again_when_it_says_that_its_tools_changed() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let (server, heard) = raw(move |talk, method, _| match method {
        "tools/list" if counter.fetch_add(1, Ordering::SeqCst) == 0 => Reply::Usual,
        "tools/list" => Reply::Result(json!({ "tools": [tool("echo"), tool("new")] })),
        "tools/call" => {
            talk.notify("notifications/tools/list_changed", json!({}));
            Reply::Usual
        }
        _ => Reply::Usual,
    });
    let tools = server.connect().await.unwrap().prefix("x_");
    let before = tools.tools().await.unwrap();
    assert_eq!(names(&before), ["x_echo"]);
    call(&before, "x_echo", json!({})).await.unwrap();
    assert_eq!(names(&tools.tools().await.unwrap()), ["x_echo", "x_new"]);
    assert_eq!(names(&tools.tools().await.unwrap()), ["x_echo", "x_new"]);
    assert_eq!(heard.count("tools/list"), 2);
    // As an agent asks it, in each turn.
    let (messages, context) = ([Message::user("Hello")], ToolContext::new());
    let request = ToolProviderRequest::new(&messages, &context);
    assert!(tools.is_dynamic());
    assert_eq!(ToolProvider::tools(&tools, &request).await.unwrap().len(), 2);
    assert_eq!(tools.name(), "raw");
}

#[tokio::test]
async fn sets_are_chosen_and_renamed_on_the_provider() {
    let (server, _) = raw(|_, method, _| match method {
        "tools/list" => Reply::Result(json!({ "tools": [tool("a"), tool("b"), tool("c")] })),
        _ => Reply::Usual,
    });
    let tools = server.connect().await.unwrap();
    let table = [
        (tools.clone().prefix("x_"), vec!["x_a", "x_b", "x_c"]),
        (tools.clone().only(["c", "a"]), vec!["a", "c"]),
        (tools.clone().without(["b"]), vec!["a", "c"]),
        (tools.clone().filter(|tool| tool.name() > "a"), vec!["b", "c"]),
        (tools.clone().rename("a", "first").only(["first"]).prefix("x_"), vec!["x_first"]),
        (tools.clone().changed(|set| Ok(set.max_output(5))), vec!["a", "b", "c"]),
    ];
    for (view, expected) in table {
        assert_eq!(names(&view.tools().await.unwrap()), expected);
    }
    let error = tools.clone().only(["d"]).tools().await.unwrap_err();
    assert!(error.is_tools() && error.to_string().contains("there is no tool `d`"), "{error}");
    // The set does without the provider.
    let set = tools.tools().await.unwrap();
    drop(tools);
    assert_eq!(call(&set, "a", json!({ "text": "hello" })).await.unwrap().to_string(), "hello");
}

#[tokio::test]
async fn lists_without_end_end() {
    let (server, _) = raw(|_, method, _| match method {
        "tools/list" => Reply::Result(json!({ "tools": [], "nextCursor": "again" })),
        _ => Reply::Usual,
    });
    let error = server.connect().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the MCP server `raw` lists its tools in a circle: two pages have one cursor"
    );

    let page = Arc::new(AtomicUsize::new(0));
    let (server, _) = raw(move |_, method, _| match method {
        "tools/list" => {
            let page = page.fetch_add(1, Ordering::SeqCst);
            Reply::Result(json!({ "tools": [], "nextCursor": page.to_string() }))
        }
        _ => Reply::Usual,
    });
    let error = server.connect().await.unwrap_err();
    assert!(error.is_too_much() && error.to_string().contains("more than 1000 pages"), "{error}");

    let many = |count: usize| {
        raw(move |_, method, _| match method {
            "tools/list" => {
                let tools: Vec<_> = (0..count).map(|number| tool(&format!("tool_{number}"))).collect();
                Reply::Result(json!({ "tools": tools }))
            }
            _ => Reply::Usual,
        })
        .0
    };
    let error = many(10_000).connect().await.unwrap_err();
    assert!(error.is_too_much() && error.to_string().contains("lists more than 2000 tools"), "{error}");
    assert_eq!(many(10_000).max_tools(10_000).connect().await.unwrap().tools().await.unwrap().len(), 10_000);
}

#[tokio::test]
async fn a_list_that_fails_later_leaves_the_tools_as_they_were() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let (server, _) = raw(move |talk, method, _| match method {
        "tools/list" if counter.fetch_add(1, Ordering::SeqCst) > 0 => Reply::Error(-32603, "no"),
        "tools/call" => {
            talk.notify("notifications/tools/list_changed", json!({}));
            Reply::Result(text("called"))
        }
        _ => Reply::Usual,
    });
    let tools = server.connect().await.unwrap();
    let set: ToolSet = tools.tools().await.unwrap();
    call(&set, "echo", json!({})).await.unwrap();
    assert_eq!(tools.tools().await.unwrap().len(), 1);
    // It is asked anew each time until it tells.
    until("it is asked again", async || {
        tools.tools().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        asked.load(Ordering::SeqCst) >= 3
    })
    .await;
}
