//! Calls: they occur when they are required, of the tools offered, and with valid arguments.

use std::collections::HashSet;

use serde_json::{Value, json};
use tool_core::model::{ChatRequest, ChatResponse, FinishReason, ToolChoice, ToolDefinition};
use tool_core::provider::ToolDefinitions;

use super::{ask_both_ways, model, request, seeded};

fn tools() -> ToolDefinitions {
    let object = |properties: Value| {
        let required: Vec<_> = properties.as_object().unwrap().keys().collect();
        json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
    };
    let tide =
        ToolDefinition::new("get_tide").with_description("Returns the tide").with_parameters(object(json!({
            "port": { "type": "string", "maxLength": 12 },
            "hours": { "type": "integer", "minimum": 1, "maximum": 48 },
        })));
    let lamp = ToolDefinition::new("switch_lamp").with_description("Switches a lamp").with_parameters(
        object(json!({
            "lamp": { "enum": ["red", "green"] },
            "on": { "type": "boolean" },
        })),
    );
    let now = ToolDefinition::new("now").with_description("Returns the time");
    ToolDefinitions::from_iter([tide, lamp, now])
}

pub(crate) fn required(seed: i64) -> ChatRequest<'static> {
    request(seed).with_tools(tools()).with_tool_choice(ToolChoice::Required)
}

/// Checks that each call is of a tool that was offered and that its arguments match the tool's schema.
pub(crate) fn check(request: &ChatRequest<'_>, response: &ChatResponse) {
    let mut ids = HashSet::new();
    for call in &response.message.tool_calls {
        let tool = request.tools().iter().find(|tool| tool.name() == call.name).unwrap();
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        jsonschema::validate(tool.parameters(), &arguments).unwrap();
        assert!(!call.id.is_empty() && ids.insert(&call.id), "ids differ");
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_required_call_occurs() {
    let model = model();
    let (mut names, mut most, mut with_text) = (HashSet::new(), 0, 0);
    for seed in 0..16 {
        let request = required(seed);
        let response = ask_both_ways(&model, &request).await;
        assert_eq!(response.finish_reason, FinishReason::ToolCalls);
        check(&request, &response);
        let calls = &response.message.tool_calls;
        assert!(!calls.is_empty());
        names.extend(calls.iter().map(|call| call.name.clone()));
        most = most.max(calls.len());
        with_text += usize::from(!response.message.text.is_empty());
    }
    assert_eq!(names.len(), 3, "every tool is called once");
    assert!(most > 1, "some replies have several calls");
    assert!(with_text > 0, "some replies have a text before the calls");
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_tool_chosen_by_name_is_called() {
    let model = model();
    for seed in 0..4 {
        let chosen =
            tools().iter().filter(|tool| tool.name() == "switch_lamp").cloned().collect::<ToolDefinitions>();
        let choice = ToolChoice::Tool("switch_lamp".into());
        let request = request(seed).with_tools(chosen).with_tool_choice(choice);
        let response = ask_both_ways(&model, &request).await;
        assert_eq!(response.finish_reason, FinishReason::ToolCalls);
        check(&request, &response);
        assert!(!response.message.tool_calls.is_empty());
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn calls_are_optional_by_default() {
    let model = model();
    let (mut calling, mut talking) = (0, 0);
    for seed in 0..16 {
        let request = request(seed).with_tools(tools());
        let response = ask_both_ways(&model, &request).await;
        check(&request, &response);
        match response.message.tool_calls.is_empty() {
            true => talking += 1,
            false => calling += 1,
        }
        let expected = if response.message.tool_calls.is_empty() { "stop" } else { "tool_calls" };
        let found = match response.finish_reason {
            FinishReason::Stop => "stop",
            FinishReason::ToolCalls => "tool_calls",
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected);
    }
    assert!(calling > 0 && talking > 0, "{calling} call, {talking} do not");
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn tool_choice_none_prevents_calls() {
    let model = model();
    for seed in 0..8 {
        let request = request(seed).with_tools(tools()).with_tool_choice(ToolChoice::None);
        assert!(ask_both_ways(&model, &request).await.message.tool_calls.is_empty());
    }
}

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_reply_truncated_anywhere_is_reported_as_truncated() {
    let model = model();
    // With this seed the reply starts with three or more calls.
    let begins_with_calls = async |seed: i64| {
        let message = ask_both_ways(&model, &required(seed)).await.message;
        message.text.is_empty() && message.tool_calls.len() > 2
    };
    let mut seed = 0;
    while !begins_with_calls(seed).await {
        seed += 1;
        assert!(seed < 99);
    }
    let (mut in_a_name, mut in_arguments) = (0, 0);
    for tokens in (1..120).step_by(7) {
        let request = required(seed).with_options(seeded(seed).with_max_output_tokens(tokens));
        let response = ask_both_ways(&model, &request).await;
        assert_eq!(response.finish_reason, FinishReason::Length);
        assert!(response.finish_reason.is_truncated());
        match response.message.tool_calls.last() {
            None => in_a_name += 1,
            Some(call) => {
                in_arguments += usize::from(serde_json::from_str::<Value>(&call.arguments).is_err());
            }
        }
    }
    assert!(in_a_name > 0 && in_arguments > 0, "{in_a_name} in a name, {in_arguments} in arguments");
}
