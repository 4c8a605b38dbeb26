//! Errors with texts of an endpoint: secrets in other forms, and characters that control a terminal.

use tests::support::RawServer;
use tool_core::model::ChatRequest;
use tool_core::{ChatModel, Message};
use tool_openai::{OpenAi, OpenAiBuilder};

async fn error_with(message: &str, configure: impl FnOnce(OpenAiBuilder) -> OpenAiBuilder) -> String {
    let body = serde_json::json!({ "error": { "message": message } }).to_string();
    let server =
        RawServer::answering("400 Bad Request", &[("content-type", "application/json")], body.as_bytes())
            .await;
    let builder = OpenAi::builder().base_url(server.base_url()).max_retries(0);
    let model = configure(builder).build().unwrap().chat_model("m");
    let error = model.chat(&ChatRequest::new([Message::user("Hi")])).await.unwrap_err();
    format!("{error} {error:?}")
}

#[tokio::test]
async fn redacts_secrets_in_other_forms() {
    let shown = error_with("unknown token tk-1234567890-abcdef", |builder| {
        builder.header("authorization", "Token tk-1234567890-abcdef")
    });
    let shown = shown.await;
    assert!(!shown.contains("1234567890"), "{shown}");
    for message in ["unknown key tk%2B1234%2F567890%3D%3D", r"tk+1234\/567890=="] {
        let shown = error_with(message, |builder| builder.api_key("tk+1234/567890==")).await;
        assert!(!shown.contains("567890"), "{shown}");
    }
}

#[tokio::test]
async fn errors_control_no_terminal() {
    let shown = error_with("a\u{1b}[2J\u{202e}b\u{9b}c", |builder| builder).await;
    assert!(shown.contains(r": a\u{1b}[2J\u{202e}b\u{9b}c"), "{shown:?}");
}

/// No limit is a limit like any other.
#[tokio::test]
async fn the_longest_timeouts_are_no_overflow() {
    let longest = std::time::Duration::MAX;
    let shown = error_with("no", |builder| builder.connect_timeout(longest).read_timeout(longest)).await;
    assert!(shown.contains("status 400: no"), "{shown}");
}
