//! A caller without a client library that checks every response against the published schemas.

use serde_json::{Value, json};
use tests::support::schema::Document;
use tool_openai::server::{RunningServer, Server};

/// A running server and an HTTP client for it.
pub(crate) struct Caller {
    pub(crate) server: RunningServer,
    http: reqwest::Client,
}

/// A parsed response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Caller {
    pub(crate) async fn new(server: Server) -> Self {
        Self { server: server.spawn("127.0.0.1:0").await.unwrap(), http: http() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.server.url())
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(path, body), path).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.http.get(self.url(path)), path).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(self.http.delete(self.url(path)), path).await
    }

    pub(crate) fn request(&self, path: &str, body: &Value) -> reqwest::RequestBuilder {
        let request = self.http.post(self.url(path)).header("content-type", "application/json");
        request.body(body.to_string())
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder, path: &str) -> Answer {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        assert!(headers["x-request-id"].to_str().unwrap().len() > 20);
        let body: Value = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
        let kind = match path {
            _ if status != 200 => Some(Document::Error),
            "chat/completions" => Some(Document::Completion),
            _ if body["object"] == "response" && body["deleted"].is_null() => Some(Document::Response),
            _ => None,
        };
        if let Some(kind) = kind {
            kind.check(&body);
        }
        Answer { status, headers, body }
    }

    /// Posts a body and returns the response, which must have status 200.
    pub(crate) async fn ask(&self, path: &str, body: &Value) -> Value {
        let answer = self.post(path, body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.body);
        answer.body
    }

    /// Returns the events of a streamed response without `[DONE]`.
    pub(crate) async fn events(&self, path: &str, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let response = self.request(path, &body).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        read_events(std::str::from_utf8(&response.bytes().await.unwrap()).unwrap())
    }
}

/// Parses and checks the events of a body.
pub(crate) fn read_events(text: &str) -> Vec<Value> {
    let mut events = Vec::new();
    let mut is_done = false;
    for event in text.split_terminator("\n\n") {
        assert!(!is_done, "an event after `[DONE]`: {event}");
        let (name, data) = match event.split_once('\n') {
            Some((name, data)) => (name.strip_prefix("event: "), data.strip_prefix("data: ").unwrap()),
            None => (None, event.strip_prefix("data: ").unwrap()),
        };
        if data == "[DONE]" {
            is_done = true;
            continue;
        }
        let event: Value = serde_json::from_str(data).unwrap();
        match name {
            Some(name) => {
                assert_eq!(event["type"], name);
                Document::Event.check(&event);
            }
            None if event["error"].is_object() => Document::Error.check(&event),
            None => Document::Chunk.check(&event),
        }
        events.push(event);
    }
    events
}

/// Starts a request with a body of JSON.
pub(crate) fn post(url: &str) -> reqwest::RequestBuilder {
    http().post(url).header("content-type", "application/json")
}

pub(crate) fn http() -> reqwest::Client {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let tls =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
    reqwest::Client::builder().no_proxy().tls_backend_preconfigured(tls).build().unwrap()
}
