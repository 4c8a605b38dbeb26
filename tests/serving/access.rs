//! Web pages in a browser on the same machine, and other machines, cannot use a server without permission.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, tool, tools};
use tool_openai::server::Server;

use crate::caller::{Caller, http};

/// Counts the executions of the tool of [`server`].
#[derive(Clone, Default)]
struct Executions(Arc<AtomicUsize>);

#[tool("Deletes everything")]
fn delete_all(#[inject] executions: &Executions) {
    executions.0.fetch_add(1, Ordering::Relaxed);
}

fn server(executions: &Executions) -> Server {
    let model = (0..100).fold(ScriptedModel::new(), |model, _| model.calls("delete_all", "{}").says("Done."));
    let agent = Agent::builder(model).tools(tools![delete_all]).context(executions.clone()).build().unwrap();
    Server::new().agent("m", agent)
}

/// Serves the routes as part of another application, and returns the address.
async fn embed(server: Server) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let app = axum::Router::new().nest_service("/ai", server.into_service());
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"Hi"}]}"#;

/// Sends a request with exactly these headers and returns the status and the body of the response.
async fn send(address: &str, target: &str, headers: &[&str]) -> (u16, Value) {
    let mut head =
        format!("POST {target} HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n", BODY.len());
    headers.iter().for_each(|header| head += &format!("{header}\r\n"));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{head}\r\n{BODY}").as_bytes()).await.unwrap();
    let mut response = String::new();
    let read = tokio::time::timeout(Duration::from_secs(120), stream.read_to_string(&mut response)).await;
    read.expect("the server answers").unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_ascii_lowercase().contains("access-control-"), "{head}");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {response}")))
}

const JSON: &str = "content-type: application/json";
const LOCAL: &str = "host: localhost";

#[tokio::test]
async fn a_web_page_cannot_run_tools() {
    // The headers, and the status by default and with an allowed host and origin.
    let table: [(&[&str], u16, u16); 24] = [
        (&[LOCAL, JSON], 200, 200),
        (&[LOCAL, "content-type: Application/JSON; charset=utf-8"], 200, 200),
        (&["host: 127.0.0.1:8080", JSON], 200, 200),
        (&["host: [::1]:8080", JSON], 200, 200),
        (&["host: LOCALHOST.:80", JSON], 200, 200),
        (&[LOCAL, JSON, "origin: http://localhost:3000"], 200, 200),
        // What a page of another origin can send without asking first.
        (&[LOCAL, "content-type: text/plain", "origin: https://evil.example"], 403, 403),
        (&[LOCAL, "content-type: text/plain"], 415, 415),
        (&[LOCAL, "content-type: text/plain;application/json"], 415, 415),
        (&[LOCAL, "content-type: application/x-www-form-urlencoded"], 415, 415),
        (&[LOCAL, "content-type: multipart/form-data; boundary=a"], 415, 415),
        (&[LOCAL], 415, 415),
        (&[LOCAL, JSON, "content-type: text/plain"], 415, 415),
        (&[LOCAL, JSON, "origin: https://evil.example"], 403, 403),
        (&[LOCAL, JSON, "origin: null"], 403, 403),
        // DNS rebinding: the page is of the same origin.
        (&["host: evil.example:8080", JSON, "origin: http://evil.example:8080"], 403, 403),
        (&["host: evil.example:8080", JSON], 403, 403),
        (&["host: localhost.evil.example", JSON], 403, 403),
        (&["host: localhost", "host: evil.example", JSON], 400, 400),
        (&["host:", JSON], 400, 400),
        (&[JSON], 400, 400),
        (&["host: ai.example:8080", JSON], 403, 200),
        (&[LOCAL, JSON, "origin: https://app.example"], 403, 200),
        (&[LOCAL, JSON, "origin: https://app.example:444"], 403, 403),
    ];
    let executions = Executions::default();
    let default = server(&executions).spawn("127.0.0.1:0").await.unwrap();
    let allowing = || server(&executions).allow_host("ai.example").allow_origin("https://app.example");
    let extended = allowing().spawn("127.0.0.1:0").await.unwrap();
    let [default, extended] = [&default, &extended].map(|server| server.address().to_string());
    let (embedded, embedded_extended) = (embed(server(&executions)).await, embed(allowing()).await);
    let path = "/v1/chat/completions";
    let nested = format!("/ai{path}");
    for (headers, by_default, when_extended) in table {
        for (address, target, expected) in [
            (&default, path, by_default),
            (&extended, path, when_extended),
            (&embedded, &nested, by_default),
            (&embedded_extended, &nested, when_extended),
        ] {
            let before = executions.0.load(Ordering::Relaxed);
            let (status, body) = send(address, target, headers).await;
            assert_eq!(status, expected, "{target} {headers:?}: {body}");
            let executed = executions.0.load(Ordering::Relaxed) - before;
            assert_eq!(executed, usize::from(status == 200), "{target} {headers:?}");
            if status != 200 {
                assert!(body["error"]["message"].is_string(), "{body}");
                assert_eq!(body["error"]["type"], "invalid_request_error", "{body}");
            }
        }
    }
    // The URL of the request names a host as well.
    for (target, headers, expected) in [
        ("http://localhost/v1/chat/completions", [LOCAL, JSON], 200),
        ("http://evil.example/v1/chat/completions", [LOCAL, JSON], 403),
        ("http://localhost/v1/chat/completions", ["host: evil.example", JSON], 403),
    ] {
        assert_eq!(send(&default, target, &headers).await.0, expected, "{target}");
    }
}

#[tokio::test]
async fn a_key_does_not_admit_other_hosts_and_origins() {
    let server = server(&Executions::default()).api_key("sk-1").spawn("127.0.0.1:0").await.unwrap();
    let address = server.address().to_string();
    let key = "authorization: Bearer sk-1";
    for (headers, expected) in [
        ([LOCAL, JSON, key, "x-a: b"], 200),
        (["host: evil.example", JSON, key, "x-a: b"], 403),
        ([LOCAL, JSON, key, "origin: https://evil.example"], 403),
        ([LOCAL, "content-type: text/plain", key, "x-a: b"], 415),
        ([LOCAL, JSON, "authorization: Bearer sk-2", "x-a: b"], 401),
    ] {
        assert_eq!(send(&address, "/v1/chat/completions", &headers).await.0, expected, "{headers:?}");
    }
}

#[tokio::test]
async fn a_refusal_names_the_way_out() {
    let server = server(&Executions::default()).spawn("127.0.0.1:0").await.unwrap();
    let address = server.address().to_string();
    for (headers, expected) in [
        (["host: ai.example", JSON, "x-a: b"], "the host `ai.example` is not allowed"),
        (["host: ai.example", JSON, "x-a: b"], "`allow_host`"),
        ([LOCAL, JSON, "origin: https://app.example"], "`allow_origin`"),
        ([LOCAL, "content-type: text/plain", "x-a: b"], "`Content-Type: application/json`"),
    ] {
        let (_, body) = send(&address, "/v1/responses", &headers).await;
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{message}");
    }
}

#[tokio::test]
async fn a_request_without_a_body_needs_no_content_type() {
    let caller = Caller::new(server(&Executions::default())).await;
    for request in [http().get(caller.url("models")), http().delete(caller.url("responses/x"))] {
        let answer = caller.send(request, "models").await;
        assert_ne!(answer.status, 415, "{}", answer.body);
    }
    let answer = caller.send(http().post(caller.url("responses")), "responses").await;
    assert_eq!(answer.status, 400, "{}", answer.body);
}

#[tokio::test]
async fn answers_no_preflight_request() {
    let caller = Caller::new(server(&Executions::default()).allow_origin("https://app.example")).await;
    for origin in ["http://localhost:3000", "https://app.example", "https://evil.example"] {
        let request = http()
            .request(reqwest::Method::OPTIONS, caller.url("chat/completions"))
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "content-type");
        let answer = caller.send(request, "chat/completions").await;
        assert_eq!(answer.status, if origin.contains("evil") { 403 } else { 405 }, "{origin}");
        let names: Vec<_> = answer.headers.keys().map(|name| name.as_str()).collect();
        assert!(!names.iter().any(|name| name.starts_with("access-control")), "{names:?}");
    }
}

#[tokio::test]
async fn binds_only_loopback_addresses_without_a_key() {
    let new = || server(&Executions::default());
    for address in ["0.0.0.0:0", "[::]:0"] {
        let error = new().spawn(address).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let expected = format!("`{address}` can be reached from other machines");
        assert!(error.to_string().contains(&expected), "{error}");
        assert!(error.to_string().contains("`api_key`, or call `allow_remote()`"), "{error}");
    }
    for server in [new().api_key("sk-1"), new().allow_remote()] {
        server.spawn("0.0.0.0:0").await.unwrap().stop().await.unwrap();
    }
    for address in ["127.0.0.1:0", "127.0.0.2:0", "localhost:0"] {
        new().spawn(address).await.unwrap().stop().await.unwrap();
    }
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let caller = Caller::new(server(&Executions::default()).max_connections(1)).await;
    let request = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut first = TcpStream::connect(caller.server.address()).await.unwrap();
    first.write_all(request.as_bytes()).await.unwrap();
    assert!(first.read(&mut [0; 4096]).await.unwrap() > 0);
    let mut waiting = TcpStream::connect(caller.server.address()).await.unwrap();
    waiting.write_all(request.as_bytes()).await.unwrap();
    drop(first);
    let read = async |stream: &mut TcpStream| {
        let mut buffer = vec![0; 4096];
        let length = tokio::time::timeout(Duration::from_secs(120), stream.read(&mut buffer)).await.unwrap();
        String::from_utf8(buffer[..length.unwrap_or(0)].to_vec()).unwrap()
    };
    assert!(read(&mut waiting).await.starts_with("HTTP/1.1 200"), "it is served after the first");
    // A connection that still waits when the server stops was never accepted.
    let mut never = TcpStream::connect(caller.server.address()).await.unwrap();
    never.write_all(request.as_bytes()).await.unwrap();
    caller.server.stop().await.unwrap();
    assert_eq!(read(&mut never).await, "");
}

#[tokio::test]
async fn a_body_of_the_wrong_type_is_not_parsed() {
    let caller = Caller::new(server(&Executions::default())).await;
    let request = http().post(caller.url("responses")).header("content-type", "text/plain").body("{");
    let answer = caller.send(request, "responses").await;
    let expected = json!({
        "message": "send the body with `Content-Type: application/json`",
        "type": "invalid_request_error", "param": null, "code": null,
    });
    assert_eq!((answer.status, &answer.body["error"]), (415, &expected));
}
