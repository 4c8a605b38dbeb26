//! The port of this machine that receives the redirect.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tool_mcp::oauth::{Login, OAuth};
use tool_mcp::testing::OAuthServer;
use tool_mcp::{McpError, McpErrorKind, McpServer, McpTools};

use super::support::{call, fake, parameter, problem, with_parameter};

type Connecting = JoinHandle<Result<McpTools, McpError>>;

/// Connects. Returns the authorization URL that is shown.
async fn connecting(fake: &OAuthServer) -> (Connecting, String) {
    let (sender, mut shown): (_, UnboundedReceiver<String>) = unbounded_channel();
    let login = Login::loopback(move |login| sender.send(login.url.clone()).unwrap());
    let server = McpServer::http(fake.url()).name("tickets").oauth(OAuth::new(login)).trusted();
    let connecting = tokio::spawn(server.connect());
    (connecting, shown.recv().await.unwrap())
}

async fn connect_to(redirect_uri: &str) -> TcpStream {
    let address = redirect_uri.strip_prefix("http://").unwrap().split('/').next().unwrap();
    TcpStream::connect(address).await.unwrap()
}

/// Sends bytes and returns the response.
async fn send(redirect_uri: &str, request: &str) -> String {
    let mut stream = connect_to(redirect_uri).await;
    let _ = stream.write_all(request.as_bytes()).await;
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    String::from_utf8(response).unwrap()
}

#[tokio::test]
async fn only_the_redirect_of_the_login_is_received() {
    let fake = fake().await;
    let (connecting, url) = connecting(&fake).await;
    let redirect = fake.approve(&url).await.unwrap();
    let target = redirect.strip_prefix("http://").unwrap();
    let (host, target) = target.split_at(target.find('/').unwrap());
    let (_, query) = target.split_once('?').unwrap();
    let port = host.split_once(':').unwrap().1;
    let foreign = with_parameter(&redirect, "state", Some("foreign"));
    let foreign = foreign.split_once(host).unwrap().1;
    let stateless = with_parameter(&redirect, "state", None);
    let stateless = stateless.split_once(host).unwrap().1;
    for request in [
        format!("GET {foreign} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET {stateless} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET {target}&state=foreign HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("POST {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET /other?{query} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET /callback/?{query} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET {target} HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n"),
        format!("GET {target} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n"),
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nHost: evil.example\r\n\r\n"),
        format!("GET {target} HTTP/1.1\r\n\r\n"),
        "GET /favicon.ico HTTP/1.1\r\n\r\n".into(),
        "\r\n\r\n".into(),
    ] {
        let response = send(&redirect, &request).await;
        assert!(response.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{request}: {response}");
    }
    let large = format!("GET {target}&x={} HTTP/1.1\r\nHost: {host}\r\n\r\n", "x".repeat(100_000));
    assert_eq!(send(&redirect, &large).await, "");
    assert_eq!(fake.requests("/token"), [""; 0]);

    let response = send(&redirect, &format!("GET {target} HTTP/1.1\r\nhost: {host}\r\nX: y\r\n\r\n")).await;
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(!response.contains(&parameter(&redirect, "code").unwrap()), "{response}");
    let tools = connecting.await.unwrap().unwrap();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
    // Nothing is received any more.
    assert!(TcpStream::connect(host).await.is_err());
}

#[tokio::test]
async fn slow_connections_do_not_hold_up_the_redirect() {
    let fake = fake().await;
    let (connecting, url) = connecting(&fake).await;
    let redirect_uri = parameter(&url, "redirect_uri").unwrap();
    let mut slow = Vec::new();
    for _ in 0..15 {
        let mut stream = connect_to(&redirect_uri).await;
        stream.write_all(b"GET /callback?").await.unwrap();
        slow.push(stream);
    }
    fake.log_in(&url).await.unwrap();
    connecting.await.unwrap().unwrap();
    // They end with the login.
    for mut stream in slow {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
}

/// The clock is stopped, so that the limit passes as soon as all wait.
#[tokio::test]
async fn a_slow_connection_is_closed() {
    let fake = fake().await;
    let (connecting, url) = connecting(&fake).await;
    let redirect_uri = parameter(&url, "redirect_uri").unwrap();
    let mut stream = connect_to(&redirect_uri).await;
    stream.write_all(b"GET /callback?").await.unwrap();
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    assert!(response.is_empty() && started.elapsed().as_secs() <= 11, "{:?}", started.elapsed());
    assert!(!connecting.is_finished());
    connecting.abort();
}

#[tokio::test]
async fn a_login_that_nobody_finishes_is_given_up() {
    let fake = fake().await;
    let (connecting, _) = connecting(&fake).await;
    tokio::time::pause();
    let error = connecting.await.unwrap().unwrap_err();
    let expected = "cannot be authorized: nobody logged in within 300s";
    assert_eq!(problem(&error, McpErrorKind::LoginRefused), expected);
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let fake = fake().await;
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let shown = Arc::new(Mutex::new(Vec::new()));
    let urls = Arc::clone(&shown);
    let login = Login::loopback(move |login| urls.lock().unwrap().push(login.url.clone())).port(port);
    let server = McpServer::http(fake.url()).name("tickets").oauth(OAuth::new(login));
    let problem = problem(&server.connect().await.unwrap_err(), McpErrorKind::Unauthorized);
    let error = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap_err();
    let expected = format!(
        "cannot be authorized: the port {port} of 127.0.0.1 cannot receive the login: {error}; set another one with \
         `Login::port`"
    );
    assert_eq!(problem, expected);
    assert_eq!(*shown.lock().unwrap(), [""; 0]);
}
