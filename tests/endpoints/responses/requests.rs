//! Requests with all options match the published schema, and the check detects invalid requests.

use serde_json::{Value, json};
use tool_core::content::{Content, Image, Part};
use tool_core::model::{AssistantMessage, ChatRequest, ToolChoice, ToolDefinition};
use tool_core::provider::{ResponseFormat, ToolDefinitions};
use tool_core::{ChatModel, Message, ModelOptions, ToolCall, ToolOutput};
use tool_openai::{Endpoint, OpenAi};

use super::endpoint::{bodies, json_answer, model, streamed};
use tests::support::RawServer;
use tests::support::schema::{Api, validate_request};

fn conversation() -> Vec<Message> {
    let calls = [ToolCall::new("1", "now", "{}"), ToolCall::new("2", "now", "{broken")];
    let outputs = [
        ToolOutput::text("noon"),
        ToolOutput::text("see:").with_part(Image::from_url("https://example.org/a.png")),
    ];
    let results: Vec<_> =
        calls.iter().zip(outputs).map(|(call, output)| Message::tool(call, &Ok(output))).collect();
    let picture = Image::from_bytes("image/png", [0, 1, 2]);
    let mut messages = vec![
        Message::system("Be brief."),
        Message::user(Content::from_iter([Part::from("What is this?"), Part::from(picture)])),
        Message::Assistant(AssistantMessage::text("Let me see.").with_tool_calls(calls)),
    ];
    messages.extend(results);
    messages.push(Message::Assistant(AssistantMessage::refusal("I may not say that")));
    messages.push(Message::assistant(""));
    messages
}

#[tokio::test]
async fn all_that_can_be_set() {
    let strict = ToolDefinition::new("now").with_description("Returns the time").into_strict().unwrap();
    let tools = ToolDefinitions::from_iter([strict, ToolDefinition::new("then")]);
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    let options = ModelOptions::default()
        .with_temperature(0.5)
        .with_top_p(0.9)
        .with_max_output_tokens(100)
        .with_reasoning_effort("low")
        .with_top_logprobs(3)
        .with_service_tier("flex")
        .with_user("u1")
        .with_metadata("a", "b")
        .with_model("o3")
        .with_extra("truncation", "auto")
        .with_extra("text", json!({ "verbosity": "low" }))
        .with_extra("include", json!(["web_search_call.action.sources"]))
        .with_extra("tools", json!([{ "type": "web_search" }]));
    let request = ChatRequest::new(conversation())
        .with_tools(tools)
        .with_parallel_tool_calls(false)
        .with_options(options)
        .with_response_format(ResponseFormat::json_schema("place", schema));
    let choices = [ToolChoice::Auto, ToolChoice::None, ToolChoice::Required, ToolChoice::Tool("now".into())];
    let answer = json_answer(&json!({ "status": "completed", "output": [] }));
    let server = RawServer::answering_in_turn(vec![answer; 9]).await;
    let models = [model(&server), model(&server).store(true).reasoning_summary("detailed")];
    for model in &models {
        for choice in &choices {
            model.chat(&request.clone().with_tool_choice(choice.clone())).await.unwrap();
        }
    }
    streamed(&models[0], &ChatRequest::new([Message::user("Hello")])).await.1.unwrap();
    let bodies = bodies(&server);
    assert_eq!(bodies.len(), 9);
    let includes = |text: &str| bodies.iter().filter(|body| body.contains(text)).count();
    assert_eq!(includes(r#""store":false"#), 5);
    assert_eq!(includes("reasoning.encrypted_content"), 4);
    assert_eq!(includes(r#""summary":"detailed""#), 4);
    assert_eq!(includes(r#""model":"o3""#), 8);
}

#[test]
fn published_schemas_reject_invalid_requests() {
    let good = json!({ "model": "m", "input": [{ "type": "message", "role": "user", "content": "Hi" }] });
    assert_eq!(validate_request(Api::Responses, good.to_string().as_bytes()), Ok(()));
    let table = [
        ("seed", json!(1), "unknown property `seed`"),
        ("max_output_tokens", json!(1), "at `/max_output_tokens`"),
        ("tools", json!([{ "type": "function", "name": "now" }]), "at `/tools/0`"),
        ("input", json!([{ "type": "message", "role": "nobody", "content": "Hi" }]), "at `/input`"),
    ];
    for (name, value, expected) in table {
        let mut bad = good.clone();
        bad[name] = value;
        assert_eq!(validate_request(Api::Responses, bad.to_string().as_bytes()), Err(expected.to_owned()));
    }
    let good = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] });
    assert_eq!(validate_request(Api::ChatCompletions, good.to_string().as_bytes()), Ok(()));
    let bad = json!({ "model": "m", "messages": [{ "role": "nobody", "content": "Hi" }] });
    assert_eq!(
        validate_request(Api::ChatCompletions, bad.to_string().as_bytes()),
        Err("at `/messages/0`".to_owned())
    );
    let error = validate_request(Api::ChatCompletions, b"{").unwrap_err();
    assert!(error.starts_with("the body is not JSON: "), "{error}");
    let paths = [
        ("/v1/responses", Some(Api::Responses)),
        ("/openai/deployments/m/chat/completions?api-version=1", Some(Api::ChatCompletions)),
        ("/v1/models", None),
    ];
    for (path, api) in paths {
        assert_eq!(Api::from_path(path), api, "{path}");
    }
}

#[tokio::test]
async fn counts_tokens() {
    let tools = ToolDefinitions::from_iter([ToolDefinition::new("now").with_description("Returns the time")]);
    let options = ModelOptions::default()
        .with_temperature(0.5)
        .with_max_output_tokens(100)
        .with_reasoning_effort("low")
        .with_user("u1")
        .with_metadata("a", "b")
        .with_extra("truncation", "auto")
        .with_extra("prompt_cache_key", "k")
        .with_extra("text", json!({ "verbosity": "low" }));
    let request = ChatRequest::new([Message::user("Hello")])
        .with_tools(tools)
        .with_tool_choice(ToolChoice::Required)
        .with_parallel_tool_calls(false)
        .with_options(options)
        .with_response_format(ResponseFormat::json_schema("place", json!({ "type": "object" })));
    let answer = json_answer(&json!({ "object": "response.input_tokens", "input_tokens": 42 }));
    let server = RawServer::answering_in_turn(vec![answer]).await;
    let openai = OpenAi::builder().endpoint(Endpoint::openai()).api_key("k").base_url(server.base_url());
    let model = openai.build().unwrap().responses_model("o3");
    assert_eq!(model.count_tokens(&request).await.unwrap(), Some(42));
    let sent = server.requests().remove(0);
    assert!(sent.starts_with("POST /v1/responses/input_tokens "), "{sent}");
    let body: Value = serde_json::from_str(sent.split_once("\r\n\r\n").unwrap().1).unwrap();
    let fields: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
    let expected =
        ["model", "tools", "parallel_tool_calls", "reasoning", "text", "truncation", "input", "tool_choice"];
    assert_eq!(fields, expected, "{body:#}");
    assert_eq!(body["text"]["verbosity"], "low");
    // What is counted is a request that the API would take.
    validate_request(Api::Responses, body.to_string().as_bytes()).unwrap();
}

/// An endpoint that counts nothing is not asked.
#[tokio::test]
async fn other_endpoints_count_nothing() {
    let request = ChatRequest::new([Message::user("Hello")]);
    for endpoint in [Endpoint::compatible(), Endpoint::azure("mine"), Endpoint::vllm()] {
        let openai = OpenAi::builder().endpoint(endpoint).api_key("k").base_url("http://127.0.0.1:9/v1");
        let openai = openai.build().unwrap();
        assert_eq!(openai.responses_model("m").count_tokens(&request).await.unwrap(), None);
        assert_eq!(openai.chat_model("m").count_tokens(&request).await.unwrap(), None);
    }
}
