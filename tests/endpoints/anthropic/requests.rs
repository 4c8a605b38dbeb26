//! The requests in `wire/anthropic/requests`, and those that are refused before they are sent.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tests::support::{RawServer, whole_answer};
use tool_anthropic::{Cache, CacheTtl, ErrorKind, HostedTool, Messages, Thinking, Warning};
use tool_core::content::{Content, File, Image, Part};
use tool_core::model::{AssistantMessage, ChatRequest, ToolChoice, ToolDefinition, ToolMessage};
use tool_core::provider::ResponseFormat;
use tool_core::{ChatModel, Message, ModelOptions, ToolCall};

use super::{MODEL, answering, bodies, builder, model};
use crate::responses::endpoint::{json_answer, streamed};

/// Returns the answer `Good.`.
fn good() -> Vec<u8> {
    json_answer(&reply(json!([{ "type": "text", "text": "Good." }])))
}

fn reply(content: Value) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": MODEL, "content": content,
        "stop_reason": "end_turn", "stop_sequence": null, "stop_details": null,
        "usage": { "input_tokens": 1, "output_tokens": 1 },
    })
}

/// Returns the body that a request is sent as.
async fn sent(model: impl FnOnce(&RawServer) -> Messages, request: &ChatRequest<'_>) -> Value {
    let server = answering(good()).await;
    model(&server).chat(request).await.unwrap();
    serde_json::from_str(&bodies(&server)[0]).unwrap()
}

/// Returns why a request is refused before it is sent.
async fn refusal(model: impl FnOnce(&RawServer) -> Messages, request: &ChatRequest<'_>) -> String {
    let server = answering(good()).await;
    let error = model(&server).chat(request).await.unwrap_err();
    assert_eq!(server.requests(), [""; 0]);
    assert!(error.is_permanent());
    error.to_string()
}

fn definition(tool: &Value, deferred: &[Value]) -> ToolDefinition {
    let mut definition = ToolDefinition::new(tool["name"].as_str().unwrap());
    if let Some(description) = tool["description"].as_str() {
        definition = definition.with_description(description);
    }
    definition = definition.with_parameters(tool["parameters"].clone());
    if tool["strict"] == true {
        definition = definition.into_strict().unwrap();
    }
    definition.with_deferred(deferred.contains(&tool["name"]))
}

fn chat_request(case: &Value, messages: Vec<Message>) -> ChatRequest<'static> {
    let deferred = case["deferred"].as_array().map_or(&[][..], Vec::as_slice);
    let tools = case["tools"].as_array().unwrap().iter().map(|tool| definition(tool, deferred));
    let choice = case.get("tool_choice").map(|choice| serde_json::from_value(choice.clone()).unwrap());
    let format = case.get("response_format").map(|format| {
        ResponseFormat::json_schema(format["name"].as_str().unwrap(), format["schema"].clone())
    });
    ChatRequest::new(messages)
        .with_tools(tools.collect::<Vec<_>>())
        .with_tool_search(case["tool_search"] == true)
        .with_tool_choice(choice.unwrap_or_default())
        .with_parallel_tool_calls(case["parallel_tool_calls"].as_bool())
        .with_options(serde_json::from_value(case["options"].clone()).unwrap())
        .with_response_format(format)
}

/// Compares bodies: a string is a block of text, `$any` any object, `$id` any id, the same for the same number.
fn matches(found: &Value, expected: &Value, ids: &mut HashMap<u64, String>) -> bool {
    if expected.get("$any").is_some() {
        return found.is_object();
    }
    if let Some(number) = expected.get("$id").and_then(Value::as_u64) {
        let Some(id) = found.as_str() else { return false };
        let is_valid = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        return is_valid && !id.is_empty() && ids.entry(number).or_insert_with(|| id.to_owned()) == id;
    }
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            found.len() == expected.len()
                && expected
                    .iter()
                    .all(|(name, value)| found.get(name).is_some_and(|found| matches(found, value, ids)))
        }
        (Value::Array(found), Value::Array(expected)) => {
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(found, value)| matches(found, value, ids))
        }
        _ => found == expected,
    }
}

#[tokio::test]
async fn requests_are_written() {
    let mut count = 0;
    for file in fs::read_dir("wire/anthropic/requests").unwrap() {
        let name = file.unwrap().path();
        let case: Value = serde_json::from_str(&fs::read_to_string(&name).unwrap()).unwrap();
        let mut messages = Vec::new();
        for message in case["messages"].as_array().unwrap() {
            let Some(response) = message.get("response") else {
                messages.push(serde_json::from_value(message.clone()).unwrap());
                continue;
            };
            let server = answering(json_answer(response)).await;
            let response = model(&server).chat(&chat_request(&case, messages.clone())).await.unwrap();
            messages.push(Message::Assistant(response.message));
        }
        let body = sent(model, &chat_request(&case, messages)).await;
        let expected = &case["expected"];
        assert!(matches(&body, expected, &mut HashMap::new()), "{}:\n{body:#}\n{expected:#}", name.display());
        count += 1;
    }
    assert!(count >= 7);
}

fn question() -> ChatRequest<'static> {
    ChatRequest::new([Message::user("When?")])
}

fn with_tool() -> ChatRequest<'static> {
    question().with_tools([ToolDefinition::new("now")])
}

fn called(results: impl IntoIterator<Item = Message>) -> ChatRequest<'static> {
    let call = AssistantMessage::default().with_tool_calls([ToolCall::new("1", "now", "{}")]);
    let messages = [Message::user("When?"), Message::Assistant(call)];
    ChatRequest::new(messages.into_iter().chain(results).collect::<Vec<_>>())
}

#[tokio::test]
async fn refuses_what_cannot_be_combined() {
    let schema = json!({ "type": "object", "additionalProperties": true });
    let open = question().with_response_format(ResponseFormat::json_schema("place", schema));
    let hot = question().with_options(ModelOptions::default().with_temperature(0.5));
    let required = with_tool().with_tool_choice(ToolChoice::Required);
    let required_old = required.clone().with_options(ModelOptions::default().with_model("claude-opus-4-5"));
    let blank = question().with_options(ModelOptions::default().with_stop([" "]));
    let reserved = question().with_options(ModelOptions::default().with_extra("max_tokens", 7));
    let both = HostedTool::web_search().allowed_domains(["a"]).blocked_domains(["b"]);
    let pointed = HostedTool::web_search().with("cache_control", json!({ "type": "ephemeral" }));
    let place = json!({ "type": "object", "properties": {} });
    let typed = question().with_response_format(ResponseFormat::json_schema("place", place));
    let prefilled = ChatRequest::new([Message::user("When?"), Message::assistant("At ")]);
    let searching = question().with_tools([ToolDefinition::new("web_search")]);
    let table = [
        (
            refusal(model, &required).await,
            "the model `claude-sonnet-5-5` cannot be required to call a tool; use `ToolChoice::Auto`, and ask for the call in the instructions",
        ),
        (
            refusal(|server| model(server).thinking(Thinking::budget(2000)), &required_old).await,
            "a model with `Thinking::budget` cannot be required to call a tool; use `ToolChoice::Auto`, and ask for the call in the instructions",
        ),
        (
            refusal(|server| model(server).thinking(Thinking::adaptive()), &hot).await,
            "`temperature` and `top_p` cannot be combined with thinking; unset them, or use `Thinking::off`",
        ),
        (
            refusal(|server| model(server).thinking(Thinking::budget(7)), &question()).await,
            "`Thinking::budget` is 7; use at least 1024 tokens",
        ),
        (
            refusal(model, &open).await,
            "the API cannot enforce the schema of the answer `place`; take the answer `by_tool`, or use a simpler type",
        ),
        (
            refusal(|server| model(server).hosted_tool(both), &question()).await,
            "the tool `web_search` has allowed and blocked domains; use one of them",
        ),
        (
            refusal(|server| model(server).hosted_tool(pointed), &question()).await,
            "the tool `web_search` sets `cache_control`; use `Messages::cache`",
        ),
        (
            refusal(|server| model(server).hosted_tool(HostedTool::web_search()), &searching).await,
            "two tools are named `web_search`; rename yours, or leave out one",
        ),
        (
            refusal(|server| model(server).citations(true), &typed).await,
            "an answer with a schema cannot have citations; leave out `citations`, or use `by_tool`",
        ),
        (
            refusal(|server| model(server).hosted_tool(HostedTool::web_fetch().citations(true)), &typed)
                .await,
            "an answer with a schema cannot have citations; leave out `citations`, or use `by_tool`",
        ),
        (
            refusal(model, &prefilled).await,
            "the model `claude-sonnet-5-5` does not continue a reply; add a user message behind the last reply",
        ),
        (
            refusal(model, &blank).await,
            "a text of the option `stop` is blank, which the API rejects; leave it out",
        ),
        (
            refusal(model, &reserved).await,
            "the extra field `max_tokens` is reserved; use `ModelOptions::max_output_tokens` instead",
        ),
    ];
    for (found, expected) in table {
        assert_eq!(found, expected);
    }
}

#[tokio::test]
async fn refuses_conversations_that_the_api_rejects() {
    let orphan = ToolMessage::new("2", "now", "noon");
    let svg = Part::from(Image::from_bytes("image/svg+xml", "<svg/>"));
    let table = [
        (ChatRequest::new([]), "the request has no message with content; add a user message"),
        (
            ChatRequest::new([Message::user(" \n")]),
            "the request has no message with content; add a user message",
        ),
        (
            ChatRequest::new([Message::user("When?"), Message::Tool(orphan.clone())]),
            "the result of `now` does not follow its call `2`; repair the conversation, or leave out the result",
        ),
        (
            called([Message::Tool(orphan)]),
            "the result of `now` does not follow its call `2`; repair the conversation, or leave out the result",
        ),
        (
            called([]),
            "the call `1` has no result directly after it; repair the conversation, or leave out the call",
        ),
        (
            called([Message::user("Well?")]),
            "the call `1` has no result directly after it; repair the conversation, or leave out the call",
        ),
        (
            ChatRequest::new([Message::user(Content::from(svg))]),
            "the API does not accept images of type `image/svg+xml`; use `image/jpeg`, `image/png`, `image/gif`, `image/webp`",
        ),
        (
            question().with_tools([ToolDefinition::new("clock.now")]),
            "invalid tool name `clock.now`; use 1 to 128 letters, digits, `_` and `-`",
        ),
        (
            question().with_tools([ToolDefinition::new("a"), ToolDefinition::new("a")]),
            "two tools are named `a`",
        ),
        (
            question()
                .with_tools((0..10_001).map(|n| ToolDefinition::new(format!("t{n}"))).collect::<Vec<_>>()),
            "the request has 10001 tools, but the API accepts at most 10000",
        ),
    ];
    for (request, expected) in table {
        assert_eq!(refusal(model, &request).await, expected);
    }
}

#[tokio::test]
async fn corrects_what_the_api_rejects() {
    // Ids and names of another provider, blank texts, equal roles that follow each other, a refusal, and a late system message.
    let foreign =
        AssistantMessage::text("So. ").with_tool_calls([ToolCall::new("call:1", "clock.now", "oops")]);
    let failed: ToolMessage = serde_json::from_value(
        json!({ "call_id": "call:1", "name": "clock.now", "content": " ", "is_error": true }),
    )
    .unwrap();
    let body = sent(
        model,
        &ChatRequest::new([
            Message::system(" "),
            Message::user("One."),
            Message::user("Two."),
            Message::Assistant(AssistantMessage::refusal("No.")),
            Message::user("Three."),
            Message::Assistant(foreign),
            Message::Tool(failed),
            Message::system("Be brief."),
            Message::user(Content::from_iter([" ".into(), "Four.".into()])),
            Message::assistant(" "),
        ]),
    )
    .await;
    let text = |text: &str| json!({ "type": "text", "text": text });
    let id = &body["messages"][1]["content"][1]["id"];
    assert!(id.as_str().unwrap().starts_with("call_"), "{id}");
    let call =
        json!({ "type": "tool_use", "id": id, "name": "clock_now", "input": { "INVALID_JSON": "oops" } });
    let result = json!({ "type": "tool_result", "tool_use_id": id, "content": [text("the tool failed")], "is_error": true });
    let expected = json!([
        { "role": "user", "content": [text("One."), text("Two."), text("Three.")] },
        { "role": "assistant", "content": [text("So. "), call] },
        { "role": "user", "content": [result, text("Be brief."), text("Four.")] },
    ]);
    assert_eq!(body["messages"], expected);
    assert_eq!(body.get("system"), None);
}

/// The API accepts trailing whitespace in all texts but the last one of a request.
#[tokio::test]
async fn texts_keep_their_last_spaces() {
    for (messages, expected) in [
        (vec![Message::user("Hi"), Message::assistant("Well, "), Message::user("Go on")], "Well, "),
        (vec![Message::user("Hi"), Message::assistant("Well, ")], "Well,"),
    ] {
        let continues = |server: &RawServer| builder(server).build().unwrap().chat_model("claude-haiku-4-5");
        let body = sent(continues, &ChatRequest::new(messages)).await;
        assert_eq!(body["messages"][1]["content"][0]["text"], expected);
    }
}

/// System messages are written in their place, except the leading ones, and never between a call and its result.
#[tokio::test]
async fn system_messages_can_be_anywhere() {
    let call = || ToolCall::new("1", "now", "{}");
    let messages = [
        Message::system("One."),
        Message::system("Two."),
        Message::user("When?"),
        Message::system("Three."),
        Message::Assistant(AssistantMessage::default().with_tool_calls([call()])),
        Message::tool_text(&call(), "noon"),
        Message::system("Four."),
        Message::assistant("At noon."),
        Message::system("Five."),
    ];
    let text = |text: &str| json!({ "type": "text", "text": text });
    let body = sent(model, &ChatRequest::new(messages.to_vec())).await;
    assert_eq!(body["system"], json!([text("One."), text("Two.")]));
    let call = json!({ "type": "tool_use", "id": "1", "name": "now", "input": {} });
    let result = json!({ "type": "tool_result", "tool_use_id": "1", "content": [text("noon")] });
    let expected = json!([
        { "role": "user", "content": [text("When?"), text("Three.")] },
        { "role": "assistant", "content": [call] },
        { "role": "user", "content": [result, text("Four.")] },
        { "role": "assistant", "content": [text("At noon.")] },
        { "role": "user", "content": [text("Five.")] },
    ]);
    assert_eq!(body["messages"], expected);
    let mut split = messages.to_vec();
    split.swap(5, 6);
    assert_eq!(
        refusal(model, &ChatRequest::new(split)).await,
        "the call `1` has no result directly after it; repair the conversation, or leave out the call"
    );
}

#[tokio::test]
async fn results_contain_images_documents_and_errors() {
    let calls = ["1", "2", "3", "4"].map(|id| ToolCall::new(id, "look", "{}"));
    let png = Part::from(Image::from_bytes("image/png", [1, 2, 3]));
    let pdf = Part::from(File::from_bytes("application/pdf", "%PDF").with_name("a.pdf"));
    let contents =
        [Content::from("See:").with_part(png.clone()), Content::from_iter([pdf]), Content::from("")];
    let failed: ToolMessage =
        serde_json::from_value(json!({ "call_id": "4", "name": "look", "content": "fog", "is_error": true }))
            .unwrap();
    let results = calls.iter().zip(contents).map(|(call, content)| {
        let mut result = ToolMessage::new(&call.id, "look", "");
        result.content = content;
        Message::Tool(result)
    });
    let reply = AssistantMessage::default().with_tool_calls(calls.clone());
    let start = [Message::user("Look."), Message::Assistant(reply)];
    let messages: Vec<_> = start.into_iter().chain(results).chain([Message::Tool(failed)]).collect();
    let body = sent(model, &ChatRequest::new(messages)).await;
    let text = |text: &str| json!({ "type": "text", "text": text });
    let source = |kind: &str, data: &str| json!({ "type": "base64", "media_type": kind, "data": data });
    let expected = json!([
        {
            "type": "tool_result", "tool_use_id": "1",
            "content": [text("See:"), { "type": "image", "source": source("image/png", "AQID") }],
        },
        {
            "type": "tool_result", "tool_use_id": "2",
            "content": [{ "type": "document", "source": source("application/pdf", "JVBERg=="), "title": "a.pdf" }],
        },
        { "type": "tool_result", "tool_use_id": "3" },
        { "type": "tool_result", "tool_use_id": "4", "content": [text("fog")], "is_error": true },
    ]);
    assert_eq!(body["messages"][2]["content"], expected);
}

/// Older models reject a budget for thinking about the results of calls that were made without thinking.
#[tokio::test]
async fn a_budget_needs_thinking_before_the_last_calls() {
    let call = ToolCall::new("call_1", "now", "{}");
    let foreign = AssistantMessage::default().with_tool_calls([call.clone()]);
    let mut messages =
        vec![Message::user("When?"), Message::Assistant(foreign), Message::tool_text(&call, "noon")];
    let server = answering(good()).await;
    let reported = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&reported);
    let hook = move |warning: &Warning<'_>| report.lock().unwrap().push(warning.to_string());
    let model = builder(&server).on_warning(hook).build().unwrap().chat_model("claude-opus-4-5");
    for (thinking, expected) in [
        (Thinking::budget(2000), None),
        (Thinking::adaptive(), Some("adaptive")),
        (Thinking::off(), Some("disabled")),
    ] {
        model.clone().thinking(thinking).chat(&ChatRequest::new(messages.clone())).await.unwrap();
        let body: Value = serde_json::from_str(bodies(&server).last().unwrap()).unwrap();
        assert_eq!(body.pointer("/thinking/type").and_then(Value::as_str), expected);
    }
    let warning = "`Thinking::budget` was omitted, because the last calls were made without thinking";
    assert_eq!(*reported.lock().unwrap(), [warning]);
    messages.push(Message::user("Sure?"));
    model.thinking(Thinking::budget(2000)).chat(&ChatRequest::new(messages)).await.unwrap();
    let body: Value = serde_json::from_str(bodies(&server).last().unwrap()).unwrap();
    assert_eq!(body["thinking"]["type"], "enabled");
}

#[tokio::test]
async fn writes_thinking_hosted_tools_and_files() {
    let configure = |server: &RawServer| {
        model(server)
            .thinking(Thinking::budget(2000).summarized())
            .hosted_tool(HostedTool::web_search().max_uses(3))
            .hosted_tool(HostedTool::web_fetch().filtered().citations(true).max_content_tokens(9))
            .hosted_tool(HostedTool::code_execution())
            .citations(true)
    };
    let file = File::from_bytes("application/pdf", "%PDF").with_name("a.pdf");
    let request = ChatRequest::new([Message::user(Content::from("When?").with_part(file))]);
    let body = sent(configure, &request).await;
    let expected = json!({
        "model": MODEL,
        "max_tokens": 18_384,
        "thinking": { "type": "enabled", "budget_tokens": 2000, "display": "summarized" },
        "tools": [
            { "type": "web_search_20250305", "name": "web_search", "max_uses": 3 },
            { "type": "web_fetch_20260318", "name": "web_fetch", "citations": { "enabled": true }, "max_content_tokens": 9 },
            { "type": "code_execution_20250825", "name": "code_execution" },
        ],
        "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "When?" },
            {
                "type": "document",
                "source": { "type": "base64", "media_type": "application/pdf", "data": "JVBERg==" },
                "title": "a.pdf",
                "citations": { "enabled": true },
            },
        ] }],
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn sampling_needs_the_earlier_version() {
    let options = ModelOptions::default().with_temperature(0.5).with_top_p(0.9).with_model("claude-opus-4-5");
    let request = question().with_options(options);
    let body = sent(model, &request).await;
    assert_eq!((body.get("temperature"), body.get("top_p")), (None, None));
    let server = answering(good()).await.unchecked();
    let earlier = builder(&server).version("2023-06-01").build().unwrap().chat_model("m");
    earlier.chat(&request).await.unwrap();
    let body: Value = serde_json::from_str(&bodies(&server)[0]).unwrap();
    assert_eq!((&body["temperature"], &body["top_p"]), (&json!(0.5), &json!(0.9)));
    assert!(server.requests()[0].contains("anthropic-version: 2023-06-01\r\n"));
}

#[tokio::test]
async fn what_is_left_out_is_reported() {
    let server = answering(good()).await;
    let reported = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&reported);
    let hook = move |warning: &Warning<'_>| report.lock().unwrap().push(warning.to_string());
    let model = builder(&server).on_warning(hook).build().unwrap().chat_model(MODEL);
    let strict = ToolDefinition::new("deep").with_parameters(json!({
        "type": "object",
        "properties": { "tree": { "$ref": "#/$defs/tree" } },
        "$defs": { "tree": { "type": "object", "properties": { "left": { "$ref": "#/$defs/tree" } } } },
    }));
    let options = ModelOptions::default().with_seed(7).with_temperature(0.5).with_metadata("a", "b");
    let tools = vec![strict.into_strict().unwrap()];
    model.chat(&question().with_tools(tools).with_options(options)).await.unwrap();
    let expected = [
        "the option `temperature` was omitted, because the API does not support it",
        "the option `seed` was omitted, because the API does not support it",
        "the option `metadata` was omitted, because the API does not support it",
        "the tool `deep` is not strict, because the API accepts at most schemas without recursion per request",
    ];
    assert_eq!(*reported.lock().unwrap(), expected);
}

/// Returns where the cache points of a body are, and their lifetimes.
fn cache_points(body: &Value) -> Vec<(String, Value)> {
    fn collect(value: &Value, path: &str, points: &mut Vec<(String, Value)>) {
        if let Some(point) = value.get("cache_control") {
            points.push((path.to_owned(), point.get("ttl").cloned().unwrap_or_default()));
        }
        match value {
            Value::Object(members) => {
                members.iter().for_each(|(name, value)| collect(value, &format!("{path}/{name}"), points));
            }
            Value::Array(values) => {
                (0..)
                    .zip(values)
                    .for_each(|(index, value)| collect(value, &format!("{path}/{index}"), points));
            }
            _ => {}
        }
    }
    let mut points = Vec::new();
    collect(body, "", &mut points);
    points
}

#[tokio::test]
async fn sets_cache_points_where_they_pay() {
    let long = "Sail carefully. ".repeat(200);
    let tool = ToolDefinition::new("now").with_description(&long);
    let request = |tools: bool| {
        let request = ChatRequest::new([Message::system(&long), Message::user("When?")]);
        if tools { request.with_tools([tool.clone(), ToolDefinition::new("tide")]) } else { request }
    };
    let point = |path: &str, ttl: Value| (path.to_owned(), ttl);
    // A further request is likely only with tools or after a reply.
    let body = sent(model, &request(false)).await;
    assert_eq!(cache_points(&body), [point("/system/0", Value::Null)]);
    let body = sent(model, &request(true)).await;
    let last = "/messages/0/content/0";
    assert_eq!(
        cache_points(&body),
        [point("/tools/1", Value::Null), point("/system/0", Value::Null), point(last, Value::Null)]
    );
    let cache = Cache::default().prefix(CacheTtl::OneHour);
    let body = sent(|server| model(server).cache(cache), &request(true)).await;
    assert_eq!(
        cache_points(&body),
        [point("/tools/1", json!("1h")), point("/system/0", json!("1h")), point(last, Value::Null)]
    );
    let body = sent(|server| model(server).cache(Cache::off()), &request(true)).await;
    assert_eq!(cache_points(&body), []);
    // The provider sets them.
    let options = ModelOptions::default().with_extra("cache_control", json!({ "type": "ephemeral" }));
    let body = sent(model, &request(true).with_options(options)).await;
    assert_eq!(cache_points(&body), [point("", Value::Null)]);
}

/// Replies and tools that have cache points of their own do not exceed the four that the API accepts.
#[tokio::test]
async fn there_are_at_most_four_cache_points() {
    let long = "Sail carefully. ".repeat(200);
    let cached = json!({ "type": "ephemeral" });
    let server =
        answering(json_answer(&reply(json!([{ "type": "text", "text": long, "cache_control": cached }]))))
            .await;
    let mut messages = vec![Message::system(&long)];
    for _ in 0..5 {
        messages.push(Message::user("When?"));
        let response = model(&server).chat(&ChatRequest::new(messages.clone())).await.unwrap();
        messages.push(Message::Assistant(response.message));
    }
    messages.push(Message::user("When?"));
    let request = ChatRequest::new(messages).with_tools([ToolDefinition::new("now").with_description(&long)]);
    let body = sent(model, &request).await;
    let found: Vec<_> = cache_points(&body).into_iter().map(|(path, _)| path).collect();
    assert_eq!(found, ["/tools/0", "/system/0", "/messages/10/content/0"]);
    let tool = json!({ "type": "web_search_20250305", "name": "web_search", "cache_control": cached });
    let options = ModelOptions::default().with_extra("tools", json!([tool]));
    let body = sent(model, &request.with_options(options)).await;
    assert_eq!(cache_points(&body), [("/tools/1".to_owned(), Value::Null)]);
}

/// The provider looks for an earlier cache point among twenty blocks.
#[tokio::test]
async fn a_long_turn_has_a_point_behind_the_previous_one() {
    let long = "Sail carefully. ".repeat(200);
    let calls = |count: usize| (0..count).map(|number| ToolCall::new(format!("call_{number}"), "now", "{}"));
    let conversation = |count: usize| {
        let reply = AssistantMessage::default().with_tool_calls(calls(count));
        let results = calls(count).map(|call| Message::tool_text(&call, "noon"));
        let start = [Message::user(&long), Message::Assistant(reply)];
        ChatRequest::new(start.into_iter().chain(results).collect::<Vec<_>>())
    };
    for (count, expected) in
        [(10, vec!["/messages/2/content/9"]), (11, vec!["/messages/0/content/0", "/messages/2/content/10"])]
    {
        let body = sent(model, &conversation(count)).await;
        let found: Vec<_> = cache_points(&body).into_iter().map(|(path, _)| path).collect();
        assert_eq!(found, expected, "{count} calls");
    }
}

#[tokio::test]
async fn counts_tokens_and_describes_models() {
    let server = answering(json_answer(&json!({ "input_tokens": 42 }))).await;
    let options =
        ModelOptions::default().with_max_output_tokens(7).with_user("u").with_extra("inference_geo", "eu");
    let request = with_tool().with_options(options);
    assert_eq!(model(&server).count_tokens(&request).await.unwrap(), Some(42));
    assert!(server.requests()[0].starts_with("POST /v1/messages/count_tokens "));
    let info = json!({
        "id": MODEL, "type": "model", "max_input_tokens": 200_000, "max_tokens": 64_000,
        "capabilities": { "image_input": { "supported": true }, "pdf_input": { "supported": false } },
    });
    let server = answering(json_answer(&info)).await;
    let info = model(&server).model_info().await.unwrap().unwrap();
    assert_eq!((info.context_window, info.max_output_tokens), (Some(200_000), Some(64_000)));
    assert_eq!(
        (info.supports_images, info.supports_files, info.supports_reasoning),
        (Some(true), Some(false), None)
    );
    assert!(server.requests()[0].starts_with("GET /v1/models/claude-sonnet-5-5 "));
}

#[tokio::test]
async fn descriptions_are_bounded_and_errors_name_the_request() {
    let headers = [("content-type", "application/json"), ("request-id", "req_1")];
    let long = format!(r#"{{"max_tokens":1,"a":"{}"}}"#, "x".repeat(1 << 20));
    let cut = "HTTP/1.1 200 OK\r\nrequest-id: req_1\r\ncontent-length: 99\r\n\r\n{\"max_tokens\":"
        .as_bytes()
        .to_vec();
    let table = [
        (whole_answer("200 OK", &headers, long.as_bytes()), "URL: the response is longer than 1048576 bytes"),
        (
            whole_answer("200 OK", &headers, b"[7]"),
            "URL: the response does not follow the API; check the base URL",
        ),
        (
            whole_answer("404 No", &headers, b""),
            "URL failed with status 404: the response body is empty; check the base URL",
        ),
        (cut, "the connection to ADDRESS failed"),
    ];
    for (answer, expected) in table {
        let server = answering(answer).await;
        let model = model(&server);
        let (info, count) = (format!("models/{MODEL}"), "messages/count_tokens".to_owned());
        for (method, path, error) in [
            ("GET", info, model.model_info().await.unwrap_err()),
            ("POST", count, model.count_tokens(&question()).await.unwrap_err()),
        ] {
            let address = format!("{}/{path}", server.base_url());
            let expected = expected.replacen("URL", &format!("{method} {address}"), 1);
            let expected = expected.replace("ADDRESS", &address);
            assert_eq!(error.to_string(), format!("{expected} (request req_1)"));
        }
    }
}

/// Every error that came with a response has the id of its request.
#[tokio::test]
async fn errors_have_the_id_of_the_request() {
    let id = ("request-id", "req_1");
    let stream = ("content-type", "text/event-stream");
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let start = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\"}}\n\n";
    let table = [
        (whole_answer("529 Overloaded", &[id], overloaded.as_bytes()), ErrorKind::Overloaded),
        (whole_answer("200 OK", &[id], overloaded.as_bytes()), ErrorKind::Overloaded),
        (whole_answer("200 OK", &[id], b"<html>"), ErrorKind::InvalidResponse),
        (whole_answer("200 OK", &[id, ("content-encoding", "br")], b"x"), ErrorKind::InvalidResponse),
        (
            whole_answer("302 Found", &[id, ("location", "https://example.org")], b""),
            ErrorKind::InvalidResponse,
        ),
        (whole_answer("200 OK", &[id, stream], b""), ErrorKind::Incomplete),
        (whole_answer("200 OK", &[id, stream], start.as_bytes()), ErrorKind::Incomplete),
        (whole_answer("200 OK", &[id, stream], b"data: {]\n\n"), ErrorKind::InvalidResponse),
        (
            whole_answer("200 OK", &[id, stream], format!("{start}data: {overloaded}\n\n").as_bytes()),
            ErrorKind::Overloaded,
        ),
    ];
    for (answer, kind) in table {
        let shown = String::from_utf8_lossy(&answer).into_owned();
        let server = answering(answer).await;
        let (model, request) = (model(&server), question());
        let error = streamed(&model, &request).await.1.unwrap_err();
        let error = error.downcast_ref::<tool_anthropic::Error>().unwrap();
        assert_eq!((error.kind(), error.request_id()), (kind, Some("req_1")), "{shown}");
    }
}

#[tokio::test]
async fn sends_one_header_with_the_key() {
    for (endpoint, expected) in [
        (tool_anthropic::Endpoint::anthropic(), "x-api-key: sk-1"),
        (tool_anthropic::Endpoint::ollama(), "authorization: Bearer sk-1"),
    ] {
        let server = answering(good()).await.unchecked();
        let model =
            builder(&server).endpoint(endpoint).api_key("sk-1").beta("a-1").beta("b-2").build().unwrap();
        model.chat_model("m").chat(&question()).await.unwrap();
        let head = server.requests()[0].to_lowercase();
        assert!(head.contains(&expected.to_lowercase()), "{head}");
        assert_eq!(head.matches("sk-1").count(), 1, "{head}");
        assert!(head.contains("anthropic-beta: a-1,b-2\r\n"), "{head}");
    }
}
