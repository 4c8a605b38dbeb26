//! Clients that violate the protocol.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tool_core::tools;
use tool_mcp::server::{Server, ServerErrorKind};

use super::guarding::{initialize, post};
use super::tools::sum;

/// Messages in a session, and the code and the text of the error that each results in.
const TABLE: [(&str, i64, &str); 11] = [
    (r#"{"jsonrpc":"2.0","id":7,"method":"tools/nope"}"#, -32601, "tools/nope"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"resources/list"}"#, -32601, "resources/list"),
    (r#"{"jsonrpc":"2.0","id":7,"method":"prompts/list"}"#, -32601, "prompts/list"),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"nope"}}"#,
        -32602,
        "there is no tool `nope`; the tools are `sum`",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":5}}"#,
        -32602,
        "invalid parameters of `tools/call`: invalid type: integer `5`, expected a string",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"sum","arguments":[1]}}"#,
        -32602,
        "invalid parameters of `tools/call`: invalid type: sequence, expected a map",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"tools/call"}"#,
        -32602,
        "invalid parameters of `tools/call`: missing field `name`",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"logging/setLevel","params":{"level":"loud"}}"#,
        -32602,
        "invalid parameters of `logging/setLevel`: unknown variant `loud`, expected one of \
         `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert`, `emergency`",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"initialize","params":{}}"#,
        -32602,
        "invalid parameters of `initialize`: missing field `protocolVersion`",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"notifications":5}}"#,
        -32602,
        "invalid parameters of `subscriptions/listen`: invalid type: integer `5`, expected struct SubscriptionFilter",
    ),
    (
        r#"{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":"a:b"}}"#,
        -32601,
        "resources/read",
    ),
];

const LIST: &str = r#"{"jsonrpc":"2.0","id":8,"method":"tools/list"}"#;

#[tokio::test]
async fn rejects_invalid_messages_over_streams() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (input, output) = tokio::io::split(theirs);
    let serving = tokio::spawn(Server::new(tools![sum]).serve_streams(input, output));
    let (read, mut write) = tokio::io::split(ours);
    let mut lines = BufReader::new(read).lines();
    let mut answer = async || -> Value {
        let line = tokio::time::timeout(Duration::from_secs(120), lines.next_line())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let hello = initialize("http://localhost").build().unwrap().body().unwrap().as_bytes().unwrap().to_vec();
    write.write_all(&hello).await.unwrap();
    write.write_all(b"\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n").await.unwrap();
    assert_eq!(answer().await["result"]["protocolVersion"], "2025-11-25");
    for (sent, code, message) in TABLE {
        write.write_all(format!("{sent}\n").as_bytes()).await.unwrap();
        let answer = answer().await;
        let error = json!({ "code": code, "message": message });
        assert_eq!((&answer["id"], &answer["error"]), (&json!(7), &error), "{sent}");
    }
    // Invalid messages are ignored or answered without an id, and the session continues.
    let nonsense = [
        &b"{"[..],
        b"\xff\xfe",
        b"",
        b"null",
        b"[]",
        b"{}",
        b"[{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"ping\"}]",
    ];
    for sent in nonsense.into_iter().chain([&vec![b'x'; 17 << 20][..]]) {
        write.write_all(sent).await.unwrap();
        write.write_all(format!("\n{LIST}\n").as_bytes()).await.unwrap();
        loop {
            let answer = answer().await;
            if answer["id"] == 8 {
                assert_eq!(answer["result"]["tools"][0]["name"], "sum");
                break;
            }
            assert_eq!(answer["error"]["code"], -32600, "{answer}");
        }
    }
    drop((write, lines));
    tokio::time::timeout(Duration::from_secs(120), serving).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn rejects_sessions_without_initialization() {
    for (sent, is_error) in
        [("", false), ("{\n", false), (r#"{"jsonrpc":"2.0","method":"notifications/x"}"#, true)]
    {
        let input = std::io::Cursor::new(format!("{sent}\n"));
        let served = Server::new(tools![sum]).serve_streams(input, tokio::io::sink()).await;
        assert_eq!(served.is_err_and(|error| error.kind() == ServerErrorKind::Stream), is_error, "{sent}");
    }
}

#[tokio::test]
async fn rejects_invalid_messages_over_http() {
    let server = Server::new(tools![sum]).spawn("127.0.0.1:0").await.unwrap();
    let url = server.url();
    let response = initialize(&url).send().await.unwrap();
    let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    let send = async |body: &str| {
        let response = post(&url, body.to_owned()).header("mcp-session-id", &session).send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };
    for (sent, code, _) in TABLE {
        let (status, body) = send(sent).await;
        let data =
            body.lines().filter_map(|line| line.strip_prefix("data:")).find(|data| data.contains("error"));
        let answer: Value = serde_json::from_str(data.unwrap()).unwrap();
        assert_eq!((status, &answer["error"]["code"]), (200, &json!(code)), "{sent}: {answer}");
    }
    let deep = "[".repeat(100_000);
    let batch = r#"[{"jsonrpc":"2.0","id":9,"method":"ping"}]"#;
    let nonsense = [
        ("", -32700),
        ("{", -32700),
        (&deep, -32700),
        ("null", -32600),
        ("[]", -32600),
        ("{}", -32600),
        (batch, -32600),
    ];
    for (sent, code) in nonsense {
        let (status, body) = send(sent).await;
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &answer["error"]["code"]), (400, &json!(code)), "{sent:.40}: {body}");
    }
    // Without a session, and with an unknown one.
    assert_eq!(post(&url, LIST.into()).send().await.unwrap().status(), 400);
    let unknown = post(&url, LIST.into()).header("mcp-session-id", "nope").send().await.unwrap();
    assert_eq!(unknown.status(), 404);
    // With other methods, content types and URLs.
    let client = super::client::http();
    assert_eq!(client.put(&url).send().await.unwrap().status(), 405);
    assert_eq!(client.post(&url).body(LIST).send().await.unwrap().status(), 406);
    let text = client.post(&url).header("accept", "application/json, text/event-stream").body("{");
    assert_eq!(text.header("content-type", "text/plain").send().await.unwrap().status(), 415);
    assert_eq!(post(&url.replace("/mcp", "/"), LIST.into()).send().await.unwrap().status(), 404);
    let (status, body) = send(LIST).await;
    assert!(status == 200 && body.contains("Sums two numbers"), "{body}");
}
