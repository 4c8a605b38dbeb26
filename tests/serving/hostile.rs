//! Requests that are made to be expensive or ambiguous, tools that panic when they are cancelled, and runtimes that shut down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, tool, tools};
use tool_openai::server::Server;

use crate::caller::{Caller, post};

const SOON: Duration = Duration::from_secs(120);

fn question() -> Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] })
}

/// No limit is a limit like any other.
#[tokio::test]
async fn the_longest_read_timeout_closes_no_connection() {
    let server = Server::new().model("m", ScriptedModel::new().says("Hi.")).read_timeout(Duration::MAX);
    let caller = Caller::new(server).await;
    assert_eq!(caller.post("chat/completions", &question()).await.status, 200);
}

/// The time that an agent takes to replay a message grows with the square of the number of its calls.
#[tokio::test]
async fn limits_the_calls_of_a_message() {
    for (count, status) in [(1000, 200), (1001, 400)] {
        let id = |number| format!("call_{number}");
        let calls: Vec<_> = (0..count)
            .map(|number| json!({ "id": id(number), "type": "function", "function": { "name": "f", "arguments": "{}" } }))
            .collect();
        let mut chat = question();
        let messages = chat["messages"].as_array_mut().unwrap();
        messages.push(json!({ "role": "assistant", "content": null, "tool_calls": calls }));
        messages.extend(
            (0..count).map(|number| json!({ "role": "tool", "tool_call_id": id(number), "content": "" })),
        );
        let mut input = vec![json!({ "role": "user", "content": "Hi" })];
        input.extend((0..count).map(
            |number| json!({ "type": "function_call", "call_id": id(number), "name": "f", "arguments": "{}" }),
        ));
        input
            .extend((0..count).map(
                |number| json!({ "type": "function_call_output", "call_id": id(number), "output": "" }),
            ));
        for (path, body, param) in [
            ("chat/completions", chat, "messages"),
            ("responses", json!({ "model": "m", "input": input }), "input"),
        ] {
            let agent = Agent::builder(ScriptedModel::new().says("Hi.")).build().unwrap();
            for server in
                [Server::new().model("m", ScriptedModel::new().says("Hi.")), Server::new().agent("m", agent)]
            {
                let answer = Caller::new(server).await.post(path, &body).await;
                assert_eq!(answer.status, status, "{path} {count}: {}", answer.body["error"]);
                if status == 400 {
                    assert_eq!(answer.body["error"]["param"], param);
                    assert_eq!(answer.body["error"]["message"], "a message has more than 1000 calls");
                }
            }
        }
    }
}

#[tokio::test]
async fn limits_the_tools_of_a_request() {
    for (count, status) in [(1000, 200), (1001, 400)] {
        let name = |number| format!("tool_{number}");
        let mut chat = question();
        chat["tools"] = (0..count)
            .map(|number| json!({ "type": "function", "function": { "name": name(number) } }))
            .collect();
        let tools: Vec<_> =
            (0..count).map(|number| json!({ "type": "function", "name": name(number) })).collect();
        let responses = json!({ "model": "m", "input": "Hi", "tools": tools });
        for (path, body) in [("chat/completions", chat), ("responses", responses)] {
            let caller = Caller::new(Server::new().model("m", ScriptedModel::new().says("Hi."))).await;
            let answer = caller.post(path, &body).await;
            assert_eq!(answer.status, status, "{path} {count}: {}", answer.body["error"]);
            if status == 400 {
                let error = &answer.body["error"];
                assert_eq!(
                    (&error["param"], &error["message"]),
                    (&json!("tools"), &json!("the request has more than 1000 tools"))
                );
            }
        }
    }
}

/// A small request can name a stored response with a large conversation, which is copied whole.
#[tokio::test]
async fn a_continued_conversation_counts_as_much_as_a_body() {
    const TOTAL: usize = 100_000;
    let model = ScriptedModel::new().says("Hi.").says("Hi.");
    let server = Server::new().model("m", model.clone());
    let caller = Caller::new(server.max_body_bytes(TOTAL).max_total_body_bytes(TOTAL)).await;
    let ask = |previous: &Value, bytes: usize| json!({ "model": "m", "input": "a".repeat(bytes), "previous_response_id": previous });
    let first = caller.ask("responses", &ask(&Value::Null, TOTAL / 2)).await;
    assert_eq!(caller.post("responses", &ask(&first["id"], TOTAL / 2)).await.status, 503);
    let second = caller.ask("responses", &ask(&first["id"], TOTAL / 4)).await;
    assert_eq!(
        caller.get(&format!("responses/{}", second["id"].as_str().unwrap())).await.body["id"],
        second["id"]
    );
    assert_eq!(model.requests().len(), 2);
}

/// Sends bytes over a connection of their own and returns what the server sends until it closes the connection.
async fn exchange(caller: &Caller, request: &str) -> String {
    let mut stream = TcpStream::connect(caller.server.address()).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    // The server may reset the connection.
    let _ = tokio::time::timeout(SOON, stream.read_to_end(&mut received))
        .await
        .expect("the connection stays open");
    String::from_utf8_lossy(&received).into_owned()
}

/// A proxy before the server may read such a request in another way.
#[tokio::test(start_paused = true)]
async fn refuses_ambiguous_requests() {
    let server = Server::new().model("m", ScriptedModel::new().says("Hi.").says("Hi."));
    let caller = Caller::new(server.read_timeout(Duration::from_millis(300))).await;
    let body = question().to_string();
    let length = body.len();
    let with = |headers: &str, body: &str| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n{headers}\r\n\r\n{body}"
        )
    };
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let plain = format!("content-length: {length}");
    assert!(exchange(&caller, &with(&plain, &body)).await.starts_with("HTTP/1.1 200"));
    let many: String = (0..200).map(|number| format!("x-{number}: 1\r\n")).collect();
    let table = [
        ("two lengths", with(&format!("{plain}\r\ncontent-length: 1"), &body)),
        ("a list of lengths", with(&format!("{plain}, 1"), &body)),
        ("a signed length", with(&format!("content-length: +{length}"), &body)),
        ("another transfer coding", with("transfer-encoding: chunked, identity", &chunked)),
        ("an unknown transfer coding", with("transfer-encoding: xchunked", &chunked)),
        ("a space before the colon", with(&format!("{plain}\r\norigin : http://evil.example"), &body)),
        ("a folded header", with(&format!("{plain}\r\norigin: null\r\n http://localhost"), &body)),
        ("another host", with(&format!("{plain}\r\nhost: localhost"), &body)),
        ("a host in the URL", with(&plain, &body).replace("/v1/chat", "http://evil.example/v1/chat")),
        ("no host", with(&plain, &body).replace("host: localhost\r\n", "")),
        ("a line feed in a header", with(&format!("{plain}\r\nx: a\nhost: evil.example"), &body)),
        ("a null in a header", with(&format!("{plain}\r\nx: a\0b"), &body)),
        (
            "an origin after a null origin",
            with(&format!("{plain}\r\norigin: null\r\norigin: http://localhost"), &body),
        ),
        ("many headers", with(&format!("{many}{plain}"), &body)),
        ("a long header", with(&format!("x: {}\r\n{plain}", "a".repeat(1 << 20)), &body)),
        ("a chunk size that overflows", with("transfer-encoding: chunked", "fffffffffffffffff\r\n{}")),
        ("a head without an end", "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx: ".to_owned()),
    ];
    for (case, request) in table {
        let answer = exchange(&caller, &request).await;
        let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
        assert!(status.is_empty() || status.starts_with('4'), "{case}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), usize::from(!status.is_empty()), "{case}: {answer}");
    }
    // Both is allowed, as the body ends where the chunks end.
    let both = exchange(&caller, &with(&format!("{plain}\r\ntransfer-encoding: chunked"), &chunked)).await;
    assert_eq!(both.matches("HTTP/1.1").count(), 1, "{both}");
}

struct PanicOnDrop;

impl Drop for PanicOnDrop {
    fn drop(&mut self) {
        panic!("a panic in `drop`");
    }
}

static CANCELLABLE: Notify = Notify::const_new();

#[tool("Waits, and panics when it is cancelled")]
async fn wait() {
    let _guard = PanicOnDrop;
    CANCELLABLE.notify_one();
    std::future::pending().await
}

#[tokio::test]
async fn a_panic_of_a_cancelled_tool_affects_no_other_request() {
    let model = ScriptedModel::new().calls("wait", "{}").says("Hi.");
    let agent = Agent::builder(model).tools(tools![wait]).build().unwrap();
    let server = Server::new().agent("m", agent).model("n", ScriptedModel::new().says("Hi."));
    let caller = Caller::new(server.max_concurrent_requests(1)).await;
    let url = caller.url("chat/completions");
    let request = tokio::spawn(async move { post(&url).body(question().to_string()).send().await });
    tokio::time::timeout(SOON, CANCELLABLE.notified()).await.unwrap();
    request.abort();
    let mut body = question();
    body["model"] = json!("n");
    // The request that was cancelled no longer counts.
    let mut status = 503;
    for _ in 0..1000 {
        status = caller.post("chat/completions", &body).await.status;
        if status == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(status, 200);
    tokio::time::timeout(SOON, caller.server.stop()).await.expect("the server does not stop").unwrap();
}

static STARTED: Notify = Notify::const_new();
static RELEASED: AtomicBool = AtomicBool::new(false);

#[tool("Blocks", blocking)]
fn block() {
    STARTED.notify_one();
    while !RELEASED.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_runtime_that_shuts_down_during_a_call_leaves_no_caller_waiting() {
    let (serving, calling) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let model = ScriptedModel::new().calls("block", "{}").says("Hi.");
    let agent = Agent::builder(model).tools(tools![block]).build().unwrap();
    let server = serving.block_on(Server::new().agent("m", agent).spawn("127.0.0.1:0")).unwrap();
    let url = format!("{}/chat/completions", server.url());
    calling.block_on(async {
        let request = tokio::spawn(async move { post(&url).body(question().to_string()).send().await });
        tokio::time::timeout(SOON, STARTED.notified()).await.unwrap();
        serving.shutdown_background();
        let sent = tokio::time::timeout(SOON, request).await.expect("the caller waits").unwrap();
        assert!(sent.is_err_and(|error| error.is_request()));
        let stopped = tokio::time::timeout(SOON, server.stop()).await.expect("the server does not stop");
        assert_eq!(stopped.unwrap_err().kind(), std::io::ErrorKind::Other);
    });
    RELEASED.store(true, Ordering::SeqCst);
}
