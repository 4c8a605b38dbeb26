//! Behavior found by running against real servers. The bodies that they send are in the corpus, which `wire` reads.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tests::support::{RawServer, whole_answer};
use tool_core::model::{AssistantMessage, ChatRequest};
use tool_core::{Agent, ChatModel, Message, ToolCall, ToolOutput, tool, tools};
use tool_openai::{Endpoint, Error, OpenAi};

#[tool("Returns the time of high tide")]
fn get_tide() -> &'static str {
    "noon"
}

/// Returns the messages that the endpoint's second request has after a turn that only calls a tool.
async fn messages_after_a_call(endpoint: Endpoint) -> Value {
    let server = RawServer::answering("200 OK", &[], br#"{"choices":[{"message":{"content":"At noon."}}]}"#);
    let server = server.await;
    let builder = OpenAi::builder().endpoint(endpoint).api_key("none").base_url(server.base_url());
    let model = builder.build().unwrap().chat_model("m");
    let call = ToolCall::new("call_abc1", "get_tide", "{}");
    let messages = [
        Message::user("When?"),
        Message::Assistant(AssistantMessage::default().with_tool_calls([call.clone()])),
        Message::tool(&call, &Ok(ToolOutput::text("noon"))),
    ];
    model.chat(&ChatRequest::new(messages)).await.unwrap();
    let sent = server.requests().pop().unwrap();
    let mut sent: Value = serde_json::from_str(sent.split_once("\r\n\r\n").unwrap().1).unwrap();
    sent["messages"].take()
}

/// llama-cpp-python's server refuses `null` with status 500, and its templates require a string, as others do.
#[tokio::test]
async fn content_is_left_out_of_calls_without_text() {
    let endpoints = [
        Endpoint::compatible(),
        Endpoint::openai(),
        Endpoint::vllm(),
        Endpoint::llama_cpp(),
        Endpoint::llama_cpp_python(),
        Endpoint::mistral(),
        Endpoint::ollama(),
        Endpoint::deepseek(),
    ];
    let mut contents = Vec::new();
    for endpoint in endpoints {
        let name = endpoint.name.clone().unwrap_or_default();
        contents.push((name, messages_after_a_call(endpoint).await[1].get("content").cloned()));
    }
    let contents: Vec<_> = contents.iter().map(|(name, content)| (&**name, content.as_ref())).collect();
    let text = json!("");
    let expected = [
        ("", None),
        ("openai", None),
        ("vllm", None),
        ("llama.cpp", None),
        ("llama-cpp-python", Some(&text)),
        ("mistral", Some(&text)),
        ("ollama", Some(&text)),
        ("deepseek", Some(&text)),
    ];
    assert_eq!(contents, expected);
}

/// Runs an agent whose second request is refused as llama-cpp-python's server refuses `null`.
#[tokio::test]
async fn a_tool_loop_sends_no_null() {
    let call = r#"{"choices":[{"message":{"content":null,"tool_calls":[{"id":"1","function":{"name":"get_tide","arguments":"{}"}}]}}]}"#;
    let answers = [call, r#"{"choices":[{"message":{"content":"At noon."}}]}"#];
    let answers = answers.map(|body| whole_answer("200 OK", &[], body.as_bytes())).to_vec();
    let server = RawServer::answering_in_turn(answers).await;
    let model = OpenAi::builder().base_url(server.base_url()).build().unwrap().chat_model("m");
    let agent = Agent::builder(model).tools(tools![get_tide]).build().unwrap();
    assert_eq!(agent.ask("When?").await.unwrap().text(), "At noon.");
    assert!(!server.requests()[1].contains("null"), "{}", server.requests()[1]);
}

async fn error_of(status: &str, body: &str, key: &str) -> Error {
    let server = RawServer::answering(status, &[("content-type", "application/json")], body.as_bytes()).await;
    let builder = OpenAi::builder().base_url(server.base_url()).api_key(key).max_retries(0);
    let model = builder.build().unwrap().chat_model("m");
    model.chat(&ChatRequest::new([Message::user("Hi")])).await.unwrap_err().downcast().unwrap()
}

#[tokio::test]
async fn short_keys_do_not_garble_errors() {
    let body = r#"{"error": {"message": "x: none of the EMPTY texts is a test of ollama, fifteen-letters"}}"#;
    for key in ["x", "none", "EMPTY", "ollama", "test", "fifteen-letters"] {
        let error = error_of("400 Bad Request", body, key).await;
        let expected = Some("x: none of the EMPTY texts is a test of ollama, fifteen-letters");
        assert_eq!(error.message(), expected, "{key}");
    }
    let error =
        error_of("400 Bad Request", r#"{"error": {"message": "sixteen-letters!"}}"#, "sixteen-letters!");
    assert_eq!(error.await.message(), Some("[key]"));
}

#[tokio::test]
async fn a_long_error_is_displayed_in_one_line() {
    let trace = "  File \"/srv/llama_cpp/server/app.py\", line 491, in create_chat_completion\n".repeat(70);
    let message = format!("Internal Server Error\n{trace}");
    assert!(message.len() > 5_000);
    let body = json!({ "error": { "message": message, "type": "internal_server_error", "code": null } });
    let body = body.to_string();
    let error = error_of("500 Internal Server Error", &body, "none").await;
    let shown = error.to_string();
    let (head, tail) = shown.split_once("internal_server_error: ").unwrap();
    assert!(
        head.starts_with("POST http://127.0.0.1:") && head.ends_with(" failed with status 500, "),
        "{head}"
    );
    assert_eq!(tail.chars().count(), 301, "{tail}");
    assert!(tail.starts_with("Internal Server Error File") && tail.ends_with('…'), "{tail}");
    assert!(!shown.contains('\n'));
    assert_eq!(error.message(), Some(&*message));
    assert_eq!(error.body(), Some(&*body));
}

#[tokio::test]
async fn a_google_error_shows_its_status() {
    let body = include_str!("../wire/responses/28-google-error.json");
    let error = error_of("400 Bad Request", body, "none").await;
    assert_eq!((error.code(), error.error_type()), (Some("400"), Some("INVALID_ARGUMENT")));
    let expected =
        " failed with status 400, INVALID_ARGUMENT: API key not valid. Please pass a valid API key.";
    assert!(error.to_string().ends_with(expected), "{error}");
}

#[derive(Debug, Deserialize, Serialize, schemars::JsonSchema)]
struct Tide {
    hour: u8,
}

#[tokio::test]
async fn a_refused_json_schema_names_the_switch() {
    let hint = "; if the server does not support JSON schemas in `response_format`, set `Endpoint::supports_json_schema` to \
                `false`: typed answers then use a tool";
    for (status, body, has_hint) in [
        ("400 Bad Request", r#"{"error": {"message": "bad response_format"}}"#, true),
        (
            "422 Unprocessable Entity",
            r#"{"detail": [{"msg": "Input should be 'text' or 'json_object'"}]}"#,
            true,
        ),
        ("500 Internal Server Error", r#"{"error": {"message": "[{'type': 'literal_error'}]"}}"#, true),
        ("401 Unauthorized", r#"{"error": {"message": "no"}}"#, false),
        ("503 Service Unavailable", r#"{"error": {"message": "loading"}}"#, false),
        ("400 Bad Request", r#"{"error": {"message": "no", "code": "context_length_exceeded"}}"#, false),
    ] {
        let server = RawServer::answering(status, &[], body.as_bytes()).await;
        let openai = OpenAi::builder().base_url(server.base_url()).api_key("none").max_retries(0);
        let openai = openai.build().unwrap();
        let agent = Agent::builder(openai.chat_model("m")).build().unwrap();
        let error = agent.ask("When?").answer_as::<Tide>().await.unwrap_err();
        assert_eq!(Error::find_in(&error).unwrap().to_string().ends_with(hint), has_hint, "{error}");
        let error = agent.ask("When?").await.unwrap_err();
        assert!(!error.to_string().contains("json_schema"), "{error}");
        // The way out that the error names.
        let model = openai.chat_model("m").without_json_schema();
        let agent = Agent::builder(model).build().unwrap();
        let error = agent.ask("When?").answer_as::<Tide>().await.unwrap_err();
        assert!(!error.to_string().contains("supports_json_schema"), "{error}");
    }
}

/// OpenAI's API refuses schemas, not the option.
#[tokio::test]
async fn a_schema_that_openai_refuses_names_no_switch() {
    let body = br#"{"error": {"message": "Invalid schema", "param": "response_format"}}"#;
    let server = RawServer::answering("400 Bad Request", &[], body).await;
    let openai = OpenAi::builder().endpoint(Endpoint::openai()).api_key("none").base_url(server.base_url());
    let agent = Agent::builder(openai.build().unwrap().chat_model("m")).build().unwrap();
    let error = agent.ask("When?").answer_as::<Tide>().await.unwrap_err();
    let error = Error::find_in(&error).unwrap();
    assert_eq!(error.param(), Some("response_format"));
    assert!(error.to_string().ends_with(" failed with status 400: Invalid schema"), "{error}");
}
