//! The server and the client over HTTP on this machine: each reads what the other writes, and bad requests result in the
//! API's own errors.

use futures_util::StreamExt;
use serde_json::{Value, json};
use tests::support::RawServer;
use tests::support::checked::CheckedServer;
use tool_core::content::{Content, Image, Part};
use tool_core::model::{
    AssistantMessage, ChatRequest, ChatResponse, Delta, FinishReason, ToolChoice, ToolDefinition, Usage,
};
use tool_core::provider::{ModelFuture, ResponseFormat, ToolDefinitions};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, Message, ModelOptions, ToolCall, tool, tools};
use tool_openai::server::Server;
use tool_openai::{ChatCompletions, OpenAi};

/// Sums two numbers.
#[tool]
fn sum(a: f64, b: f64) -> f64 {
    a + b
}

async fn serve(model: impl ChatModel + 'static) -> (CheckedServer, ChatCompletions) {
    let server = CheckedServer::start(Server::new().model("m", model)).await;
    let model = client(&server.base_url()).chat_model("m");
    (server, model)
}

fn client(base_url: &str) -> OpenAi {
    OpenAi::builder().base_url(base_url).build().unwrap()
}

/// Streams to the end and returns the deltas and the response.
async fn stream(model: &ChatCompletions, request: &ChatRequest<'_>) -> (Vec<Delta>, ChatResponse) {
    let mut deltas: Vec<_> = model.stream(request).map(Result::unwrap).collect().await;
    match deltas.pop() {
        Some(Delta::Done(response)) => (deltas, response),
        other => panic!("expected the response, got {other:?}"),
    }
}

#[tokio::test]
async fn a_response_is_transferred_complete_and_streamed() {
    let mut message = AssistantMessage::text("Let me see: “22 °C”\n")
        .with_tool_calls([ToolCall::new("a", "sum", r#"{"a": 1}"#), ToolCall::new("b", "sum", "")]);
    message.reasoning = Some("Hm.".into());
    let responses = [
        ChatResponse::new(message).with_usage(Usage::new(10, 2)),
        ChatResponse::new(AssistantMessage::text("It is")).with_finish_reason(FinishReason::Length),
        ChatResponse::new(AssistantMessage::text("It is")).with_finish_reason(FinishReason::ContentFilter),
        ChatResponse::new(AssistantMessage::text("")),
    ];
    for response in responses {
        let script = ScriptedModel::new().replies(response.clone()).replies(response.clone());
        let (_server, model) = serve(script).await;
        let request = ChatRequest::new([Message::user("Hello")]);
        let mut whole = model.chat(&request).await.unwrap();
        let (_, mut streamed) = stream(&model, &request).await;
        // The reasoning is also stored in the server's own form, in which it is sent back.
        let kept = whole.message.provider_data.take();
        assert_eq!(kept.is_some(), response.message.reasoning.is_some());
        assert_eq!(streamed.message.provider_data.take(), kept);
        assert_eq!(whole.message, response.message);
        assert_eq!(streamed.message, response.message);
        assert_eq!(whole.finish_reason, response.finish_reason);
        assert_eq!(streamed.finish_reason, response.finish_reason);
        let usage = whole.usage.map(|usage| (usage.input_tokens, usage.output_tokens, usage.total_tokens));
        assert_eq!(
            usage,
            response.usage.map(|usage| (usage.input_tokens, usage.output_tokens, usage.total_tokens))
        );
        assert_eq!(streamed.usage.unwrap().total_tokens, response.usage.unwrap_or_default().total_tokens);
        assert_eq!(whole.model.as_deref(), Some("m"));
    }
}

#[tokio::test]
async fn a_request_comes_through() {
    let definition = ToolDefinition::new("now")
        .with_description("Returns the time")
        .with_parameters(json!({ "type": "object", "properties": { "zone": { "type": "string" } } }));
    let definitions = ToolDefinitions::from_iter([definition]);
    let call = ToolCall::new("a", "now", r#"{"zone": "UTC"}"#);
    let messages = vec![
        Message::system("Be brief."),
        Message::user("When?"),
        Message::Assistant(AssistantMessage::default().with_tool_calls([call.clone()])),
        Message::tool(&call, &Ok(tool_core::ToolOutput::text("noon"))),
        Message::assistant("At noon."),
        Message::User(Content::from_iter([
            Part::from("Really? At this one?"),
            Image::from_url("https://example.org/clock.png").into(),
            Image::from_bytes("image/png", [0, 1, 2, 3]).into(),
            Part::from("Or at that?"),
        ])),
    ];
    let (sent, offered) = (messages.clone(), definitions.clone());
    let choice = ToolChoice::Tool("now".into());
    let expected_choice = choice.clone();
    let script = ScriptedModel::new()
        .expects(move |request| request.messages() == sent)
        .expects(move |request| *request.tools() == offered)
        .expects(move |request| *request.tool_choice() == expected_choice)
        .expects(|request| request.parallel_tool_calls() == Some(false))
        .says("Yes.");
    let (_server, model) = serve(script).await;
    let request = ChatRequest::new(messages)
        .with_tools(definitions)
        .with_tool_choice(choice)
        .with_parallel_tool_calls(false);
    assert_eq!(model.chat(&request).await.unwrap().message.text, "Yes.");
}

/// A scripted model that supports response formats.
struct Structured(ScriptedModel);

impl ChatModel for Structured {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        self.0.chat(request)
    }

    fn supports_response_format(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn options_and_response_formats_are_transferred() {
    let options = ModelOptions::default()
        .with_temperature(0.1)
        .with_top_p(0.25)
        .with_max_output_tokens(100)
        .with_seed(i64::MIN)
        .with_stop(["END", "\n"])
        .with_reasoning_effort("low");
    let closed = json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
    let formats = [
        None,
        Some(ResponseFormat::json_schema("place", closed.clone())),
        Some(ResponseFormat::json_schema("place", closed).without_strict()),
        Some(ResponseFormat::json_schema("map", json!({ "type": "object", "additionalProperties": true }))),
    ];
    for format in formats {
        let (sent, asked) = (options.clone(), format.clone());
        let script = ScriptedModel::new()
            .expects(move |request| *request.options() == sent)
            .expects(move |request| request.response_format() == asked.as_ref())
            .says("{}")
            // A format that the server cannot enforce is not sent.
            .expects(|request| request.response_format().is_none())
            .says("{}");
        let (_server, model) = serve(Structured(script)).await;
        let request = ChatRequest::new([Message::user("Where?")])
            .with_options(options.clone())
            .with_response_format(format);
        model.chat(&request).await.unwrap();
        model.without_json_schema().chat(&request).await.unwrap();
    }
}

#[tokio::test]
async fn accepts_options_as_other_clients_send_them() {
    let table = [
        (json!({}), ModelOptions::default()),
        (json!({ "stop": null, "temperature": null, "seed": null }), ModelOptions::default()),
        (json!({ "stop": "END" }), ModelOptions::default().with_stop(["END"])),
        (json!({ "max_tokens": 5 }), ModelOptions::default().with_max_output_tokens(5)),
        (
            json!({ "max_tokens": 5, "max_completion_tokens": 6 }),
            ModelOptions::default().with_max_output_tokens(6),
        ),
        (json!({ "response_format": { "type": "text" } }), ModelOptions::default()),
        (json!({ "temperature": 1 }), ModelOptions::default().with_temperature(1.0)),
    ];
    let http = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(no_tls()).build().unwrap();
    for (mut body, options) in table {
        let script = ScriptedModel::new()
            .expects(move |request| *request.options() == options && request.response_format().is_none())
            .says("Yes.");
        let (server, _) = serve(script).await;
        body["model"] = json!("m");
        body["messages"] = json!([{ "role": "user", "content": "Hi" }]);
        let (status, answer) = post(&http, &server.base_url(), body.to_string()).await;
        assert_eq!(status, 200, "{body}: {answer}");
    }
}

#[tokio::test]
async fn the_model_of_the_options_takes_precedence() {
    let server = Server::new().model("m", ScriptedModel::new()).model(
        "other",
        // The model of the server keeps its own name.
        ScriptedModel::new().expects(|request| request.options().model.is_none()).says("Yes."),
    );
    let server = CheckedServer::start(server).await;
    let request =
        ChatRequest::new([Message::user("Hello")]).with_options(ModelOptions::default().with_model("other"));
    let response = client(&server.base_url()).chat_model("m").chat(&request).await.unwrap();
    assert_eq!(response.model.as_deref(), Some("other"));
}

#[tokio::test]
async fn the_key_is_sent_as_a_bearer_token() {
    let body = br#"{"choices":[{"message":{"content":"Hi."}}]}"#;
    let server = RawServer::answering("200 OK", &[("content-type", "application/json")], body).await;
    let openai = OpenAi::builder()
        .base_url(server.base_url())
        .api_key("sk-1")
        .organization("org-1")
        .project("proj-1")
        .build()
        .unwrap();
    let request = ChatRequest::new([Message::user("Hello")]).with_tools(tools![sum].definitions().clone());
    openai.chat_model("m").chat(&request).await.unwrap();
    let sent = &server.requests()[0];
    assert!(sent.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{sent}");
    for header in ["authorization: Bearer sk-1", "openai-organization: org-1", "openai-project: proj-1"] {
        assert!(sent.contains(header), "{sent}");
    }
}

#[tokio::test]
async fn an_agent_behind_the_server_executes_its_own_calls() {
    let model = || {
        ScriptedModel::new()
            .calls("sum", r#"{"a": 2.5, "b": 40}"#)
            .with_usage(Usage::new(10, 5))
            .says("42.5")
            .with_usage(Usage::new(20, 1))
    };
    let agent =
        |model| Agent::builder(model).instructions("Use the tools.").tools(tools![sum]).build().unwrap();
    let first = model();
    let server = Server::new().agent("calculator", agent(first.clone())).agent("again", agent(model()));
    let server = CheckedServer::start(server).await;
    let openai = client(&server.base_url());
    let request = ChatRequest::new([
        Message::user("Hello"),
        Message::assistant("Good morning!"),
        Message::user("What is 2.5 plus 40?"),
    ]);
    let response = openai.chat_model("calculator").chat(&request).await.unwrap();
    assert_eq!(response.message, AssistantMessage::text("42.5"));
    assert_eq!(response.usage.unwrap().total_tokens, 36);
    let seen: Vec<_> = first.requests()[0].iter().map(|message| message.text().into_owned()).collect();
    assert_eq!(seen, ["Use the tools.", "Hello", "Good morning!", "What is 2.5 plus 40?"]);
    let (deltas, response) = stream(&openai.chat_model("again"), &request).await;
    assert_eq!(deltas, [Delta::Text("42.5".into())]);
    assert_eq!(response.usage.unwrap().total_tokens, 36);
}

#[tokio::test]
async fn an_agent_gives_the_same_answer_complete_and_streamed() {
    let call = || ToolCall::new("a", "sum", r#"{"a": 1, "b": 2}"#);
    let model = || {
        let message = AssistantMessage::text("Let me see. ").with_tool_calls([call()]);
        ScriptedModel::new().replies(ChatResponse::new(message)).says("It is 3.")
    };
    let agent = || Agent::builder(model()).tools(tools![sum]).build().unwrap();
    let server =
        Server::new().agent("whole", agent()).agent("streamed", agent()).spawn("127.0.0.1:0").await.unwrap();
    let openai = client(&server.url());
    let request = ChatRequest::new([Message::user("What is 1 + 2?")]);
    let whole = openai.chat_model("whole").chat(&request).await.unwrap();
    let (_, streamed) = stream(&openai.chat_model("streamed"), &request).await;
    assert_eq!(whole.message.text, "Let me see. It is 3.");
    assert_eq!(streamed.message, whole.message);
}

#[tokio::test]
async fn answers_requests_of_other_clients() {
    let (server, _) = serve(ScriptedModel::new().says("Good morning!").says("Good morning!")).await;
    let http = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(no_tls()).build().unwrap();
    let models: Value = get(&http, &format!("{}/models", server.base_url())).await.1;
    assert_eq!(models["object"], "list");
    assert_eq!(models["data"][0]["id"], "m");
    assert_eq!(models["data"][0]["object"], "model");

    let request = json!({ "model": "m", "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hi" }] }] });
    let (status, body) = post(&http, &server.base_url(), request.to_string()).await;
    assert_eq!(status, 200);
    assert_eq!(body["object"], "chat.completion");
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-") && body["created"].as_u64().unwrap() > 0);
    assert_eq!(
        body["choices"][0]["message"],
        json!({ "role": "assistant", "content": "Good morning!", "refusal": null })
    );
    assert_eq!(body["choices"][0]["finish_reason"], "stop");

    let request = json!({ "model": "m", "stream": true, "messages": [{ "role": "user", "content": "Hi" }] });
    let url = format!("{}/chat/completions", server.base_url());
    let response = http
        .post(url)
        .header("content-type", "application/json")
        .body(request.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let body = String::from_utf8(response.bytes().await.unwrap().to_vec()).unwrap();
    let lines: Vec<_> =
        body.split("\n\n").map(|event| event.strip_prefix("data: ").unwrap_or(event)).collect();
    assert_eq!(lines.len(), 5, "role, text, finish, done, and nothing: {lines:?}");
    assert_eq!(lines[3..], ["[DONE]", ""]);
    let chunk: Value = serde_json::from_str(lines[1]).unwrap();
    assert_eq!(chunk["object"], "chat.completion.chunk");
    assert_eq!(chunk["choices"][0]["delta"], json!({ "content": "Good morning!" }));
}

fn no_tls() -> rustls::ClientConfig {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
}

async fn get(http: &reqwest::Client, url: &str) -> (u16, Value) {
    read(http.get(url).send().await.unwrap()).await
}

async fn post(http: &reqwest::Client, base_url: &str, body: String) -> (u16, Value) {
    let request =
        http.post(format!("{base_url}/chat/completions")).header("content-type", "application/json");
    read(request.body(body).send().await.unwrap()).await
}

async fn read(response: reqwest::Response) -> (u16, Value) {
    let status = response.status().as_u16();
    (status, serde_json::from_slice(&response.bytes().await.unwrap()).unwrap())
}

#[tokio::test]
async fn bad_requests_result_in_errors_of_the_api() {
    let agent = Agent::builder(ScriptedModel::new()).build().unwrap();
    let model = ScriptedModel::new().fails("the line is dead").fails("the line is dead");
    let server = Server::new().model("m", model).agent("agent", agent).spawn("127.0.0.1:0").await.unwrap();
    let http = reqwest::Client::builder().no_proxy().tls_backend_preconfigured(no_tls()).build().unwrap();
    let user = json!({ "role": "user", "content": "Hi" });
    let call = json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let function = json!({ "type": "function", "function": { "name": "f" } });
    let image = json!([{ "type": "image_url", "image_url": { "url": "data:" } }]);
    let format = json!({ "type": "json_schema", "json_schema": { "name": "any", "schema": {} } });
    let with = |messages: Value| json!({ "model": "m", "messages": messages }).to_string();
    let table = [
        ("".to_owned(), 400, "", "the request is not valid JSON: EOF"),
        ("{".to_owned(), 400, "", "the request is not valid JSON: EOF"),
        ("[]".to_owned(), 400, "", "invalid request: "),
        (r#"{"model": "m"}"#.to_owned(), 400, "", "invalid request: missing field `messages`"),
        (with(json!([])), 400, "messages", "expected at least one message"),
        (with(json!([{ "role": "robot", "content": "" }])), 400, "messages[0].role", "unknown role `robot`"),
        (with(json!([{ "role": "user" }])), 400, "messages[0].content", "missing content"),
        (
            with(json!([{ "role": "system", "content": image }])),
            400,
            "messages[0].content",
            "unsupported part of type `image_url`; use `text`, each",
        ),
        (
            with(json!([{ "role": "user", "content": [{ "type": "input_audio", "input_audio": {} }] }])),
            400,
            "messages[0].content",
            "unsupported part of type `input_audio`; use `text` or `image_url`, each",
        ),
        (
            with(json!([{ "role": "user", "content": [{ "type": "image_url" }] }])),
            400,
            "messages[0].content",
            "a part of type `image_url` needs an object",
        ),
        (
            with(json!([user, { "role": "tool", "content": "" }])),
            400,
            "messages[1].tool_call_id",
            "a tool message",
        ),
        (
            with(json!([user, { "role": "tool", "tool_call_id": "a", "content": "" }])),
            400,
            "messages[1].tool_call_id",
            "no earlier open call has this id",
        ),
        (
            with(json!([
                user,
                { "role": "assistant", "content": null, "tool_calls": [call] },
                { "role": "tool", "tool_call_id": "a", "content": "" },
                { "role": "tool", "tool_call_id": "a", "content": "" },
            ])),
            400,
            "messages[3].tool_call_id",
            "no earlier open call has this id",
        ),
        (json!({ "model": "x", "messages": [user] }).to_string(), 404, "model", "unknown model `x`"),
        (json!({ "model": "m", "messages": [user], "n": 2 }).to_string(), 400, "n", "only one choice"),
        (
            json!({ "model": "m", "messages": [user], "tools": [{ "type": "retrieval" }] }).to_string(),
            400,
            "tools[0]",
            "unsupported type of tool",
        ),
        (
            json!({ "model": "m", "messages": [user], "tools": [function], "tool_choice": "always" })
                .to_string(),
            400,
            "tool_choice",
            "unknown mode `always`",
        ),
        (
            json!({ "model": "m", "messages": [user], "tool_choice": "required" }).to_string(),
            400,
            "tool_choice",
            "`required` needs at least one tool",
        ),
        (
            json!({ "model": "m", "messages": [user], "stop": 1 }).to_string(),
            400,
            "",
            "invalid request: `stop` must be a string or a list of strings",
        ),
        (
            json!({ "model": "m", "messages": [user], "response_format": { "type": "json_object" } })
                .to_string(),
            400,
            "response_format",
            "unsupported format `json_object`; use `text` or `json_schema`",
        ),
        (
            json!({ "model": "m", "messages": [user], "response_format": { "type": "json_schema" } })
                .to_string(),
            400,
            "response_format",
            "`json_schema` needs an object",
        ),
        (
            json!({ "model": "m", "messages": [user], "response_format": format }).to_string(),
            400,
            "response_format",
            "this model does not support a JSON schema",
        ),
        (
            json!({ "model": "agent", "messages": [user], "response_format": format, "stream": true })
                .to_string(),
            400,
            "response_format",
            "this model does not support a JSON schema",
        ),
        (
            json!({ "model": "m", "messages": [user, { "role": "assistant", "tool_calls": [call] }, user] })
                .to_string(),
            400,
            "messages",
            "the call `a` has no result",
        ),
        (
            json!({ "model": "agent", "messages": [{ "role": "system", "content": "" }] }).to_string(),
            400,
            "messages",
            "the last message must be a user message",
        ),
    ];
    for (body, status, param, message) in table {
        let (received, error) = post(&http, &server.url(), body.clone()).await;
        assert_eq!(received, status, "{body}");
        assert_eq!(error["error"]["type"], "invalid_request_error", "{body}");
        assert_eq!(error["error"]["param"].as_str().unwrap_or_default(), param, "{body}");
        assert!(error["error"]["message"].as_str().unwrap().starts_with(message), "{body}: {error}");
    }
    for is_streamed in [false, true] {
        let body = json!({ "model": "m", "messages": [user], "stream": is_streamed });
        let (status, error) = post(&http, &server.url(), body.to_string()).await;
        assert_eq!((status, &error["error"]["type"]), (500, &json!("server_error")));
        assert_eq!(error["error"]["message"], "internal server error");
    }
    let (status, error) = get(&http, &format!("{}/nothing", server.url())).await;
    assert_eq!((status, &error["error"]["type"]), (404, &json!("invalid_request_error")));
    let (status, error) = get(&http, &format!("{}/chat/completions", server.url())).await;
    assert_eq!((status, &error["error"]["type"]), (405, &json!("invalid_request_error")));
    let (status, error) = post(&http, &server.url(), " ".repeat((32 << 20) + 1)).await;
    assert_eq!((status, &error["error"]["type"]), (413, &json!("invalid_request_error")));
}
