//! Chat Completions as used by other clients.

use serde_json::{Value, json};
use tool_core::model::{AssistantMessage, ChatResponse, FinishReason, Usage};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, Message, ModelOptions, ToolCall, tool, tools};
use tool_openai::server::Server;

use crate::caller::Caller;

#[tokio::test]
async fn lists_and_retrieves_models() {
    let server = Server::new().model("m", ScriptedModel::new()).model("org/m:free", ScriptedModel::new());
    let caller = Caller::new(server).await;
    let list = caller.get("models").await.body;
    assert_eq!(list["data"].as_array().unwrap().len(), 2);
    for name in ["m", "org/m:free", "org%2Fm:free"] {
        let model = caller.get(&format!("models/{name}")).await;
        assert_eq!((model.status, &model.body["object"]), (200, &json!("model")), "{name}");
    }
    let missing = caller.get("models/n").await;
    assert_eq!((missing.status, &missing.body["error"]["code"]), (404, &json!("model_not_found")));
}

#[tokio::test]
async fn streams_usage_if_requested() {
    let mut usage = Usage::new(10, 5);
    (usage.cached_tokens, usage.reasoning_tokens) = (Some(4), Some(3));
    let model = (0..3).fold(ScriptedModel::new(), |model, _| model.says("Hi.").with_usage(usage));
    let caller = Caller::new(Server::new().model("m", model)).await;
    let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }] });
    let whole = caller.ask("chat/completions", &body).await;
    let without_usage = caller.events("chat/completions", &body).await;
    assert!(without_usage.iter().all(|chunk| chunk["usage"].is_null()));
    body["stream_options"] = json!({ "include_usage": true });
    let mut chunks = caller.events("chat/completions", &body).await;
    let last = chunks.pop().unwrap();
    assert_eq!((&last["choices"], &last["usage"]), (&json!([]), &whole["usage"]));
    assert!(chunks.iter().all(|chunk| chunk["usage"].is_null()));
    assert_eq!(last["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
    assert_eq!(last["usage"]["completion_tokens_details"]["reasoning_tokens"], 3);
    assert_eq!(
        (&last["usage"]["prompt_tokens"], &last["usage"]["completion_tokens"]),
        (&json!(10), &json!(5))
    );
}

#[tokio::test]
async fn passes_strict_tools_on() {
    let closed = json!({
        "type": "object",
        "properties": { "city": { "type": "string" } },
        "required": ["city"],
        "additionalProperties": false,
    });
    let open = json!({ "type": "object", "additionalProperties": true });
    let function = |parameters: &Value, strict: Value| json!([{ "type": "function", "function": { "name": "f", "parameters": parameters, "strict": strict } }]);
    let request = |tools: Value| json!({ "model": "m", "messages": [{ "role": "user", "content": "Hi" }], "tools": tools });
    for (strict, is_strict) in [(json!(true), true), (json!(false), false), (json!(null), false)] {
        let parameters = closed.clone();
        let model = ScriptedModel::new()
            .expects(move |request| request.tools()[0].is_strict() == is_strict)
            .expects(move |request| *request.tools()[0].parameters() == parameters)
            .says("Hi.");
        let caller = Caller::new(Server::new().model("m", model)).await;
        caller.ask("chat/completions", &request(function(&closed, strict))).await;
    }
    let caller = Caller::new(Server::new().model("m", ScriptedModel::new())).await;
    let refused = caller.post("chat/completions", &request(function(&open, json!(true)))).await;
    assert_eq!(
        (refused.status, &refused.body["error"]["param"]),
        (400, &json!("tools[0].function.parameters"))
    );
}

#[tokio::test]
async fn passes_a_history_with_calls_and_reasoning_on() {
    let call = json!({ "id": "a", "type": "function", "function": { "name": "f", "arguments": "{}" } });
    let picture = json!([{ "type": "image_url", "image_url": { "url": "https://example.org/a.png" } }]);
    let model = ScriptedModel::new().says("Hi.");
    let caller = Caller::new(Server::new().model("m", model.clone())).await;
    let body = json!({ "model": "m", "messages": [
        { "role": "user", "content": "Hi" },
        { "role": "assistant", "tool_calls": [call], "reasoning_content": "Hm." },
        { "role": "tool", "tool_call_id": "a", "content": picture },
        { "role": "assistant", "content": [{ "type": "text", "text": "Well." }, { "type": "refusal", "refusal": "No." }] },
        { "role": "user", "content": "Why?" },
    ] });
    caller.ask("chat/completions", &body).await;
    let sent = &model.requests()[0];
    let Message::Assistant(reply) = &sent[1] else { panic!() };
    assert_eq!(
        (reply.reasoning.as_deref(), &reply.tool_calls),
        (Some("Hm."), &vec![ToolCall::new("a", "f", "{}")])
    );
    let Message::Tool(result) = &sent[2] else { panic!() };
    assert_eq!(result.content.images().next().unwrap().url(), "https://example.org/a.png");
    let Message::Assistant(refusal) = &sent[3] else { panic!() };
    assert_eq!((&*refusal.text, refusal.refusal.as_deref()), ("Well.", Some("No.")));
}

#[tokio::test]
async fn accepts_fields_with_two_names_under_both() {
    let table = [
        (json!({ "reasoning": "Hm." }), "Hm."),
        (json!({ "reasoning_content": "Hm.", "reasoning": "Hm." }), "Hm."),
        (json!({ "reasoning_content": "", "reasoning": "Hm." }), "Hm."),
        (json!({ "reasoning_content": "Hm.", "reasoning": null }), "Hm."),
    ];
    for (names, expected) in table {
        let model = ScriptedModel::new().says("Hi.");
        let caller = Caller::new(Server::new().model("m", model.clone())).await;
        let mut reply = json!({ "role": "assistant", "content": "Hello." });
        reply.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
        let user = json!({ "role": "user", "content": "Hi" });
        let body = json!({ "model": "m", "messages": [user, reply, user] });
        caller.ask("chat/completions", &body).await;
        let reply = model.requests()[0][1].as_assistant().unwrap().clone();
        assert_eq!(reply.reasoning.as_deref(), Some(expected), "{names}");
    }
    for (names, expected) in [
        (json!({ "user": "u" }), "u"),
        (json!({ "user": "u", "safety_identifier": "s" }), "s"),
        (json!({ "user": "u", "safety_identifier": null }), "u"),
    ] {
        let model = ScriptedModel::new()
            .expects(move |request| request.options().user.as_deref() == Some(expected))
            .says("Hi.");
        let caller = Caller::new(Server::new().model("m", model)).await;
        let mut body = json!({ "model": "m", "input": "Hi" });
        body.as_object_mut().unwrap().extend(names.as_object().unwrap().clone());
        caller.ask("responses", &body).await;
    }
}

#[tool("Returns the answer", return_direct)]
fn answer() -> String {
    "42".into()
}

#[tokio::test]
async fn directly_returned_output_is_the_answer() {
    for is_streamed in [false, true] {
        let model = ScriptedModel::new().calls("answer", "{}");
        let agent = Agent::builder(model).tools(tools![answer]).build().unwrap();
        let caller = Caller::new(Server::new().agent("m", agent)).await;
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "What is it?" }] });
        let text: String = if is_streamed {
            let chunks = caller.events("chat/completions", &body).await;
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect()
        } else {
            caller.ask("chat/completions", &body).await["choices"][0]["message"]["content"]
                .as_str()
                .unwrap()
                .into()
        };
        assert_eq!(text, "42");
    }
}

#[tokio::test]
async fn reports_the_finish_reason_of_a_truncated_answer() {
    let cut = |reason| ChatResponse::new(AssistantMessage::text("It is")).with_finish_reason(reason);
    for (reason, expected) in
        [(FinishReason::Length, "length"), (FinishReason::ContentFilter, "content_filter")]
    {
        let model = ScriptedModel::new().replies(cut(reason.clone())).replies(cut(reason));
        let agent = Agent::builder(model).build().unwrap();
        let caller = Caller::new(Server::new().agent("m", agent)).await;
        let body = json!({ "model": "m", "messages": [{ "role": "user", "content": "What is it?" }] });
        assert_eq!(caller.ask("chat/completions", &body).await["choices"][0]["finish_reason"], expected);
        let chunks = caller.events("chat/completions", &body).await;
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], expected);
    }
}

#[tokio::test]
async fn passes_options_on() {
    let options = ModelOptions::default()
        .with_frequency_penalty(0.5)
        .with_presence_penalty(-0.5)
        .with_service_tier("flex")
        .with_user("u")
        .with_metadata("a", "b");
    let model = ScriptedModel::new().expects(move |request| *request.options() == options).says("Hi.");
    // Callers of an agent cannot set another tier.
    let tier = ModelOptions::default().with_service_tier("flex");
    let agent = Agent::builder(model).options(tier).build().unwrap();
    let caller = Caller::new(Server::new().agent("m", agent)).await;
    let body = json!({
        "model": "m", "messages": [{ "role": "user", "content": "Hi" }], "frequency_penalty": 0.5,
        "presence_penalty": -0.5, "service_tier": "flex", "user": "u", "metadata": { "a": "b" },
    });
    caller.ask("chat/completions", &body).await;
}
