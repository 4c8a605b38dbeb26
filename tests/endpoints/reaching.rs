//! Reaching an endpoint: its URL, the headers of each request, connections, and the number of requests in flight.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tests::support::{RawServer, whole_answer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tool_core::model::{ChatRequest, Delta};
use tool_core::{ChatModel, Message};
use tool_openai::{Endpoint, ErrorKind, OpenAi, OpenAiBuilder};

const TEXT: &[u8] = br#"{"choices":[{"message":{"content":"Hello."},"finish_reason":"stop"}]}"#;

async fn server() -> RawServer {
    RawServer::answering("200 OK", &[("content-type", "application/json")], TEXT).await
}

/// Returns the request as the server received it.
async fn sent(builder: OpenAiBuilder, server: &RawServer) -> String {
    let request = ChatRequest::new([Message::user("Hello")]);
    builder.build().unwrap().chat_model("my model/4").chat(&request).await.unwrap();
    server.requests().pop().unwrap()
}

#[tokio::test]
async fn supports_both_forms_of_azure() {
    let server = server().await;
    let origin = format!("http://{}", server.address);
    let key = |endpoint: Endpoint, url: String| {
        OpenAi::builder().endpoint(endpoint).base_url(url).api_key("sk-very-secret-key")
    };
    let request = sent(key(Endpoint::azure("mine"), format!("{origin}/openai/v1")), &server).await;
    assert!(request.starts_with("POST /openai/v1/chat/completions HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\napi-key: sk-very-secret-key\r\n"), "{request}");
    assert!(!request.contains("authorization"), "{request}");
    let deployments = Endpoint::azure_deployments("mine", "2024-10-21");
    let request = sent(key(deployments, origin), &server).await;
    let expected =
        "POST /openai/deployments/my%20model%2F4/chat/completions?api-version=2024-10-21 HTTP/1.1\r\n";
    assert!(request.starts_with(expected), "{request}");
}

#[tokio::test]
async fn an_endpoint_has_a_base_url() {
    let table = [
        (Endpoint::azure("mine"), "https://mine.openai.azure.com/openai/v1"),
        (Endpoint::azure("https://mine.openai.azure.com/"), "https://mine.openai.azure.com/openai/v1"),
        (Endpoint::azure_deployments("mine", "1"), "https://mine.openai.azure.com/"),
        (Endpoint::ollama(), "http://localhost:11434/v1"),
        (Endpoint::gemini(), "https://generativelanguage.googleapis.com/v1beta/openai"),
    ];
    for (endpoint, url) in table {
        let openai = OpenAi::builder().endpoint(endpoint).api_key("sk-1").build().unwrap();
        assert!(format!("{openai:?}").contains(url), "{openai:?}");
    }
    let error = OpenAi::builder().endpoint(Endpoint::compatible()).build().unwrap_err();
    assert_eq!(error.to_string(), "the endpoint has no base URL; set one with `base_url`");
}

#[test]
fn reports_a_missing_key() {
    let table = [
        (OpenAi::builder(), Some("OPENAI_API_KEY")),
        (OpenAi::builder().endpoint(Endpoint::deepseek()), Some("DEEPSEEK_API_KEY")),
        (OpenAi::builder().endpoint(Endpoint::deepseek()).base_url("http://gateway.example/v1"), None),
        (OpenAi::builder().endpoint(Endpoint::deepseek()).header("x-gateway", "a"), None),
        (OpenAi::builder().endpoint(Endpoint::ollama()), None),
    ];
    for (builder, expected) in table {
        let error = builder.build().err().map(|error| error.to_string());
        let expected = expected.map(|name| {
            format!("no API key; set one with `api_key`, or read it from {name} with `api_key_from_env`")
        });
        assert_eq!(error, expected);
    }
}

#[test]
fn reports_a_key_missing_in_the_environment() {
    let mut endpoint = Endpoint::deepseek();
    endpoint.api_key_variable = Some("SURELY_NOBODY_SETS_THIS_KEY".into());
    let error = OpenAi::builder().endpoint(endpoint).api_key_from_env().build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the environment variable SURELY_NOBODY_SETS_THIS_KEY is not set; set it, or set the key with `api_key`"
    );
    let error = OpenAi::builder().endpoint(Endpoint::ollama()).api_key_from_env().build().unwrap_err();
    assert!(
        error.to_string().starts_with("this endpoint has no environment variable for its key"),
        "{error}"
    );
}

#[tokio::test]
async fn sends_custom_headers() {
    let server = server().await;
    let builder = OpenAi::builder()
        .base_url(server.base_url())
        .api_key("sk-very-secret-key")
        .organization("org")
        .project("pro")
        .header("x-team", "first")
        .header("x-team", "blue-secret");
    assert!(!format!("{builder:?}").contains("secret"));
    let request = sent(builder, &server).await;
    for line in ["openai-organization: org", "openai-project: pro", "x-team: blue-secret"] {
        assert!(request.contains(&format!("\r\n{line}\r\n")), "{line}: {request}");
    }
    assert!(!request.contains("first"));
    for (name, value, expected) in [
        ("x team", "a", "invalid header name `x team`"),
        (
            "x-team",
            "a\nsecret",
            "the value of the header `x-team` contains a character that is not allowed in headers",
        ),
    ] {
        let error =
            OpenAi::builder().base_url("http://localhost/v1").header(name, value).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn sends_requests_through_a_proxy() {
    let proxy = server().await;
    let url = format!("http://user:secret@{}", proxy.address);
    let builder = OpenAi::builder().base_url("http://far.example/v1").proxy(url);
    assert!(!format!("{builder:?}").contains("secret"));
    let request = sent(builder, &proxy).await;
    assert!(request.starts_with("POST http://far.example/v1/chat/completions HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nproxy-authorization: Basic "), "{request}");
    let error =
        OpenAi::builder().base_url("http://far.example/v1").proxy("http://a b:secret").build().unwrap_err();
    assert!(error.kind() == ErrorKind::Config && !format!("{error:?}").contains("secret"), "{error:?}");
}

#[tokio::test]
async fn uses_a_custom_http_client() {
    let server = server().await;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().user_agent("mine/1").no_proxy().build().unwrap();
    let builder = OpenAi::builder().base_url(server.base_url()).api_key("sk-1").http_client(client);
    let request = sent(builder, &server).await;
    assert!(request.contains("\r\nuser-agent: mine/1\r\n"), "{request}");
    assert!(request.contains("\r\nauthorization: Bearer sk-1\r\n"), "{request}");
}

#[tokio::test(start_paused = true)]
async fn limits_the_number_of_requests_in_flight() {
    let error = OpenAi::builder().base_url("http://localhost/v1").max_concurrent_requests(0).build();
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Config);

    let (address, most_in_flight) = counting_requests().await;
    let openai = OpenAi::builder().base_url(format!("http://{address}/v1")).max_concurrent_requests(1);
    let model = openai.build().unwrap().chat_model("m");
    let request = ChatRequest::new([Message::user("Hello")]);
    let answers = join_all((0..8).map(|_| model.chat(&request))).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(most_in_flight.load(Ordering::SeqCst), 1);

    // A stream that is being read counts as in flight; a dropped one does not.
    let mut stream = model.stream(&request);
    assert!(stream.next().await.unwrap().is_ok());
    drop(stream);
    assert!(model.chat(&request).await.is_ok());
}

/// Starts a server that answers each request once all tasks wait, and counts how many requests it has at the same time.
async fn counting_requests() -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let most = Arc::new(AtomicUsize::new(0));
    let (in_flight, highest) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&most));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (in_flight, highest) = (Arc::clone(&in_flight), Arc::clone(&highest));
            tokio::spawn(async move {
                highest.fetch_max(in_flight.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                assert!(stream.read(&mut vec![0; 1 << 16]).await.unwrap() > 0);
                tokio::time::sleep(Duration::from_millis(1)).await;
                in_flight.fetch_sub(1, Ordering::SeqCst);
                let answer = whole_answer("200 OK", &[("content-type", "application/json")], TEXT);
                stream.write_all(&answer).await.unwrap();
            });
        }
    });
    (address, most)
}

/// Starts a server that counts connections and answers several requests on each: with the head and the body, and once all
/// tasks wait, with the end.
async fn counting_connections(answer: String, end: Option<&'static str>) -> (OpenAi, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0; 1 << 16];
                // Each request arrives in a single read here.
                while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    if let Some(end) = end {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        stream.write_all(end.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    (OpenAi::builder().base_url(format!("http://{address}/v1")).build().unwrap(), connections)
}

/// Returns once all other tasks wait: only then does the paused clock of a test advance.
async fn until_all_wait() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn reuses_connections() {
    let text = std::str::from_utf8(TEXT).unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        text.len()
    );
    let (openai, connections) = counting_connections(head + text, None).await;
    let request = ChatRequest::new([Message::user("Hello")]);
    for model in ["a", "b", "a", "b"] {
        openai.chat_model(model).chat(&request).await.unwrap();
        until_all_wait().await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn reuses_connections_of_streams() {
    let events = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = format!("{head}{:x}\r\n{events}\r\n", events.len());
    // The client does not wait for a server that never ends its answer.
    for (end, is_reused) in [(Some("0\r\n\r\n"), true), (None, false)] {
        let (openai, connections) = counting_connections(answer.clone(), end).await;
        let (model, request) = (openai.chat_model("m"), ChatRequest::new([Message::user("Hello")]));
        for _ in 0..5 {
            // A run stops reading once it has the response.
            let mut stream = model.stream(&request);
            while !matches!(stream.next().await.unwrap().unwrap(), Delta::Done(_)) {}
            drop(stream);
            until_all_wait().await;
        }
        assert_eq!(connections.load(Ordering::SeqCst), if is_reused { 1 } else { 5 });
    }
}
