//! What goes wrong between the client and an endpoint is told clearly, in time, and without the key.

mod support;

use std::error::Error as _;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use support::RawServer;
use tool_core::{Agent, ChatModel, ChatRequest, Delta, Message};
use tool_openai::OpenAi;

fn client(base_url: &str) -> OpenAi {
    OpenAi::builder()
        .base_url(base_url)
        .api_key("sk-very-secret")
        .connect_timeout(Duration::from_secs(2))
        .read_timeout(Duration::from_millis(500))
        .build()
        .unwrap()
}

/// What the user sees of an error: no part of it may hold the key.
async fn failure(base_url: &str) -> tool_openai::Error {
    let model = client(base_url).chat_model("m");
    let request = ChatRequest::new([Message::user("Hello")]);
    let clock = Instant::now();
    let streamed = model.stream(&request).next().await.unwrap().unwrap_err();
    let run = Agent::builder(model).build().unwrap().ask("Hello").await.unwrap_err();
    assert!(clock.elapsed() < Duration::from_secs(5));
    let error = run.model_error().unwrap();
    assert_eq!(streamed.to_string(), error.to_string());
    let mut shown = format!("{run} {run:?} {error} {error:?} {streamed:?}");
    let mut source = run.source();
    while let Some(error) = source {
        shown.push_str(&format!(" {error} {error:?}"));
        source = error.source();
    }
    assert!(!shown.contains("sk-very-secret"), "{shown}");
    let kind = take(streamed);
    assert!(shown.contains(&kind.to_string()));
    kind
}

fn take(error: tool_core::ModelError) -> tool_openai::Error {
    error.downcast().unwrap()
}

#[tokio::test]
async fn nobody_listens() {
    let error = failure("http://127.0.0.1:9/v1").await;
    assert!(error.is_connect());
    assert_eq!(error.to_string(), "could not connect to http://127.0.0.1:9/v1/chat/completions");
}

#[tokio::test]
async fn nobody_answers() {
    let server = RawServer::start(vec![vec![]], Duration::from_secs(60)).await;
    let error = failure(&server.base_url()).await;
    assert!(error.is_timeout(), "{error:?}");
    assert_eq!(error.to_string(), format!("{}/chat/completions took too long", server.base_url()));
}

#[tokio::test]
async fn the_key_is_wrong() {
    let body = br#"{"error": {"message": "Incorrect API key provided: sk-very-secret.", "type": "invalid_request_error", "param": null, "code": "invalid_api_key"}}"#;
    let headers = [("content-type", "application/json"), ("x-request-id", "req_1")];
    let server = RawServer::answering("401 Unauthorized", &headers, body).await;
    let error = failure(&server.base_url()).await;
    assert_eq!((error.status(), error.code()), (Some(401), Some("invalid_api_key")));
    assert_eq!(error.error_type(), Some("invalid_request_error"));
    let expected = "the API answered with an error, status 401, invalid_api_key: Incorrect API key provided: [key]. (request req_1)";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn the_answer_is_html() {
    let body = b"<!doctype html>\n<html><head><title>Welcome to nginx!</title></head></html>";
    let server = RawServer::answering("200 OK", &[("content-type", "text/html; charset=utf-8")], body).await;
    let error = failure(&server.base_url()).await;
    assert!(error.is_invalid_response());
    let text = error.to_string();
    assert!(
        text.starts_with("the answer is not one of the API (text/html; charset=utf-8: expected value"),
        "{text}"
    );
    assert!(text.ends_with("is the base URL right? It begins: <!doctype html> <html><head><title>Welcome to nginx!</title></head></html>"), "{text}");

    let server =
        RawServer::answering("502 Bad Gateway", &[("content-type", "text/html")], b"<html>502</html>").await;
    let error = failure(&server.base_url()).await;
    assert_eq!(error.status(), Some(502));
    assert_eq!(error.to_string(), "the API answered with an error, status 502: it says: <html>502</html>");
}

#[tokio::test]
async fn the_answer_is_no_http_or_nothing() {
    let server = RawServer::start(vec![b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()], Duration::ZERO).await;
    let error = failure(&server.base_url()).await;
    assert!(error.to_string().ends_with("broke"), "{error}");
    let server = RawServer::answering("200 OK", &[("content-type", "application/json")], b"").await;
    let error = failure(&server.base_url()).await;
    assert!(error.is_invalid_response(), "{error}");
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = RawServer::answering("200 OK", &[("content-type", "application/json")], b"{}").await;
    let location = other.base_url();
    let server = RawServer::answering("307 Temporary Redirect", &[("location", &location)], b"").await;
    let error = failure(&server.base_url()).await;
    assert_eq!(
        error.to_string(),
        format!("the endpoint redirects to {location} (status 307); set the base URL to that")
    );
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn a_stream_that_breaks_off() {
    let head = support::whole_answer("200 OK", &[("content-type", "text/event-stream")], b"");
    let chunk = b"data: {\"choices\":[{\"delta\":{\"content\":\"It is\"}}]}\n\n".to_vec();
    let server = RawServer::start(vec![head.clone(), chunk.clone()], Duration::ZERO).await;
    let request = ChatRequest::new([Message::user("Hello")]);
    let model = client(&server.base_url()).chat_model("m");
    let mut deltas = model.stream(&request);
    assert_eq!(deltas.next().await.unwrap().unwrap(), Delta::Text("It is".into()));
    let error = take(deltas.next().await.unwrap().unwrap_err());
    assert!(error.is_incomplete());
    assert_eq!(error.partial().unwrap().message.text, "It is");
    assert!(deltas.next().await.is_none());

    // Silence in the middle.
    let server = RawServer::start(vec![head, chunk], Duration::from_secs(60)).await;
    let model = client(&server.base_url()).chat_model("m");
    let error = take(
        model.stream(&request).filter_map(|delta| std::future::ready(delta.err())).next().await.unwrap(),
    );
    assert!(error.is_timeout(), "{error:?}");
}

#[test]
fn the_environment_names_the_endpoint() {
    // What is in the environment is the caller's; here it is only that a missing key is told clearly.
    if std::env::var_os("OPENAI_API_KEY").is_none() && std::env::var_os("OPENAI_BASE_URL").is_none() {
        let error = OpenAi::from_env().unwrap_err();
        assert!(error.is_config());
        let expected =
            "OPENAI_API_KEY is not set; set it, or set OPENAI_BASE_URL to a server that needs no key";
        assert_eq!(error.to_string(), expected);
    }
}
