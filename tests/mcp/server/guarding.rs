//! Authorization and limits over HTTP.

use std::time::Duration;

use reqwest::{RequestBuilder, Response};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tool_core::tools;
use tool_mcp::server::{RunningServer, Server};

use super::client::{Connection, Notifications, connect_http, http};
use super::tools::sum;

async fn server(configure: impl FnOnce(Server) -> Server) -> RunningServer {
    configure(Server::new(tools![sum])).spawn("127.0.0.1:0").await.unwrap()
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
    tokio::time::timeout(Duration::from_secs(120), request.send()).await.unwrap().unwrap()
}

#[tokio::test]
async fn accepts_only_allowed_hosts_and_origins() {
    let default = server(|server| server).await;
    let port = default.address().port();
    let extended =
        server(|server| server.allow_host("tools.example").allow_origin("https://app.example:443")).await;
    let table = [
        ("host", format!("127.0.0.1:{port}"), 200, 200),
        ("host", "localhost".into(), 200, 200),
        ("host", format!("[::1]:{port}"), 200, 200),
        ("host", "evil.example".into(), 403, 403),
        ("host", "127.0.0.1.evil.example".into(), 403, 403),
        ("host", "LOCALHOST.:1".into(), 200, 200),
        ("host", "127.0.0.2".into(), 200, 200),
        ("host", "user@localhost".into(), 400, 400),
        ("host", "TOOLS.example.".into(), 403, 200),
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
    for (name, value, by_default, when_extended) in table {
        for (server, expected) in [(&default, by_default), (&extended, when_extended)] {
            let response = send(initialize(&server.url()).header(name, &value)).await;
            assert_eq!(response.status(), expected, "{name}: {value}");
        }
    }
}

#[tokio::test]
async fn a_token_does_not_admit_other_hosts_and_origins() {
    let server = server(|server| server.bearer_token("first")).await;
    for (name, value, expected) in [
        ("host", "localhost", 200),
        ("host", "evil.example", 403),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
    ] {
        let request = initialize(&server.url()).bearer_auth("first").header(name, value);
        assert_eq!(send(request).await.status(), expected, "{name}: {value}");
    }
}

#[tokio::test]
async fn checks_every_host_that_a_request_names() {
    let server = server(|server| server).await;
    let body = initialize(&server.url()).build().unwrap().body().unwrap().as_bytes().unwrap().to_vec();
    for (target, hosts, expected) in [
        ("/mcp", "host: localhost\r\n", "200"),
        ("/mcp", "", "400"),
        ("/mcp", "host:\r\n", "400"),
        ("/mcp", "host: localhost\r\nhost: evil.example\r\n", "400"),
        ("http://localhost/mcp", "host: localhost\r\n", "200"),
        ("http://evil.example/mcp", "host: localhost\r\n", "403"),
        ("http://localhost/mcp", "host: evil.example\r\n", "403"),
    ] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        let head = format!(
            "POST {target} HTTP/1.1\r\n{hosts}content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             connection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
        let mut answer = String::new();
        let read = tokio::time::timeout(Duration::from_secs(120), stream.read_to_string(&mut answer)).await;
        read.unwrap().unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(expected), "{target} {hosts:?}: {answer}");
    }
}

#[tokio::test]
async fn requires_one_of_the_tokens() {
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
        let actual =
            response.headers().get("www-authenticate").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(actual.as_deref(), challenge, "{sent:?}");
    }
    // Without a token, a client cannot find out which sessions exist.
    assert_eq!(send(http().get(server.url())).await.status(), 401);
    assert_eq!(send(http().delete(server.url())).await.status(), 401);
    for connection in [Connection::Http, Connection::HttpNewest] {
        assert!(
            connect_http(&server.url(), Some("second"), connection, Notifications::default()).await.is_ok()
        );
        let refused = connect_http(&server.url(), Some("third"), connection, Notifications::default()).await;
        let error = refused.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(" error: Auth required, when send "), "{connection:?}: {error}");
    }
}

#[tokio::test]
async fn limits_the_number_of_sessions() {
    let server = server(|server| server.max_sessions(2)).await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let response = send(initialize(&server.url())).await;
        assert_eq!(response.status(), 200);
        ids.push(response.headers()["mcp-session-id"].to_str().unwrap().to_owned());
    }
    let refused = send(initialize(&server.url())).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (503, &"5".parse().unwrap()));
    // The newest protocol has no sessions.
    assert!(
        connect_http(&server.url(), None, Connection::HttpNewest, Notifications::default()).await.is_ok()
    );
    // A session that ends makes room.
    let ended = send(http().delete(server.url()).header("mcp-session-id", &ids[0])).await;
    assert!(ended.status().is_success());
    assert_eq!(send(initialize(&server.url())).await.status(), 200);
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }).to_string();
    assert_eq!(send(post(&server.url(), list).header("mcp-session-id", &ids[0])).await.status(), 404);
}

#[tokio::test]
async fn ends_idle_sessions() {
    let server =
        server(|server| server.max_sessions(1).session_idle_timeout(Duration::from_millis(50))).await;
    assert_eq!(send(initialize(&server.url())).await.status(), 200);
    let mut tries = 0;
    while send(initialize(&server.url())).await.status() != 200 {
        tries += 1;
        assert!(tries < 1000);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn limits_the_size_of_a_request() {
    let server = server(|server| server.max_body_bytes(1000)).await;
    assert_eq!(send(initialize(&server.url())).await.status(), 200);
    assert_eq!(send(post(&server.url(), " ".repeat(1001))).await.status(), 413);
    // A chunked body does not announce its size.
    let chunks = futures_util::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(" ".repeat(100))));
    let request = post(&server.url(), String::new()).body(reqwest::Body::wrap_stream(chunks));
    assert_eq!(send(request).await.status(), 413);
}

#[tokio::test(start_paused = true)]
async fn disconnects_clients_that_send_too_slowly() {
    let server = server(|server| server.record_messages().read_timeout(Duration::from_millis(50))).await;
    let head = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n{";
    for (sent, expected) in [(head, "408"), ("POST /mcp", ""), ("", "")] {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let read = tokio::time::timeout(Duration::from_secs(120), stream.read_to_string(&mut answer)).await;
        read.expect("the server closes the connection").unwrap();
        assert!(answer.contains(expected), "{answer}");
    }
}
