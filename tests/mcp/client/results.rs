//! What tools give back: as the model reads it, and as it is kept for the application.

use serde_json::{Value, json};
use tool_mcp::McpError;

use super::support::{Reply, call, raw};

#[tokio::test]
async fn results_become_outputs() {
    let table = [
        (json!({ "content": [{ "type": "text", "text": "22 °C" }] }), "22 °C", Value::Null),
        (
            json!({ "content": [{ "type": "text", "text": "one" }, { "type": "text", "text": "two" }] }),
            "one\ntwo",
            Value::Null,
        ),
        (
            json!({ "content": [], "structuredContent": { "celsius": 22 } }),
            r#"{"celsius":22}"#,
            json!({ "structuredContent": { "celsius": 22 } }),
        ),
        (
            json!({ "content": [{ "type": "text", "text": "22" }], "structuredContent": [22], "_meta": { "a": 1 } }),
            "22",
            json!({ "structuredContent": [22], "_meta": { "a": 1 } }),
        ),
        (
            json!({ "content": [{ "type": "audio", "data": "UklGRg==", "mimeType": "audio/wav" }] }),
            "[a sound (audio/wav, 1 KB), which cannot be played here]",
            json!({ "content": [{ "type": "audio", "data": "UklGRg==", "mimeType": "audio/wav" }] }),
        ),
        (
            json!({ "content": [{ "type": "resource_link", "uri": "file:///a.txt", "name": "a", "description": "A file" }] }),
            "[a link to the resource file:///a.txt: a, A file]",
            json!({ "content": [{ "type": "resource_link", "uri": "file:///a.txt", "name": "a", "description": "A file" }] }),
        ),
        (
            json!({ "content": [{ "type": "resource", "resource": { "uri": "file:///a.txt", "text": "hello" } }] }),
            "[the resource file:///a.txt]\nhello",
            json!({ "content": [{ "type": "resource", "resource": { "uri": "file:///a.txt", "text": "hello" } }] }),
        ),
        (
            json!({ "content": [{ "type": "resource", "resource": { "uri": "x:y", "blob": "AAAA", "mimeType": "a/b" } }] }),
            "[the resource x:y (a/b, 1 KB), which is no text]",
            json!({ "content": [{ "type": "resource", "resource": { "uri": "x:y", "blob": "AAAA", "mimeType": "a/b" } }] }),
        ),
        (json!({ "content": [] }), "(the tool gave nothing back)", Value::Null),
        (json!({}), "(the tool gave nothing back)", Value::Null),
    ];
    for (result, expected, data) in table {
        let given = result.clone();
        let (server, _) = raw(move |_, method, _| match method {
            "tools/call" => Reply::Result(given.clone()),
            _ => Reply::Usual,
        });
        let set = server.connect().await.unwrap().tools().await.unwrap();
        let output = call(&set, "echo", json!({})).await.unwrap();
        assert_eq!(output.to_string(), expected, "{result}");
        assert_eq!(output.data().unwrap_or(&Value::Null), &data, "{result}");
    }
}

#[tokio::test]
async fn pictures_are_seen() {
    let (server, _) = raw(|_, method, _| match method {
        "tools/call" => Reply::Result(json!({ "content": [
            { "type": "text", "text": "Look:" },
            { "type": "image", "data": "R0lGODlh", "mimeType": "image/gif" },
            { "type": "image", "data": "R0lGODlh", "mimeType": "image/gif;base64,x\"" },
        ] })),
        _ => Reply::Usual,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    let output = call(&set, "echo", json!({})).await.unwrap();
    let images: Vec<_> = output.content().images().map(|image| image.bytes().unwrap()).collect();
    assert_eq!(images, [b"GIF89a"]);
    assert!(output.to_string().contains("a picture of 1 KB that cannot be shown"), "{output}");
}

#[tokio::test]
async fn a_failure_of_the_tool_is_read_by_the_model() {
    let (server, _) = raw(|_, method, _| match method {
        "tools/call" => Reply::Result(json!({
            "content": [{ "type": "text", "text": "no such city" }],
            "structuredContent": { "code": 7 },
            "isError": true,
        })),
        _ => Reply::Usual,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert!(error.is_failed());
    assert_eq!(error.to_string(), "no such city");
    let failure = error.failure().unwrap().downcast_ref::<McpError>().unwrap();
    assert!(failure.is_failed());
    assert_eq!(failure.data().unwrap()["structuredContent"]["code"], 7);
    assert!(!format!("{failure:?}").contains("city"));
}

#[tokio::test]
async fn an_error_of_the_protocol_is_told_with_its_words() {
    let (server, _) = raw(|_, method, _| match method {
        "tools/call" => Reply::Error(-32602, "Unknown tool: echo"),
        _ => Reply::Usual,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    let expected = "the MCP server `raw` refused the call of `echo`: Unknown tool: echo (code -32602)";
    assert_eq!(error.to_string(), expected);
    assert!(error.failure().unwrap().downcast_ref::<McpError>().unwrap().is_refused());
}

#[tokio::test]
async fn an_output_is_no_longer_than_it_may_be() {
    for is_error in [false, true] {
        let (server, _) = raw(move |_, method, _| match method {
            "tools/call" => Reply::Result(json!({
                "content": [{ "type": "text", "text": "a".repeat(100_000) }],
                "isError": is_error,
            })),
            _ => Reply::Usual,
        });
        let set = server.max_output(1000).connect().await.unwrap().tools().await.unwrap();
        let text = match call(&set, "echo", json!({})).await {
            Ok(output) => output.to_string(),
            Err(error) => error.to_string(),
        };
        assert!(text.chars().count() <= 1000 && text.contains("characters left out"), "{text}");
    }
}

#[tokio::test]
async fn arguments_are_checked_before_the_server_is_called() {
    let (server, heard) = raw(|_, method, _| match method {
        "tools/list" => Reply::Result(json!({ "tools": [{
            "name": "add",
            "inputSchema": {
                "type": "object",
                "properties": { "a": { "$ref": "#/$defs/number" }, "b": { "type": "integer" } },
                "required": ["a"],
                "$defs": { "number": { "type": "integer", "minimum": 1 } },
            },
        }] })),
        _ => Reply::Usual,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    for arguments in [json!({}), json!({ "a": 0 }), json!({ "a": 1, "c": 2 }), json!({ "a": "one" })] {
        let error = call(&set, "add", arguments.clone()).await.unwrap_err();
        assert!(error.is_invalid_arguments(), "{arguments}: {error}");
    }
    assert_eq!(heard.count("tools/call"), 0);
    // What is wrong in form only is mended.
    call(&set, "add", json!({ "a": "7", "b": 2.0 })).await.unwrap();
    assert_eq!(heard.find("tools/call").unwrap()["params"]["arguments"], json!({ "a": 7, "b": 2 }));
}
