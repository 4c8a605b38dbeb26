//! Responses: requests, complete responses and stored responses.

use serde_json::{Value, json};
use tool_core::content::{Content, Image, Part};
use tool_core::model::{AssistantMessage, ChatRequest, ChatResponse, FinishReason, ToolChoice, Usage};
use tool_core::provider::{ModelFuture, ResponseFormat, TokenLogprob};
use tool_core::testing::ScriptedModel;
use tool_core::{ChatModel, Message, ModelOptions, ToolCall};
use tool_openai::server::Server;

use crate::caller::Caller;

async fn caller(model: &ScriptedModel) -> Caller {
    Caller::new(Server::new().model("m", model.clone())).await
}

#[tokio::test]
async fn passes_the_input_on() {
    let url = "https://example.org/a.png";
    let image = json!({ "type": "input_image", "image_url": url, "detail": "auto" });
    let call = |id: &str| json!({ "type": "function_call", "id": "fc", "call_id": id, "name": "f", "arguments": "{}", "status": "completed" });
    let output =
        |id: &str, output: Value| json!({ "type": "function_call_output", "call_id": id, "output": output });
    let assistant = |text: &str| json!({ "type": "message", "role": "assistant", "id": "msg", "status": "completed", "content": [{ "type": "output_text", "text": text, "annotations": [] }] });
    let user = Message::user("Hi");
    let reply = |text: &str, ids: &[&str]| {
        let calls = ids.iter().map(|id| ToolCall::new(*id, "f", "{}"));
        Message::Assistant(AssistantMessage::text(text).with_tool_calls(calls))
    };
    let result =
        |id: &str, content: Content| Message::Tool(tool_core::model::ToolMessage::new(id, "f", content));
    let picture = || Part::from(Image::from_url(url));
    let table = [
        (json!("Hi"), vec![user.clone()]),
        (json!([{ "role": "user", "content": "Hi" }]), vec![user.clone()]),
        (
            json!([
                { "role": "developer", "content": "Be brief." },
                { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "This?" }, image] },
            ]),
            vec![
                Message::system("Be brief."),
                Message::User(Content::from_iter([Part::from("This?"), picture()])),
            ],
        ),
        (
            json!([
                { "role": "user", "content": "Hi" },
                { "type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "x" },
                assistant("Hm."), call("a"), call("b"),
                output("b", json!("B")), output("a", json!([{ "type": "input_text", "text": "A" }, image])),
                call("c"), assistant("So."), output("c", json!("C")),
                assistant("One."), assistant("Two."),
                { "role": "assistant", "content": [{ "type": "refusal", "refusal": "No." }] },
            ]),
            vec![
                user.clone(),
                reply("Hm.", &["a", "b"]),
                result("b", Content::from("B")),
                result("a", Content::from_iter([Part::from("A"), picture()])),
                reply("So.", &["c"]),
                result("c", Content::from("C")),
                Message::assistant("One."),
                Message::assistant("Two."),
                Message::Assistant(AssistantMessage::refusal("No.")),
            ],
        ),
    ];
    for (input, expected) in table {
        let model = ScriptedModel::new().says("Hi.").says("Hi.");
        let caller = caller(&model).await;
        let mut body = json!({ "model": "m", "input": input });
        caller.ask("responses", &body).await;
        body["instructions"] = json!("Be nice.");
        caller.ask("responses", &body).await;
        assert_eq!(model.requests()[0], expected, "{body}");
        assert_eq!(model.requests()[1][0], Message::system("Be nice."));
        assert_eq!(model.requests()[1][1..], expected);
    }
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
async fn passes_options_tools_and_formats_on_and_repeats_them() {
    let schema = json!({ "type": "object", "properties": {}, "required": [], "additionalProperties": false });
    let options = ModelOptions::default()
        .with_temperature(0.5)
        .with_top_p(0.25)
        .with_max_output_tokens(100)
        .with_reasoning_effort("low")
        .with_service_tier("flex")
        .with_user("u")
        .with_metadata("a", "b");
    let format = ResponseFormat::json_schema("place", schema.clone());
    let model = ScriptedModel::new()
        .expects(move |request| *request.options() == options)
        .expects(move |request| request.response_format() == Some(&format))
        .expects(|request| *request.tool_choice() == ToolChoice::Tool("f".into()))
        .expects(|request| request.parallel_tool_calls() == Some(false))
        .expects(|request| request.tools()[0].is_strict() && request.tools()[0].description() == Some("F"))
        .says("{}");
    let caller = Caller::new(Server::new().model("m", Structured(model))).await;
    let tool =
        json!({ "type": "function", "name": "f", "description": "F", "parameters": schema, "strict": true });
    let format =
        json!({ "format": { "type": "json_schema", "name": "place", "schema": schema, "strict": true } });
    let choice = json!({ "type": "function", "name": "f" });
    let body = json!({
        "model": "m", "input": "Where?", "instructions": "Be brief.", "temperature": 0.5, "top_p": 0.25,
        "max_output_tokens": 100, "reasoning": { "effort": "low" }, "text": format, "tools": [tool],
        "tool_choice": choice, "parallel_tool_calls": false, "metadata": { "a": "b" }, "store": false,
        "service_tier": "flex", "safety_identifier": "u",
    });
    let response = caller.ask("responses", &body).await;
    for field in [
        "instructions",
        "temperature",
        "top_p",
        "max_output_tokens",
        "text",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "metadata",
        "store",
    ] {
        assert_eq!(response[field], body[field], "{field}");
    }
    assert_eq!(response["reasoning"]["effort"], "low");
    let id = response["id"].as_str().unwrap();
    assert_eq!(caller.get(&format!("responses/{id}")).await.status, 404, "`store` was false");
}

/// Returns a response with log probabilities and these calls.
fn with_logprobs(calls: &[ToolCall]) -> ChatResponse {
    let mut token = TokenLogprob::new("Hi", -0.5);
    token.top = vec![TokenLogprob::new("Ho", -1.5)];
    let message = AssistantMessage::text("Hi").with_tool_calls(calls.to_vec());
    let mut response = ChatResponse::new(message);
    response.logprobs = vec![token];
    response
}

#[tokio::test]
async fn returns_log_probabilities_if_requested() {
    let expected = json!([{
        "token": "Hi", "logprob": -0.5, "bytes": [72, 105],
        "top_logprobs": [{ "token": "Ho", "logprob": -1.5, "bytes": [72, 111] }],
    }]);
    let include = json!(["message.output_text.logprobs"]);
    let user = json!([{ "role": "user", "content": "Hi" }]);
    let table = [
        ("responses", json!({ "model": "m", "input": "Hi", "include": include }), Some(0)),
        ("responses", json!({ "model": "m", "input": "Hi", "include": include, "top_logprobs": 1 }), Some(1)),
        ("responses", json!({ "model": "m", "input": "Hi" }), None),
        ("chat/completions", json!({ "model": "m", "messages": user, "logprobs": true }), Some(0)),
        (
            "chat/completions",
            json!({ "model": "m", "messages": user, "logprobs": true, "top_logprobs": 1 }),
            Some(1),
        ),
        ("chat/completions", json!({ "model": "m", "messages": user, "logprobs": false }), None),
    ];
    // A call completes the text before its probabilities are known.
    let replies = [with_logprobs(&[]), with_logprobs(&[ToolCall::new("1", "f", "{}")])];
    for ((path, body, requested), reply) in
        table.iter().flat_map(|row| replies.iter().map(move |reply| (row, reply)))
    {
        let requested = *requested;
        let model = (0..2).fold(ScriptedModel::new(), |model, _| {
            model.expects(move |request| request.options().top_logprobs == requested).replies(reply.clone())
        });
        let caller = caller(&model).await;
        let whole = caller.ask(path, body).await;
        let last = caller.events(path, body).await.pop().unwrap();
        for answer in [&whole, &last["response"], &last] {
            let parts = &answer["output"][0]["content"][0]["logprobs"];
            let logprobs = if parts.is_null() { &answer["choices"][0]["logprobs"]["content"] } else { parts };
            assert!(answer["id"].is_null() || *logprobs == expected, "{path}: {answer}");
        }
    }
}

#[tokio::test]
async fn writes_all_items_and_reasons_of_a_response() {
    let mut message = AssistantMessage::text("Let me see.")
        .with_tool_calls([ToolCall::new("a", "f", "{}"), ToolCall::new("b", "f", "")]);
    message.reasoning = Some("Hm.".into());
    let mut usage = Usage::new(10, 5);
    (usage.cached_tokens, usage.reasoning_tokens) = (Some(4), Some(3));
    let truncated = |reason| ChatResponse::new(AssistantMessage::text("It is")).with_finish_reason(reason);
    let model = ScriptedModel::new()
        .replies(ChatResponse::new(message).with_usage(usage))
        .replies(truncated(FinishReason::Length))
        .replies(truncated(FinishReason::ContentFilter))
        .replies(ChatResponse::new(AssistantMessage::refusal("I may not.")))
        .says("");
    let caller = caller(&model).await;
    let ask = async || caller.ask("responses", &json!({ "model": "m", "input": "Hi" })).await;

    let response = ask().await;
    let items = response["output"].as_array().unwrap();
    let kinds: Vec<_> = items.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call", "function_call"]);
    assert_eq!(items[0]["summary"], json!([{ "type": "summary_text", "text": "Hm." }]));
    assert_eq!((&items[2]["call_id"], &items[3]["call_id"]), (&json!("a"), &json!("b")));
    assert_eq!((&response["status"], &response["usage"]["total_tokens"]), (&json!("completed"), &json!(15)));
    assert_eq!(response["usage"]["input_tokens_details"]["cached_tokens"], 4);
    assert_eq!(response["usage"]["output_tokens_details"]["reasoning_tokens"], 3);

    for reason in ["max_output_tokens", "content_filter"] {
        let response = ask().await;
        assert_eq!(
            (&response["status"], &response["incomplete_details"]["reason"]),
            (&json!("incomplete"), &json!(reason))
        );
        assert_eq!(response["output"][0]["status"], "incomplete");
    }
    assert_eq!(ask().await["output"][0]["content"], json!([{ "type": "refusal", "refusal": "I may not." }]));
    assert_eq!(ask().await["output"][0]["content"][0]["text"], "");
}

#[tokio::test]
async fn stores_continues_and_deletes_responses() {
    for is_streamed in [false, true] {
        let model = ScriptedModel::new().calls("f", "{}").says("Two.").says("Three.");
        let caller = caller(&model).await;
        let send = async |body: Value| match is_streamed {
            true => caller.events("responses", &body).await.pop().unwrap()["response"].take(),
            false => caller.ask("responses", &body).await,
        };
        let first = send(json!({ "model": "m", "input": "One?", "instructions": "Be brief." })).await;
        let id = first["id"].as_str().unwrap().to_owned();
        assert_eq!(caller.get(&format!("responses/{id}")).await.body, first);
        let output = json!([{ "type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "1" }]);
        let second = send(json!({ "model": "m", "input": output, "previous_response_id": id })).await;
        let text: Vec<_> = model.requests()[1].iter().map(|message| message.text().into_owned()).collect();
        assert_eq!(text, ["One?", "", "1"], "instructions are not carried over");
        // A response can be continued more than once.
        send(json!({ "model": "m", "input": "And?", "previous_response_id": second["id"] })).await;
        assert_eq!(model.requests()[2].len(), 5);

        let deleted = caller.delete(&format!("responses/{id}")).await;
        assert_eq!(deleted.body, json!({ "id": id, "object": "response", "deleted": true }));
        for gone in
            [caller.get(&format!("responses/{id}")).await, caller.delete(&format!("responses/{id}")).await]
        {
            assert_eq!((gone.status, &gone.body["error"]["code"]), (404, &json!("response_not_found")));
        }
        let missing = caller
            .post("responses", &json!({ "model": "m", "input": "?", "previous_response_id": id }))
            .await;
        assert_eq!((missing.status, &missing.body["error"]["param"]), (404, &json!("previous_response_id")));
    }
}

#[tokio::test]
async fn rejects_invalid_requests() {
    let function =
        |name: Value| json!({ "model": "m", "input": "Hi", "tools": [{ "type": "function", "name": name }] });
    let input = |items: Value| json!({ "model": "m", "input": items });
    let with = |field: &str, value: Value| json!({ "model": "m", "input": "Hi", field: value });
    let output = json!({ "type": "function_call_output", "call_id": "a", "output": "1" });
    let call = json!({ "type": "function_call", "call_id": "a", "name": "f", "arguments": "{}" });
    let table = [
        (json!([]), 400, "", "invalid request: "),
        (json!({ "model": "m" }), 400, "input", "missing input"),
        (input(json!(1)), 400, "", "invalid request: `input` must be a string or a list of items"),
        (input(json!([])), 400, "input", "expected at least one item"),
        (input(json!([{ "role": "robot", "content": "" }])), 400, "input[0].role", "unknown role `robot`"),
        (input(json!([{ "role": "user" }])), 400, "input[0].content", "missing content"),
        (input(json!([{ "role": "user", "content": [1] }])), 400, "input[0].content", "expected a string"),
        (
            input(json!([{ "role": "user", "content": [{ "type": "input_file" }] }])),
            400,
            "input[0].content",
            "unsupported part of type `input_file`; use `input_text` or `input_image`, each",
        ),
        (
            input(json!([{ "role": "user", "content": [{ "type": "input_image", "file_id": "f" }] }])),
            400,
            "input[0].content",
            "a part of type `input_image` needs an `image_url`",
        ),
        (
            input(json!([{ "role": "system", "content": [{ "type": "input_image", "image_url": "u" }] }])),
            400,
            "input[0].content",
            "unsupported part of type `input_image`; use `input_text`, each",
        ),
        (
            input(json!([{ "type": "item_reference", "id": "a" }])),
            400,
            "input[0].type",
            "unsupported item of type `item_reference`",
        ),
        (
            input(json!([{ "type": "function_call", "call_id": "a" }])),
            400,
            "input[0]",
            "a `function_call` needs",
        ),
        (
            input(json!([{ "type": "function_call_output", "output": "" }])),
            400,
            "input[0].call_id",
            "a `function_call_output` needs the id",
        ),
        (input(json!([output])), 400, "input[0].call_id", "no earlier open call"),
        (input(json!([call, output, output])), 400, "input[2].call_id", "no earlier open call"),
        (
            input(json!([call, { "role": "user", "content": "Hi" }])),
            400,
            "input",
            "the call `a` has no result",
        ),
        (with("background", json!(true)), 400, "background", "background responses are not supported"),
        (with("conversation", json!("c")), 400, "conversation", "conversations are not supported"),
        (with("prompt", json!({ "id": "p" })), 400, "prompt", "stored prompts are not supported"),
        (with("metadata", json!({ "a": 1 })), 400, "", "invalid request: invalid type: integer `1`"),
        (with("tools", json!([{ "type": "web_search" }])), 400, "tools[0]", "unsupported type of tool"),
        (with("tools", json!([{ "type": "tool_search" }])), 400, "tools[0]", "unsupported type of tool"),
        (
            with("tools", json!([{ "type": "function", "name": "now", "defer_loading": true }])),
            400,
            "tools[0].defer_loading",
            "this server has no search for tools; omit `defer_loading`",
        ),
        (
            input(json!([{ "type": "tool_search_call", "arguments": { "paths": ["now"] } }])),
            400,
            "input[0].type",
            "unsupported item of type `tool_search_call`",
        ),
        (
            input(json!([{ "type": "function_call", "call_id": "a", "name": "now", "arguments": {} }])),
            400,
            "input[0]",
            "a `function_call` needs",
        ),
        (function(json!(null)), 400, "tools[0].name", "missing name of the tool"),
        (with("tool_choice", json!("always")), 400, "tool_choice", "unknown mode `always`"),
        (with("tool_choice", json!({ "type": "web_search" })), 400, "tool_choice", "expected a string or"),
        (
            with("text", json!({ "format": { "type": "json_object" } })),
            400,
            "text.format",
            "unsupported format `json_object`",
        ),
        (
            with("text", json!({ "format": { "type": "json_schema", "name": "n", "schema": {} } })),
            400,
            "text.format",
            "this model does not support a JSON schema",
        ),
        (json!({ "model": "n", "input": "Hi" }), 404, "model", "unknown model `n`"),
    ];
    let caller = caller(&ScriptedModel::new()).await;
    for (body, status, param, message) in table {
        let answer = caller.post("responses", &body).await;
        let error = &answer.body["error"];
        assert_eq!(
            (answer.status, error["param"].as_str().unwrap_or_default()),
            (status, param),
            "{body}: {error}"
        );
        assert!(error["message"].as_str().unwrap().starts_with(message), "{body}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
}
