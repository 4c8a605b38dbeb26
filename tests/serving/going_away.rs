//! A caller that disconnects cancels its request in flight.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tool_core::model::{ChatRequest, ChatStream, Delta};
use tool_core::provider::ModelFuture;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, CancellationToken, ChatModel, tool, tools};
use tool_openai::server::Server;

use crate::caller::Caller;

/// Notified when a call starts and when it is dropped.
#[derive(Clone, Default)]
struct Witness {
    started: Arc<Notify>,
    dropped: Arc<Notify>,
}

struct OnDrop(Arc<Notify>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A model that never answers; a stream yields one delta.
struct Endless(Witness);

impl ChatModel for Endless {
    fn chat<'a>(&'a self, _: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        Box::pin(async {
            let _on_drop = OnDrop(Arc::clone(&self.0.dropped));
            self.0.started.notify_one();
            std::future::pending().await
        })
    }

    fn stream<'a>(&'a self, _: &'a ChatRequest<'_>) -> ChatStream<'a> {
        let on_drop = OnDrop(Arc::clone(&self.0.dropped));
        let mut is_first = true;
        ChatStream::new(futures_util::stream::poll_fn(move |_| {
            let _held = &on_drop;
            if std::mem::take(&mut is_first) {
                self.0.started.notify_one();
                return std::task::Poll::Ready(Some(Ok(Delta::Text("Well".into()))));
            }
            std::task::Poll::Pending
        }))
    }
}

/// Waits forever; a separate task observes the cancellation.
#[tool("Waits")]
async fn wait(#[inject] cancellation: &CancellationToken, #[inject] witness: &Witness) -> &'static str {
    let (dropped, cancellation) = (Arc::clone(&witness.dropped), cancellation.clone());
    tokio::spawn(async move {
        cancellation.cancelled().await;
        dropped.notify_one();
    });
    witness.started.notify_one();
    std::future::pending().await
}

#[tokio::test]
async fn cancels_requests_in_flight() {
    for path in ["chat/completions", "responses"] {
        for is_streamed in [false, true] {
            for name in ["model", "agent", "agent with a tool"] {
                let witness = Witness::default();
                let scripted = (0..2).fold(ScriptedModel::new(), |model, _| model.calls("wait", "{}"));
                let agent = Agent::builder(Endless(witness.clone())).build().unwrap();
                let calling =
                    Agent::builder(scripted).tools(tools![wait]).context(witness.clone()).build().unwrap();
                let server = Server::new().model("model", Endless(witness.clone()));
                let caller =
                    Caller::new(server.agent("agent", agent).agent("agent with a tool", calling)).await;
                let body = json!({
                    "model": name, "stream": is_streamed,
                    "messages": [{ "role": "user", "content": "Hi" }], "input": "Hi",
                })
                .to_string();
                let head = format!(
                    "POST /v1/{path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    body.len()
                );
                let mut stream = TcpStream::connect(caller.server.address()).await.unwrap();
                stream.write_all((head + &body).as_bytes()).await.unwrap();
                let soon = Duration::from_secs(120);
                tokio::time::timeout(soon, witness.started.notified()).await.unwrap();
                if is_streamed && name != "agent with a tool" {
                    assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0, "the stream has started");
                }
                drop(stream);
                let cancelled = tokio::time::timeout(soon, witness.dropped.notified()).await;
                assert!(cancelled.is_ok(), "{path}, {name}, streamed: {is_streamed}");
            }
        }
    }
}

#[tokio::test]
async fn notices_a_disconnect_despite_unread_bytes() {
    let request = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut cases = Vec::new();
    for pipelined in ["\r\n".to_owned(), request.to_owned(), request.repeat(1000)] {
        // The bytes arrive with the request or later; the connection is closed or reset.
        for (is_later, is_reset) in [(false, false), (false, true), (true, false), (true, true)] {
            cases.push(disconnect(pipelined.clone(), is_later, is_reset));
        }
    }
    join_all(cases).await;
}

async fn disconnect(pipelined: String, is_later: bool, is_reset: bool) {
    let body = json!({ "model": "model", "messages": [{ "role": "user", "content": "Hi" }] }).to_string();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let witness = Witness::default();
    let caller = Caller::new(Server::new().model("model", Endless(witness.clone()))).await;
    let mut stream = TcpStream::connect(caller.server.address()).await.unwrap();
    let first = if is_later { request } else { request + &pipelined };
    stream.write_all(first.as_bytes()).await.unwrap();
    let soon = Duration::from_secs(120);
    tokio::time::timeout(soon, witness.started.notified()).await.unwrap();
    if is_later {
        stream.write_all(pipelined.as_bytes()).await.unwrap();
    }
    if is_reset {
        stream.set_zero_linger().unwrap();
    }
    drop(stream);
    let cancelled = tokio::time::timeout(soon, witness.dropped.notified()).await;
    assert!(cancelled.is_ok(), "{} bytes, later: {is_later}, reset: {is_reset}", pipelined.len());
}
