//! Resources of a server, which a model lists and reads if the author allows it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tool_mcp::McpServer;

use super::asking::discovered;
use super::support::{Received, Reply, call, initialize_result, scripted_server, tool, tool_names};

fn resource(uri: &str) -> Value {
    json!({ "uri": uri, "name": "One", "description": "A text\nof two lines" })
}

/// A server with resources, whose lists may be used for so long and requested so often.
fn with_resources(ttl: u64, allowed: usize) -> (McpServer, Received) {
    let requests = Arc::new(AtomicUsize::new(0));
    scripted_server(move |_, method, message| {
        let mut result = match method {
            "server/discover" => discovered(json!({ "tools": {}, "resources": {} })),
            "tools/list" => json!({ "tools": [tool("read_resource"), tool("other")] }),
            "resources/list" if message["params"]["cursor"] == "2" => {
                json!({ "resources": [resource("doc://3")] })
            }
            "resources/list" if requests.fetch_add(1, Ordering::SeqCst) >= allowed => {
                return Reply::Error(-32000, "no longer allowed");
            }
            "resources/list" => {
                json!({ "resources": [resource("doc://1"), resource("doc:// 2")], "nextCursor": "2" })
            }
            "resources/templates/list" => json!({ "resourceTemplates": [
                { "uriTemplate": "file:///notes/{name}", "name": "Note" },
                { "uriTemplate": "{+any}", "name": "All" },
            ] }),
            "resources/read" => {
                let uri = message["params"]["uri"].clone();
                let image = json!({ "uri": uri, "mimeType": "image/png", "blob": "aGVsbG8=" });
                json!({ "contents": [{ "uri": uri, "text": "content" }, image] })
            }
            _ => return Reply::Error(-32601, "Method not found"),
        };
        (result["resultType"], result["ttlMs"], result["cacheScope"]) =
            ("complete".into(), ttl.into(), "private".into());
        Reply::Result(result)
    })
}

/// If the server has tools with the same names, the client's tools are used.
#[tokio::test]
async fn a_model_lists_and_reads_resources() {
    let (server, received) = with_resources(0, 100);
    let connected = server.clone().resources().connect().await.unwrap();
    let set = connected.tools().await.unwrap();
    assert_eq!(tool_names(&set), ["list_resources", "read_resource", "other"]);
    assert_eq!(connected.problems().await.unwrap().len(), 1);
    assert!(set.definitions()[0].description().unwrap().contains("the server `raw`"));
    let expected = "template file:///notes/{name}: Note. \ntemplate {+any}: All. \n\
                    doc://1: One. A text of two lines\ndoc://3: One. A text of two lines\n";
    assert_eq!(call(&set, "list_resources", json!({})).await.unwrap().to_string(), expected);
    for uri in ["doc://1", "file:///notes/a"] {
        let output = call(&set, "read_resource", json!({ "uri": uri })).await.unwrap();
        assert!(output.to_string().starts_with(&format!("[the resource {uri}]\ncontent")), "{output}");
        assert_eq!(output.content().images().count(), 1);
    }
    let reads = received.count("resources/read");
    for uri in [
        "doc://2",
        "file:///etc/passwd",
        "file:///notes/../secret",
        "file:///notes/%2E%2e/secret",
        "file:///notes/a b",
    ] {
        let error = call(&set, "read_resource", json!({ "uri": uri })).await.unwrap_err().to_string();
        assert_eq!(error, "the server has no resource with this URI; call `list_resources`", "{uri}");
    }
    assert_eq!(received.count("resources/read"), reads);

    let connected = server.connect().await.unwrap();
    assert_eq!(tool_names(&connected.tools().await.unwrap()), ["read_resource", "other"]);
}

/// A server without resources cannot have tools of these names, which the author may have approved.
#[tokio::test]
async fn the_names_of_the_tools_are_reserved() {
    let (server, _) = scripted_server(|_, method, _| {
        let mut result = match method {
            "server/discover" => discovered(json!({ "tools": {} })),
            "tools/list" => json!({ "tools": [tool("read_resource"), tool("other")] }),
            _ => return Reply::Error(-32601, "Method not found"),
        };
        (result["resultType"], result["ttlMs"], result["cacheScope"]) =
            ("complete".into(), 0.into(), "private".into());
        Reply::Result(result)
    });
    let connected = server.resources().approved(["read_resource"]).connect().await.unwrap();
    assert_eq!(tool_names(&connected.tools().await.unwrap()), ["other"]);
}

/// A list is requested again when its time is over, and an old one does not take the place of one that is refused.
#[tokio::test]
async fn lists_are_used_as_long_as_the_server_allows() {
    for (ttl, expected) in [(60_000, 1), (0, 2)] {
        let (server, received) = with_resources(ttl, 100);
        let set = server.resources().connect().await.unwrap().tools().await.unwrap();
        for _ in 0..2 {
            call(&set, "list_resources", json!({})).await.unwrap();
        }
        assert_eq!(received.count("resources/templates/list"), expected);
    }
    let (server, _) = with_resources(0, 4);
    let set = server.resources().connect().await.unwrap().tools().await.unwrap();
    for _ in 0..4 {
        call(&set, "list_resources", json!({})).await.unwrap();
    }
    let error = call(&set, "list_resources", json!({})).await.unwrap_err().to_string();
    assert!(error.contains("no longer allowed"), "{error}");
}

/// Calls need approval like those of the server's tools, and a server without resources gets no tools for them.
#[tokio::test]
async fn reading_needs_approval_and_resources() {
    let (server, _) = super::support::untrusted_server(|_, method, _| match method {
        "initialize" => {
            let mut result = initialize_result();
            result["capabilities"] = json!({ "resources": {} });
            Reply::Result(result)
        }
        _ => Reply::Default,
    });
    let set = server
        .clone()
        .resources()
        .approved(["list_resources"])
        .connect()
        .await
        .unwrap()
        .tools()
        .await
        .unwrap();
    let needs: Vec<_> = set.definitions().iter().map(|tool| tool.policy().needs_approval).collect();
    assert_eq!(needs, [false, true]);
    let (server, _) = scripted_server(|_, _, _| Reply::Default);
    let set = server.resources().connect().await.unwrap().tools().await.unwrap();
    assert_eq!(tool_names(&set), ["echo"]);
}

/// A server that lists without end is read up to a limit.
#[tokio::test]
async fn endless_lists_are_bounded() {
    let pages = Arc::new(AtomicUsize::new(0));
    let (server, received) = scripted_server(move |_, method, _| match method {
        "initialize" => {
            let mut result = initialize_result();
            result["capabilities"] = json!({ "resources": {} });
            Reply::Result(result)
        }
        "resources/list" => {
            let page = pages.fetch_add(1, Ordering::SeqCst);
            let resources: Vec<_> =
                (0..300).map(|number| resource(&format!("doc://{page}/{number}"))).collect();
            Reply::Result(json!({ "resources": resources, "nextCursor": page.to_string() }))
        }
        "resources/templates/list" => Reply::Error(-32601, "Method not found"),
        _ => Reply::Default,
    });
    let set = server.resources().connect().await.unwrap().tools().await.unwrap();
    let listed = call(&set, "list_resources", json!({})).await.unwrap().to_string();
    assert_eq!(listed.matches("doc://").count(), 1000);
    assert_eq!(received.count("resources/list"), 4);
}

#[tokio::test]
async fn a_resource_is_read_again_on_a_new_connection() {
    let (server, received) = scripted_server(|connection, method, message| {
        let mut result = match method {
            "server/discover" => discovered(json!({ "tools": {}, "resources": {} })),
            "tools/list" => json!({ "tools": [] }),
            "resources/list" => json!({ "resources": [resource("doc://1")] }),
            "resources/read" if connection.number == 1 => return Reply::Disconnect,
            "resources/read" => {
                json!({ "contents": [{ "uri": message["params"]["uri"], "text": "content" }] })
            }
            _ => return Reply::Error(-32601, "Method not found"),
        };
        (result["resultType"], result["ttlMs"], result["cacheScope"]) =
            ("complete".into(), 0.into(), "private".into());
        Reply::Result(result)
    });
    let connected = server.resources().connect().await.unwrap();
    let set = connected.tools().await.unwrap();
    let output = call(&set, "read_resource", json!({ "uri": "doc://1" })).await.unwrap();
    assert!(output.to_string().ends_with("\ncontent"), "{output}");
    assert_eq!(received.count("resources/read"), 2);
}
