//! Who may ask over HTTP, and how much.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tool_core::tools;
use tool_mcp::server::{RunningServer, Server};

use super::client::{Heard, Way, http, reach};
use super::tools::sum;

async fn server(change: impl FnOnce(Server) -> Server) -> RunningServer {
    change(Server::new(tools![sum])).spawn("127.0.0.1:0").await.unwrap()
}

pub(crate) fn initialize(url: &str) -> RequestBuilder {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "tests", "version": "1" },
    } });
    post(url, body.to_string())
}

pub(crate) fn post(url: &str, body: String) -> RequestBuilder {
    let headers = [("accept", "application/json, text/event-stream"), ("content-type", "application/json")];
    headers
        .into_iter()
        .fold(http().post(url), |request, (name, value)| request.header(name, value))
        .body(body)
}

async fn send(request: RequestBuilder) -> Response {
    tokio::time::timeout(Duration::from_secs(30), request.send()).await.unwrap().unwrap()
}

#[tokio::test]
async fn hosts_and_origins() {
    let own = server(|server| server).await;
    let port = own.address().port();
    let more =
        server(|server| server.allow_host("tools.example").allow_origin("https://app.example:443")).await;
    let table = [
        ("host", format!("127.0.0.1:{port}"), 200, 200),
        ("host", "localhost".into(), 200, 200),
        ("host", format!("[::1]:{port}"), 200, 200),
        ("host", "evil.example".into(), 403, 403),
        ("host", "127.0.0.1.evil.example".into(), 403, 403),
        ("host", "tools.example:80".into(), 403, 200),
        ("origin", format!("http://localhost:{port}"), 200, 200),
        ("origin", "http://127.0.0.1:1".into(), 200, 200),
        ("origin", "http://evil.example".into(), 403, 403),
        ("origin", "http://localhost.evil.example".into(), 403, 403),
        ("origin", "null".into(), 403, 403),
        ("origin", "https://app.example".into(), 403, 200),
        ("origin", "http://app.example".into(), 403, 403),
        ("origin", "https://app.example:444".into(), 403, 403),
    ];
    for (name, value, by_itself, with_more) in table {
        for (server, expected) in [(&own, by_itself), (&more, with_more)] {
            let response = send(initialize(&server.url()).header(name, &value)).await;
            assert_eq!(response.status(), expected, "{name}: {value}");
        }
    }
}

#[tokio::test]
async fn tokens() {
    let server = server(|server| server.bearer_token("first").bearer_token("second")).await;
    let table = [
        (None, 401, Some("Bearer")),
        (Some("Bearer third"), 401, Some(r#"Bearer error="invalid_token""#)),
        (Some("Basic first"), 401, Some(r#"Bearer error="invalid_token""#)),
        (Some("Bearer first"), 200, None),
        (Some("Bearer second"), 200, None),
    ];
    for (sent, status, challenge) in table {
        let mut request = initialize(&server.url());
        if let Some(sent) = sent {
            request = request.header("authorization", sent);
        }
        let response = send(request).await;
        assert_eq!(response.status(), status, "{sent:?}");
        let told = response.headers().get("www-authenticate").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(told.as_deref(), challenge, "{sent:?}");
    }
    // Who has none does not learn which sessions there are, either.
    assert_eq!(send(http().get(server.url())).await.status(), 401);
    assert_eq!(send(http().delete(server.url())).await.status(), 401);
    for way in [Way::Http, Way::HttpNewest] {
        assert!(reach(&server.url(), Some("second"), way, Heard::default()).await.is_ok());
        assert!(reach(&server.url(), Some("third"), way, Heard::default()).await.is_err());
    }
}

#[tokio::test]
async fn sessions_are_as_many_as_there_may_be() {
    let server = server(|server| server.sessions(2, Duration::from_secs(60))).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let response = send(initialize(&server.url())).await;
        assert_eq!(response.status(), 200);
        ids.push(response.headers()["mcp-session-id"].to_str().unwrap().to_owned());
    }
    let refused = send(initialize(&server.url())).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"5".parse().unwrap()));
    // The newest protocol has no sessions.
    assert!(reach(&server.url(), None, Way::HttpNewest, Heard::default()).await.is_ok());
    // One that ends makes room.
    let ended = send(http().delete(server.url()).header("mcp-session-id", &ids[0])).await;
    assert!(ended.status().is_success());
    assert_eq!(send(initialize(&server.url())).await.status(), 200);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string();
    assert_eq!(send(post(&server.url(), list).header("mcp-session-id", &ids[0])).await.status(), 404);
}

#[tokio::test]
async fn a_session_that_is_idle_ends() {
    let server = server(|server| server.sessions(1, Duration::from_millis(50))).await;
    assert_eq!(send(initialize(&server.url())).await.status(), 200);
    let mut tries = 0;
    while send(initialize(&server.url())).await.status() != 200 {
        tries += 1;
        assert!(tries < 1000);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn bodies_are_as_long_as_they_may_be() {
    let server = server(|server| server.max_body(1000)).await;
    assert_eq!(send(initialize(&server.url())).await.status(), 200);
    assert_eq!(send(post(&server.url(), " ".repeat(1001))).await.status(), 413);
    // Also one that does not say how long it is.
    let pieces = futures_util::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(" ".repeat(100))));
    let request = post(&server.url(), String::new()).body(reqwest::Body::wrap_stream(pieces));
    assert_eq!(send(request).await.status(), 413);
}

#[tokio::test]
async fn who_is_too_slow_is_let_go() {
    let server = server(|server| server.read_timeout(Duration::from_millis(50))).await;
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{";
    for (sent, expected) in [(head, "408"), ("POST /mcp", ""), ("", "")] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_string(&mut answer)).await;
        read.expect("it is closed by the server").unwrap();
        assert!(answer.contains(expected), "{answer}");
    }
}
