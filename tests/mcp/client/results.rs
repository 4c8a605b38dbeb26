//! Results of tools: the content for the model and the data for the application.

use serde_json::{Value, json};
use tool_core::tool::ToolErrorKind;
use tool_mcp::{McpError, McpErrorKind};

use super::support::{Reply, call, scripted_server};

#[tokio::test]
async fn converts_results_to_outputs() {
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
            "[audio (audio/wav, 1 KB) that cannot be played]",
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
            "[the binary resource x:y (a/b, 1 KB)]",
            json!({ "content": [{ "type": "resource", "resource": { "uri": "x:y", "blob": "AAAA", "mimeType": "a/b" } }] }),
        ),
        (json!({ "content": [] }), "(the tool returned no content)", Value::Null),
        (json!({}), "(the tool returned no content)", Value::Null),
        (json!({ "resultType": "complete" }), "(the tool returned no content)", Value::Null),
    ];
    for (result, expected, data) in table {
        let response = result.clone();
        let (server, _) = scripted_server(move |_, method, _| match method {
            "tools/call" => Reply::Result(response.clone()),
            _ => Reply::Default,
        });
        let set = server.connect().await.unwrap().tools().await.unwrap();
        let output = call(&set, "echo", json!({})).await.unwrap();
        assert_eq!(output.to_string(), expected, "{result}");
        assert_eq!(output.data().unwrap_or(&Value::Null), &data, "{result}");
    }
}

#[tokio::test]
async fn passes_images_to_the_model() {
    let (server, _) = scripted_server(|_, method, _| match method {
        "tools/call" => Reply::Result(json!({ "content": [
            { "type": "text", "text": "Look:" },
            { "type": "image", "data": "R0lGODlh", "mimeType": "image/gif" },
            { "type": "image", "data": "R0lGODlh", "mimeType": "image/gif;base64,x\"" },
        ] })),
        _ => Reply::Default,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    let output = call(&set, "echo", json!({})).await.unwrap();
    let images: Vec<_> = output.content().images().map(|image| image.bytes().unwrap()).collect();
    assert_eq!(images, [b"GIF89a"]);
    assert!(output.to_string().contains("an image (1 KB) that cannot be displayed"), "{output}");
}

#[tokio::test]
async fn sends_the_failure_of_a_tool_to_the_model() {
    let (server, _) = scripted_server(|_, method, _| match method {
        "tools/call" => Reply::Result(json!({
            "content": [{ "type": "text", "text": "no such city" }],
            "structuredContent": { "code": 7 },
            "isError": true,
        })),
        _ => Reply::Default,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    assert_eq!(error.kind(), ToolErrorKind::Failed);
    assert_eq!(error.to_string(), "no such city");
    let failure = error.failure().unwrap().downcast_ref::<McpError>().unwrap();
    assert_eq!(failure.kind(), McpErrorKind::ToolFailed);
    assert_eq!(failure.data().unwrap()["structuredContent"]["code"], 7);
    assert!(!format!("{failure:?}").contains("city"));
}

#[tokio::test]
async fn a_protocol_error_includes_the_servers_message() {
    let (server, _) = scripted_server(|_, method, _| match method {
        "tools/call" => Reply::Error(-32602, "Unknown tool: echo"),
        _ => Reply::Default,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    let error = call(&set, "echo", json!({})).await.unwrap_err();
    let expected = "the MCP server `raw` rejected the call of `echo`: Unknown tool: echo (code -32602)";
    assert_eq!(error.to_string(), expected);
    let failure = error.failure().unwrap().downcast_ref::<McpError>().unwrap();
    assert_eq!(failure.kind(), McpErrorKind::Rejected);
}

#[tokio::test]
async fn truncates_long_outputs() {
    for is_error in [false, true] {
        let (server, _) = scripted_server(move |_, method, _| match method {
            "tools/call" => Reply::Result(json!({
                "content": [{ "type": "text", "text": "a".repeat(100_000) }],
                "isError": is_error,
            })),
            _ => Reply::Default,
        });
        let set = server.max_output_chars(1000).connect().await.unwrap().tools().await.unwrap();
        let text = match call(&set, "echo", json!({})).await {
            Ok(output) => output.to_string(),
            Err(error) => error.to_string(),
        };
        assert!(text.chars().count() <= 1000 && text.contains("characters left out"), "{text}");
    }
}

#[tokio::test]
async fn checks_arguments_before_calling_the_server() {
    let (server, received) = scripted_server(|_, method, _| match method {
        "tools/list" => Reply::Result(json!({ "tools": [{
            "name": "add",
            "inputSchema": {
                "type": "object",
                "properties": { "a": { "$ref": "#/$defs/number" }, "b": { "type": "integer" } },
                "required": ["a"],
                "$defs": { "number": { "type": "integer", "minimum": 1 } },
            },
        }] })),
        _ => Reply::Default,
    });
    let set = server.connect().await.unwrap().tools().await.unwrap();
    for arguments in [json!({}), json!({ "a": 0 }), json!({ "a": 1, "c": 2 }), json!({ "a": "one" })] {
        let error = call(&set, "add", arguments.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::InvalidArguments, "{arguments}: {error}");
    }
    assert_eq!(received.count("tools/call"), 0);
    // Arguments of the wrong form are repaired.
    call(&set, "add", json!({ "a": "7", "b": 2.0 })).await.unwrap();
    assert_eq!(received.find("tools/call").unwrap()["params"]["arguments"], json!({ "a": 7, "b": 2 }));
}
