//! Graceful shutdown: no new requests, and requests in flight finish or are aborted.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tool_core::ChatModel;
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, ChatStream, Delta, ModelError};
use tool_core::provider::ModelFuture;
use tool_openai::server::Server;

use crate::caller::{Caller, read_events};

/// A model that starts to answer, and finishes when it is released.
#[derive(Clone, Default)]
struct Slow {
    started: Arc<Notify>,
    release: Arc<Notify>,
}

impl ChatModel for Slow {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async {
            self.started.notify_one();
            self.release.notified().await;
            Ok(ChatResponse::new(AssistantMessage::text("Well, yes.")))
        })
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        use futures_util::{FutureExt, StreamExt};
        let first = futures_util::stream::iter([Ok::<_, ModelError>(Delta::Text("Well, ".into()))]);
        let rest = self.chat(request).map(|response| response.map(Delta::Done)).into_stream();
        ChatStream::new(first.chain(rest))
    }
}

async fn start_request(caller: &Caller, model: &Slow, is_streamed: bool) -> TcpStream {
    let body =
        json!({ "model": "m", "stream": is_streamed, "messages": [{ "role": "user", "content": "Hi" }] });
    let (body, length) = (body.to_string(), body.to_string().len());
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    let mut stream = TcpStream::connect(caller.server.address()).await.unwrap();
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    model.started.notified().await;
    stream
}

async fn read(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(120), stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn stop_waits_for_requests_in_flight() {
    for is_streamed in [false, true] {
        let model = Slow::default();
        let caller = Caller::new(Server::new().model("m", model.clone())).await;
        let stream = start_request(&caller, &model, is_streamed).await;
        let idle = TcpStream::connect(caller.server.address()).await.unwrap();
        let address = caller.server.address();
        let stopping = tokio::spawn(caller.server.stop());
        // No more connections are accepted.
        while TcpStream::connect(address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(!stopping.is_finished());
        model.release.notify_one();
        let answer = read(stream).await;
        assert!(answer.contains("Well, "), "{answer}");
        assert_eq!(is_streamed, answer.contains("[DONE]"), "{answer}");
        stopping.await.unwrap().unwrap();
        drop(idle);
    }
}

#[tokio::test]
async fn stop_within_aborts_requests_after_the_timeout() {
    for is_streamed in [false, true] {
        let model = Slow::default();
        let caller = Caller::new(Server::new().model("m", model.clone())).await;
        let stream = start_request(&caller, &model, is_streamed).await;
        caller.server.stop_within(Duration::from_millis(20)).await.unwrap();
        assert!(!read(stream).await.contains("[DONE]"));
    }
}

#[tokio::test]
async fn a_dropped_server_still_answers_requests_in_flight() {
    let model = Slow::default();
    let caller = Caller::new(Server::new().model("m", model.clone())).await;
    let stream = start_request(&caller, &model, true).await;
    let address = caller.server.address();
    drop(caller);
    while TcpStream::connect(address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    model.release.notify_one();
    assert!(read(stream).await.contains("[DONE]"));
    assert_eq!(read_events("data: [DONE]\n\n").len(), 0);
}
