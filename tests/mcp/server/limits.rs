//! Limits of requests and connections over HTTP.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tool_core::{tool, tools};
use tool_mcp::server::{RunningServer, Server};

use super::guarding::{initialize, post};
use super::tools::{Witness, sum, wait};

const SOON: Duration = Duration::from_secs(120);

async fn send(request: RequestBuilder) -> Response {
    tokio::time::timeout(SOON, request.send()).await.unwrap().unwrap()
}

async fn begin_session(server: &RunningServer) -> String {
    let response = send(initialize(&server.url())).await;
    let session = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    response.bytes().await.unwrap();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(send(message(server, &session, &initialized)).await.status(), 202);
    session
}

fn message(server: &RunningServer, session: &str, message: &Value) -> RequestBuilder {
    post(&server.url(), message.to_string()).header("mcp-session-id", session)
}

fn call(id: u32, tool: &str, arguments: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
}

fn cancel(id: u32) -> Value {
    json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } })
}

/// Sends a call over a connection of its own, whose response is not read.
async fn open_call(server: &RunningServer, session: &str, call: &Value) -> TcpStream {
    let body = call.to_string();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nmcp-session-id: {session}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    stream
}

fn is_overloaded(response: &Response) -> bool {
    response.status() == 503 && response.headers()["retry-after"] == "1"
}

/// Sends a request until it is no longer refused: a permit is returned only after the end of the response.
async fn until_accepted(request: impl Fn() -> RequestBuilder) -> Response {
    for _ in 0..6000 {
        let response = send(request()).await;
        if response.status() == 200 {
            return response;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("the request is still refused after 30 seconds");
}

#[tokio::test]
async fn limits_the_number_of_requests_in_flight() {
    let witness = Witness::default();
    let server = Server::new(tools![sum, wait]).context(witness.context()).max_concurrent_requests(1);
    let server = server.spawn("127.0.0.1:0").await.unwrap();
    let session = begin_session(&server).await;
    let ended_by = ["release", "cancel"];
    for (id, end) in (10..).zip(ended_by) {
        // The id of a call that may still end would be refused for another reason.
        let sum = call(id + 10, "sum", json!({ "a": 1, "b": 2 }));
        let wait = message(&server, &session, &call(id, "wait", json!({})));
        let calling = tokio::spawn(until_accepted(move || wait.try_clone().unwrap()));
        tokio::time::timeout(SOON, witness.started.notified()).await.unwrap();
        let refused = send(message(&server, &session, &sum)).await;
        assert!(is_overloaded(&refused), "{end}: {refused:?}");
        if end == "release" {
            witness.release.notify_one();
            let text = calling.await.unwrap().text().await.unwrap();
            assert!(text.contains("released"), "{text}");
        } else {
            assert_eq!(send(message(&server, &session, &cancel(id))).await.status(), 202);
            tokio::time::timeout(SOON, witness.cancelled.notified()).await.unwrap();
            calling.abort();
        }
        until_accepted(|| message(&server, &session, &sum)).await;
    }
}

/// A session's call goes on, so clients that come and go could start any number.
#[tokio::test]
async fn a_call_whose_connection_ended_is_still_in_flight() {
    let witness = Witness::default();
    let server = Server::new(tools![sum, wait]).context(witness.context()).max_concurrent_requests(1);
    let server = server.spawn("127.0.0.1:0").await.unwrap();
    let session = begin_session(&server).await;
    let mut stream = open_call(&server, &session, &call(3, "wait", json!({}))).await;
    tokio::time::timeout(SOON, witness.started.notified()).await.unwrap();
    stream.shutdown().await.unwrap();
    // The server has closed the connection.
    tokio::time::timeout(SOON, stream.read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    let sum = call(4, "sum", json!({ "a": 1, "b": 2 }));
    assert!(is_overloaded(&send(message(&server, &session, &sum)).await));
    assert!(!witness.is_idle());
    witness.release.notify_one();
    until_accepted(|| message(&server, &session, &sum)).await;
}

/// The response to one of them would go to the connection of the other, which the SDK would store without end.
#[tokio::test]
async fn requests_in_flight_have_different_ids() {
    let witness = Witness::default();
    let server =
        Server::new(tools![sum, wait]).context(witness.context()).spawn("127.0.0.1:0").await.unwrap();
    let [session, other] = [begin_session(&server).await, begin_session(&server).await];
    let stream = open_call(&server, &session, &call(3, "wait", json!({}))).await;
    tokio::time::timeout(SOON, witness.started.notified()).await.unwrap();
    // The call goes on without its connection.
    drop(stream);
    let with_id = |id: Value, session: &str| {
        let mut sum = call(0, "sum", json!({ "a": 1, "b": 2 }));
        sum["id"] = id;
        message(&server, session, &sum)
    };
    let ping = json!({ "jsonrpc": "2.0", "id": 3, "method": "ping" });
    for repeated in [with_id(json!(3), &session), message(&server, &session, &ping)] {
        let response = send(repeated).await;
        assert_eq!(response.status(), 400);
        let expected = json!({ "jsonrpc": "2.0", "id": 3, "error": {
            "code": -32600, "message": "the id belongs to a request in flight; give each request another one",
        } });
        assert_eq!(response.json::<Value>().await.unwrap(), expected);
    }
    for accepted in [with_id(json!("3"), &session), with_id(json!(4), &session), with_id(json!(3), &other)] {
        assert_eq!(send(accepted).await.status(), 200);
    }
    witness.release.notify_one();
    let text = until_accepted(|| with_id(json!(3), &session)).await.text().await.unwrap();
    assert!(text.contains("3.0"), "{text}");
    // A cancelled request gets no response.
    let _stream = open_call(&server, &session, &call(5, "wait", json!({}))).await;
    tokio::time::timeout(SOON, witness.started.notified()).await.unwrap();
    assert_eq!(send(with_id(json!(5), &session)).await.status(), 400);
    assert_eq!(send(message(&server, &session, &cancel(5))).await.status(), 202);
    until_accepted(|| with_id(json!(5), &session)).await;
}

#[tokio::test]
async fn limits_the_total_size_of_requests_in_flight() {
    let witness = Witness::default();
    let server = Server::new(tools![sum, wait]).context(witness.context());
    let server = server.max_body_bytes(1000).max_total_body_bytes(1500).spawn("127.0.0.1:0").await.unwrap();
    let session = begin_session(&server).await;
    let padded = |body: Value, length: usize| {
        let body = format!("{:length$}", body.to_string());
        post(&server.url(), body).header("mcp-session-id", &session)
    };
    let calling = tokio::spawn(padded(call(2, "wait", json!({})), 1000).send());
    tokio::time::timeout(SOON, witness.started.notified()).await.unwrap();
    let sum = || call(3, "sum", json!({ "a": 1, "b": 2 }));
    assert!(is_overloaded(&send(padded(sum(), 501)).await));
    assert_eq!(send(padded(sum(), 500)).await.status(), 200);
    witness.release.notify_one();
    calling.await.unwrap().unwrap().bytes().await.unwrap();
    until_accepted(|| padded(sum(), 1000)).await;
}

/// The first message of a session is stored as long as the session.
#[tokio::test]
async fn limits_the_size_of_the_first_message() {
    let server = Server::new(tools![sum]).spawn("127.0.0.1:0").await.unwrap();
    let statuses = [32 << 10, (32 << 10) + 1].map(async |length| {
        let request = initialize(&server.url()).build().unwrap();
        let body = std::str::from_utf8(request.body().unwrap().as_bytes().unwrap()).unwrap();
        send(post(&server.url(), format!("{body:length$}"))).await.status().as_u16()
    });
    assert_eq!(futures_util::future::join_all(statuses).await, [200, 413]);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let server = Server::new(tools![sum]).max_connections(1).spawn("127.0.0.1:0").await.unwrap();
    let request = "GET /other HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut first = TcpStream::connect(server.address()).await.unwrap();
    first.write_all(request.as_bytes()).await.unwrap();
    assert!(first.read(&mut [0; 4096]).await.unwrap() > 0);
    let mut waiting = TcpStream::connect(server.address()).await.unwrap();
    waiting.write_all(request.as_bytes()).await.unwrap();
    drop(first);
    let mut buffer = [0; 12];
    tokio::time::timeout(SOON, waiting.read_exact(&mut buffer)).await.unwrap().unwrap();
    assert_eq!(&buffer, b"HTTP/1.1 404");
    // A connection that still waits when the server stops was never accepted.
    let mut never = TcpStream::connect(server.address()).await.unwrap();
    never.write_all(request.as_bytes()).await.unwrap();
    server.stop().await.unwrap();
    let read = tokio::time::timeout(SOON, never.read(&mut buffer)).await.unwrap();
    assert_eq!(read.unwrap_or(0), 0);
}

#[tool("Returns much text")]
fn much() -> String {
    "blah ".repeat(2 << 20)
}

#[tokio::test(start_paused = true)]
async fn disconnects_clients_that_do_not_read() {
    let server = Server::new(tools![much]).record_messages().read_timeout(Duration::from_millis(200));
    let server = server.spawn("127.0.0.1:0").await.unwrap();
    let session = begin_session(&server).await;
    let mut stream = open_call(&server, &session, &call(2, "much", json!({}))).await;
    assert!(stream.read(&mut [0; 16]).await.unwrap() > 0, "the response has started");
    let stopped = tokio::time::timeout(SOON, server.stop()).await;
    stopped.expect("the server does not wait for a client that does not read").unwrap();
}
