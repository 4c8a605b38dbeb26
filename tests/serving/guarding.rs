//! Who may ask, how much, how often, and how slowly.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tool_core::testing::ScriptedModel;
use tool_core::{AssistantMessage, ChatModel, ChatRequest, ChatResponse, ChatStream, Delta, ModelFuture};
use tool_openai::server::Server;

use crate::caller::{Caller, http};

fn body() -> serde_json::Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] })
}

#[tokio::test]
async fn a_server_with_keys_asks_for_one() {
    let server = Server::new()
        .model("m", ScriptedModel::new().says("Hi.").says("Hi."))
        .api_key("sk-1")
        .api_key("sk-2");
    assert!(!format!("{server:?}").contains("sk-"));
    let caller = Caller::of(server).await;
    for path in ["models", "chat/completions", "responses/x", "nothing"] {
        for key in [None, Some("sk-3"), Some("")] {
            let request = http().get(caller.url(path));
            let request = key.into_iter().fold(request, |request, key| request.bearer_auth(key));
            let answer = caller.send(request, path).await;
            assert_eq!(
                (answer.status, &answer.headers["www-authenticate"]),
                (401, &"Bearer".parse().unwrap())
            );
            assert_eq!(answer.body["error"]["code"], "invalid_api_key");
            assert!(!answer.body.to_string().contains("sk-"));
        }
    }
    for key in ["sk-1", "sk-2"] {
        let request = caller.request("chat/completions", &body()).bearer_auth(key);
        assert_eq!(caller.send(request, "chat/completions").await.status, 200);
    }
}

#[tokio::test]
async fn a_request_is_as_long_as_it_may_be() {
    let caller = Caller::of(Server::new().model("m", ScriptedModel::new().says("Hi.")).max_body(200)).await;
    let padded = |length: usize| format!("{:length$}", body().to_string());
    for path in ["chat/completions", "responses"] {
        let long = http().post(caller.url(path)).body(padded(201));
        assert_eq!(caller.send(long, path).await.status, 413);
        // One that does not say how long it is.
        let pieces = stream::iter(["{", " "].repeat(101)).map(Ok::<_, std::io::Error>);
        let long = http().post(caller.url(path)).body(reqwest::Body::wrap_stream(pieces));
        assert_eq!(caller.send(long, path).await.status, 413);
    }
    let right = http().post(caller.url("chat/completions")).body(padded(200));
    assert_eq!(caller.send(right, "chat/completions").await.status, 200);
}

/// A model that waits until it is let go.
struct Waiting {
    asked: Arc<Notify>,
    go: Arc<Notify>,
}

impl ChatModel for Waiting {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async {
            self.asked.notify_one();
            self.go.notified().await;
            Ok(ChatResponse::new(AssistantMessage::text("Hi.")))
        })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let first = stream::iter([Ok(Delta::Text("Hi.".into()))]);
        Box::pin(first.chain(self.chat(request).map(|response| response.map(Delta::Done)).into_stream()))
    }
}

#[tokio::test]
async fn so_many_requests_are_under_way_and_no_more() {
    let (asked, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let model = Waiting { asked: Arc::clone(&asked), go: Arc::clone(&go) };
    let caller = Caller::of(Server::new().model("m", model).max_requests(1)).await;
    for is_streamed in [false, true] {
        let mut request = body();
        request["stream"] = json!(is_streamed);
        let mut first = tokio::spawn(caller.request("chat/completions", &request).send());
        asked.notified().await;
        let begun = if is_streamed { Some((&mut first).await.unwrap().unwrap()) } else { None };
        let request = body();
        let second = caller.post("chat/completions", &request);
        let second =
            tokio::time::timeout(Duration::from_secs(30), second).await.expect("it is refused at once");
        assert_eq!((second.status, &second.headers["retry-after"]), (503, &"1".parse().unwrap()));
        go.notify_one();
        let first = match begun {
            Some(begun) => begun,
            None => first.await.unwrap().unwrap(),
        };
        assert_eq!(first.status(), 200);
        first.bytes().await.unwrap();
        // A place is free again.
        while caller.get("models").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn who_is_too_slow_is_let_go() {
    let server = Server::new().model("m", ScriptedModel::new()).read_timeout(Duration::from_millis(50));
    let caller = Caller::of(server).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n{";
    for (sent, expected) in [(head, "408"), ("POST /v1/chat/comp", ""), ("", "")] {
        let mut stream = TcpStream::connect(caller.server.address()).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = String::new();
        // It is closed by the server.
        tokio::time::timeout(Duration::from_secs(30), stream.read_to_string(&mut answer))
            .await
            .unwrap()
            .unwrap();
        assert!(answer.contains(expected), "{answer}");
    }
}

/// A model that says more and more.
struct Talkative;

impl ChatModel for Talkative {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(std::future::pending())
    }

    fn stream<'a>(&'a self, _: &'a ChatRequest<'_>) -> ChatStream<'a> {
        Box::pin(stream::repeat_with(|| Ok(Delta::Text("blah ".repeat(10_000)))))
    }
}

#[tokio::test]
async fn who_takes_nothing_is_let_go() {
    let server = Server::new().model("m", Talkative).read_timeout(Duration::from_millis(200));
    let caller = Caller::of(server).await;
    let mut request = body();
    request["stream"] = json!(true);
    let request = request.to_string();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n";
    let mut stream = TcpStream::connect(caller.server.address()).await.unwrap();
    let request = format!("{head}content-length: {}\r\n\r\n{request}", request.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(stream.read(&mut [0; 16]).await.unwrap() > 0, "it has begun");
    let stopped = tokio::time::timeout(Duration::from_secs(30), caller.server.stop()).await;
    assert!(stopped.is_ok(), "the server waits for a caller who reads nothing");
}
