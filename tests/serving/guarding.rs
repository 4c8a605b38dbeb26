//! Authorization and limits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{self, FuturesUnordered, StreamExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tool_core::ChatModel;
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ChatStream, Delta};
use tool_core::provider::ModelFuture;
use tool_core::testing::ScriptedModel;
use tool_openai::server::Server;

use crate::caller::{Caller, http, post};

fn body() -> serde_json::Value {
    json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] })
}

#[tokio::test]
async fn requires_one_of_the_keys() {
    let server = Server::new()
        .model("m", ScriptedModel::new().says("Hi.").says("Hi."))
        .api_key("sk-1")
        .api_key("sk-2");
    assert!(!format!("{server:?}").contains("sk-"));
    let caller = Caller::new(server).await;
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
async fn limits_the_size_of_a_request() {
    let caller =
        Caller::new(Server::new().model("m", ScriptedModel::new().says("Hi.")).max_body_bytes(200)).await;
    let padded = |length: usize| format!("{:length$}", body().to_string());
    for path in ["chat/completions", "responses"] {
        let long = post(&caller.url(path)).body(padded(201));
        assert_eq!(caller.send(long, path).await.status, 413);
        // A chunked body does not announce its size.
        let chunks = stream::iter(["{", " "].repeat(101)).map(Ok::<_, std::io::Error>);
        let long = post(&caller.url(path)).body(reqwest::Body::wrap_stream(chunks));
        assert_eq!(caller.send(long, path).await.status, 413);
    }
    let fitting = post(&caller.url("chat/completions")).body(padded(200));
    assert_eq!(caller.send(fitting, "chat/completions").await.status, 200);
}

/// A model that answers only when it is released.
struct Waiting {
    started: Arc<Notify>,
    release: Arc<Notify>,
}

impl ChatModel for Waiting {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async {
            self.started.notify_one();
            self.release.notified().await;
            Ok(ChatResponse::new(AssistantMessage::text("Hi.")))
        })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let first = stream::iter([Ok(Delta::Text("Hi.".into()))]);
        ChatStream::new(
            first.chain(self.chat(request).map(|response| response.map(Delta::Done)).into_stream()),
        )
    }
}

#[tokio::test]
async fn limits_the_number_of_requests_in_flight() {
    let (started, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let model = Waiting { started: Arc::clone(&started), release: Arc::clone(&release) };
    let caller = Caller::new(Server::new().model("m", model).max_concurrent_requests(1)).await;
    for is_streamed in [false, true] {
        let mut request = body();
        request["stream"] = json!(is_streamed);
        let mut first = tokio::spawn(caller.request("chat/completions", &request).send());
        started.notified().await;
        let streaming = if is_streamed { Some((&mut first).await.unwrap().unwrap()) } else { None };
        let request = body();
        let second = caller.post("chat/completions", &request);
        let second = tokio::time::timeout(Duration::from_secs(120), second).await.expect("refused at once");
        assert_eq!((second.status, &second.headers["retry-after"]), (503, &"1".parse().unwrap()));
        release.notify_one();
        let first = match streaming {
            Some(response) => response,
            None => first.await.unwrap().unwrap(),
        };
        assert_eq!(first.status(), 200);
        first.bytes().await.unwrap();
        // The permit is released again.
        while caller.get("models").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test]
async fn limits_the_number_of_requests_in_flight_of_each_key() {
    let (started, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let model = Waiting { started: Arc::clone(&started), release: Arc::clone(&release) };
    let server = Server::new().model("m", model).api_key("sk-1").api_key("sk-2");
    let caller = Caller::new(server.max_concurrent_requests_per_key(1)).await;
    let models = |key: &str| caller.send(http().get(caller.url("models")).bearer_auth(key), "models");
    for is_streamed in [false, true] {
        let mut request = body();
        request["stream"] = json!(is_streamed);
        let first = caller.request("chat/completions", &request).bearer_auth("sk-1").send();
        let mut first = tokio::spawn(first);
        started.notified().await;
        let streaming = if is_streamed { Some((&mut first).await.unwrap().unwrap()) } else { None };
        let refused = models("sk-1").await;
        assert_eq!((refused.status, &refused.headers["retry-after"]), (429, &"1".parse().unwrap()));
        assert_eq!(
            refused.body["error"],
            json!({
                "message": "this key has 1 requests in flight, which is its limit; try again later",
                "type": "rate_limit_error",
                "param": null,
                "code": "rate_limit_exceeded",
            })
        );
        assert_eq!(models("sk-2").await.status, 200);
        release.notify_one();
        let first = match streaming {
            Some(response) => response,
            None => first.await.unwrap().unwrap(),
        };
        first.bytes().await.unwrap();
        // The permit is released again.
        while models("sk-1").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Callers without a key cannot be told apart.
#[tokio::test]
async fn a_key_has_256_requests_in_flight_by_default() {
    let started = Arc::new(Notify::new());
    let model = || Waiting { started: Arc::clone(&started), release: Arc::new(Notify::new()) };
    let with_key = Caller::new(Server::new().model("m", model()).api_key("sk-1").api_key("sk-2")).await;
    let without = Caller::new(Server::new().model("m", model()).max_concurrent_requests(257)).await;
    for (caller, requests, status) in [(with_key, 257, 429), (without, 258, 503)] {
        let send = || {
            let request = caller.request("chat/completions", &body()).bearer_auth("sk-1");
            caller.send(request, "chat/completions")
        };
        let mut in_flight: FuturesUnordered<_> = (0..requests).map(|_| send()).collect();
        // All others wait for the model.
        assert_eq!(in_flight.next().await.unwrap().status, status);
    }
}

#[tokio::test]
async fn limits_the_total_size_of_requests_in_flight() {
    let (started, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let model = Waiting { started: Arc::clone(&started), release: Arc::clone(&release) };
    let server = Server::new().model("m", model).model("quick", ScriptedModel::new().says("Hi.").says("Hi."));
    let caller = Caller::new(server.max_body_bytes(1000).max_total_body_bytes(1500)).await;
    let send = |name: &str, is_streamed: bool, length: usize| {
        let mut request = body();
        request["model"] = json!(name);
        request["stream"] = json!(is_streamed);
        post(&caller.url("chat/completions")).body(format!("{:length$}", request.to_string()))
    };
    for is_streamed in [false, true] {
        let mut first = tokio::spawn(send("m", is_streamed, 1000).send());
        started.notified().await;
        let streaming = if is_streamed { Some((&mut first).await.unwrap().unwrap()) } else { None };
        let second = caller.send(send("quick", false, 501), "chat/completions").await;
        assert_eq!((second.status, &second.headers["retry-after"]), (503, &"1".parse().unwrap()));
        assert_eq!(caller.send(send("quick", false, 500), "chat/completions").await.status, 200);
        release.notify_one();
        let first = match streaming {
            Some(response) => response,
            None => first.await.unwrap().unwrap(),
        };
        assert_eq!(first.status(), 200);
        first.bytes().await.unwrap();
        // There is room again: an unknown model is reported only after the body was read.
        while caller.send(send("none", false, 1000), "chat/completions").await.status != 404 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn disconnects_callers_that_send_too_slowly() {
    let server = Server::new().model("m", ScriptedModel::new()).read_timeout(Duration::from_millis(50));
    let caller = Caller::new(server).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{";
    for (sent, expected) in [(head, "408"), ("POST /v1/chat/comp", ""), ("", "")] {
        let mut stream = TcpStream::connect(caller.server.address()).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = String::new();
        // The server closes the connection.
        tokio::time::timeout(Duration::from_secs(120), stream.read_to_string(&mut answer))
            .await
            .unwrap()
            .unwrap();
        assert!(answer.contains(expected), "{answer}");
    }
}

/// A model that streams without end.
struct Talkative;

impl ChatModel for Talkative {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(std::future::pending())
    }

    fn stream<'a>(&'a self, _: &'a ChatRequest<'_>) -> ChatStream<'a> {
        ChatStream::new(stream::repeat_with(|| Ok(Delta::Text("blah ".repeat(10_000)))))
    }
}

#[tokio::test(start_paused = true)]
async fn disconnects_callers_that_do_not_read() {
    let server = Server::new().model("m", Talkative).read_timeout(Duration::from_millis(200));
    let caller = Caller::new(server).await;
    let mut request = body();
    request["stream"] = json!(true);
    let request = request.to_string();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut stream = TcpStream::connect(caller.server.address()).await.unwrap();
    let request = format!("{head}content-length: {}\r\n\r\n{request}", request.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(stream.read(&mut [0; 16]).await.unwrap() > 0, "the stream has started");
    let stopped = tokio::time::timeout(Duration::from_secs(120), caller.server.stop()).await;
    assert!(stopped.is_ok(), "the server waits for a caller that does not read");
}
