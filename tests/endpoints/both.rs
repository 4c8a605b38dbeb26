//! What the clients of both providers do in the same way, in one table.

use std::time::Duration;

use tests::support::{RawServer, whole_answer};
use tool_core::model::{ChatRequest, ModelError};
use tool_core::{ChatModel, Message};

/// A key that is long enough to be redacted.
const KEY: &str = "sk-0123456789abcdef";

/// The kind of an error, whether it is retryable, whether it is permanent, and its text, in which `URL` is that of the request.
type Outcome = (String, bool, bool, String);

/// Asks with each provider's client, and returns the outcomes.
async fn outcomes(base_url: &str, key: Option<&str>) -> [Outcome; 2] {
    let openai = tool_openai::OpenAi::builder().base_url(base_url).max_retries(0);
    let openai = key.into_iter().fold(openai, |builder, key| builder.api_key(key));
    let error = failure(&openai.build().unwrap().chat_model("m")).await;
    let inner: &tool_openai::Error = error.downcast_ref().unwrap();
    let text = inner.to_string().replace(&format!("{base_url}/chat/completions"), "URL");
    let first = (format!("{:?}", inner.kind()), inner.is_retryable(), error.is_permanent(), text);

    let anthropic = tool_anthropic::Anthropic::builder().base_url(base_url).max_retries(0);
    let anthropic = key.into_iter().fold(anthropic, |builder, key| builder.api_key(key));
    let error = failure(&anthropic.build().unwrap().chat_model("m")).await;
    let inner: &tool_anthropic::Error = error.downcast_ref().unwrap();
    let text = inner.to_string().replace(&format!("{base_url}/messages"), "URL");
    let second = (format!("{:?}", inner.kind()), inner.is_retryable(), error.is_permanent(), text);
    for (name, debug) in [("openai", format!("{:?}", first)), ("anthropic", format!("{error:?}"))] {
        assert!(!debug.contains(KEY), "{name}: {debug}");
    }
    [first, second]
}

async fn failure(model: &dyn ChatModel) -> ModelError {
    model.chat(&ChatRequest::new([Message::user("Hello")])).await.unwrap_err()
}

fn error(kind: &str, message: &str) -> String {
    format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"{message}"}}}}"#)
}

#[tokio::test]
async fn errors_are_the_same() {
    let json = ("content-type", "application/json");
    let echo = error("authentication_error", &format!("wrong key {KEY}"));
    // The answer, and the kind, whether to retry, whether it is permanent, and the text.
    let table = [
        (
            whole_answer("401 Unauthorized", &[json], echo.as_bytes()),
            "Authentication",
            (false, false),
            "POST URL failed with status 401, authentication_error: wrong key [key]",
        ),
        (
            whole_answer("429 Busy", &[json], error("rate_limit_error", "Slow down.").as_bytes()),
            "RateLimit",
            (true, false),
            "POST URL failed with status 429, rate_limit_error: Slow down.",
        ),
        (
            whole_answer(
                "429 Busy",
                &[json, ("x-should-retry", "false")],
                error("rate_limit_error", "No.").as_bytes(),
            ),
            "RateLimit",
            (false, false),
            "POST URL failed with status 429, rate_limit_error: No.",
        ),
        (
            whole_answer("529 Overloaded", &[json], error("overloaded_error", "Overloaded").as_bytes()),
            "Overloaded",
            (true, false),
            "POST URL failed with status 529, overloaded_error: Overloaded",
        ),
        (
            whole_answer(
                "400 Bad",
                &[json],
                error("invalid_request_error", "prompt is too long: 2 > 1").as_bytes(),
            ),
            "ContextLength",
            (false, true),
            "POST URL failed with status 400, invalid_request_error: prompt is too long: 2 > 1",
        ),
        (
            whole_answer("200 OK", &[json, ("content-encoding", "gzip")], b"x"),
            "InvalidResponse",
            (false, false),
            "POST URL: the response is compressed (gzip), although the request does not accept that; turn compression off in the \
             server or its proxy",
        ),
        (
            whole_answer("308 Moved", &[("location", "https://user:secret@example.org/v2?key=secret")], b""),
            "InvalidResponse",
            (false, false),
            "POST URL is redirected to https://example.org/v2 (status 308); use that as the base URL",
        ),
        (
            whole_answer("404 Not Found", &[], b""),
            "InvalidRequest",
            (false, true),
            "POST URL failed with status 404: the response body is empty; check the base URL",
        ),
        (
            whole_answer("503 Down", &[("x-request-id", "req_7")], b""),
            "Overloaded",
            (true, false),
            "POST URL failed with status 503: the response body is empty (request req_7)",
        ),
    ];
    for (answer, kind, (is_retryable, is_permanent), text) in table {
        let server = RawServer::start(vec![answer], Duration::ZERO).await.unchecked();
        let expected: Outcome = (kind.into(), is_retryable, is_permanent, text.into());
        assert_eq!(outcomes(&server.base_url(), Some(KEY)).await, [expected.clone(), expected]);
    }
}

#[tokio::test]
async fn a_missing_key_is_named() {
    let answer = whole_answer("401 Unauthorized", &[], error("authentication_error", "No key.").as_bytes());
    let server = RawServer::start(vec![answer], Duration::ZERO).await.unchecked();
    let text = "POST URL failed with status 401, authentication_error: No key.; no key was sent, set one with `api_key` or \
                `api_key_from_env`";
    let expected: Outcome = ("Authentication".into(), false, false, text.into());
    assert_eq!(outcomes(&server.base_url(), None).await, [expected.clone(), expected]);
}

#[tokio::test]
async fn an_unreachable_server_is_retried() {
    // Nothing listens on the port once the listener is dropped.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let [openai, anthropic] = outcomes(&format!("http://{address}/v1"), None).await;
    assert_eq!((&*openai.0, openai.1), ("Connect", true));
    let cause = std::net::TcpStream::connect(address).unwrap_err();
    assert_eq!((&*anthropic.0, anthropic.1), ("Connect", true));
    assert_eq!(anthropic.3, format!("could not connect to URL: {cause}"));
    assert_eq!(openai.3, anthropic.3);
}
