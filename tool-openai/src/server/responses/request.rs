//! Reads the API's requests into the core types.

use std::sync::Arc;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tool_core::{ChatRequest, Message, ModelOptions, ResponseFormat, ToolDefinitions};

use super::WORDS;
use super::input::read_input;
use super::stored::{Conversation, StoredResponse};
use super::wire::{WireFormat, WireRequest, WireTool};
use crate::server::backend::Asked;
use crate::server::error::ApiError;
use crate::server::tools::{DeclaredFunction, check_results, json_format, read_choice};

/// One request, read.
pub(super) struct Request {
    pub(super) asked: Asked,
    /// What the response repeats of the request.
    pub(super) echoed: Value,
    /// The conversation with what is asked, without instructions.
    pub(super) conversation: Conversation,
    pub(super) is_stored: bool,
    pub(super) is_streamed: bool,
}

/// `find` gives the response of an id.
pub(super) fn read(
    body: &[u8],
    find: impl FnOnce(&str) -> Result<Arc<StoredResponse>, ApiError>,
) -> Result<Request, ApiError> {
    let wire: WireRequest = serde_json::from_slice(body).map_err(|error| {
        let what =
            if error.is_data() { "the request cannot be read" } else { "the request is not valid JSON" };
        ApiError::new(StatusCode::BAD_REQUEST, format!("{what}: {error}"))
    })?;
    refuse_what_is_not_done(&wire)?;
    let tools = wire.tools.as_deref().unwrap_or_default();
    let definitions = read_tools(tools)?;
    let shape = r#"{"type": "function", "name": …}"#;
    let choice =
        read_choice(wire.tool_choice.as_ref(), |choice| choice["name"].as_str(), shape, &definitions)?;
    let previous = wire.previous_response_id.as_deref().map(find).transpose()?;
    let before = previous.map(|previous| previous.conversation.clone()).unwrap_or_default();
    let Some(input) = wire.input else {
        return Err(ApiError::invalid("input", "there is no input; send a text, or a list of items"));
    };
    let conversation = before.with(read_input(input, &before)?);
    let instructions = wire.instructions.as_deref().map(Message::system);
    let messages: Vec<_> = instructions.into_iter().chain(conversation.messages().cloned()).collect();
    check_results(&messages, "input")?;

    // Its model is the one that answers here, whatever it is called behind this server.
    let mut options = ModelOptions::default();
    options.temperature = wire.temperature;
    options.top_p = wire.top_p;
    options.max_output_tokens = wire.max_output_tokens;
    options.reasoning_effort = wire.reasoning.and_then(|reasoning| reasoning.effort);
    let includes_logprobs = wire.include.iter().flatten().any(|one| one == "message.output_text.logprobs");
    options.top_logprobs = wire.top_logprobs.or(includes_logprobs.then_some(0));
    options.service_tier = wire.service_tier;
    options.user = wire.safety_identifier.or(wire.user);
    options.metadata = wire.metadata.unwrap_or_default();
    let wire_format = wire.text.and_then(|text| text.format);
    let echoed = json!({
        "model": wire.model,
        "instructions": wire.instructions,
        "max_output_tokens": wire.max_output_tokens,
        "metadata": options.metadata,
        "parallel_tool_calls": wire.parallel_tool_calls.unwrap_or(true),
        "previous_response_id": wire.previous_response_id,
        "reasoning": { "effort": options.reasoning_effort, "summary": null },
        "store": wire.store.unwrap_or(true),
        "temperature": wire.temperature,
        "text": { "format": format_json(wire_format.as_ref()) },
        "tool_choice": wire.tool_choice.filter(|choice| !choice.is_null()).unwrap_or_else(|| json!("auto")),
        "tools": tools.iter().map(tool_json).collect::<Vec<_>>(),
        "top_logprobs": wire.top_logprobs,
        "top_p": wire.top_p,
        "truncation": "disabled",
    });
    let chat = ChatRequest::new(messages)
        .with_tools(definitions)
        .with_tool_choice(choice)
        .with_parallel_tool_calls(wire.parallel_tool_calls)
        .with_options(options)
        .with_response_format(read_format(wire_format)?);
    Ok(Request {
        asked: Asked { model: wire.model, chat, words: &WORDS },
        echoed,
        conversation,
        is_stored: wire.store.unwrap_or(true),
        is_streamed: wire.stream.unwrap_or(false),
    })
}

fn refuse_what_is_not_done(wire: &WireRequest) -> Result<(), ApiError> {
    let is_given = |value: &Option<Value>| value.as_ref().is_some_and(|value| !value.is_null());
    let refused = [
        ("background", wire.background == Some(true), "a response is made while its request waits"),
        (
            "conversation",
            is_given(&wire.conversation),
            "there are no conversations here; use `previous_response_id`",
        ),
        ("prompt", is_given(&wire.prompt), "there are no kept prompts here; use `instructions` and `input`"),
    ];
    for (param, is_asked_for, why) in refused {
        if is_asked_for {
            return Err(ApiError::invalid(param, why));
        }
    }
    Ok(())
}

fn read_tools(tools: &[WireTool]) -> Result<ToolDefinitions, ApiError> {
    let read = |(index, tool): (usize, &WireTool)| match &tool.name {
        Some(name) if tool.r#type == "function" => {
            let declared = DeclaredFunction {
                name: name.clone(),
                description: tool.description.clone(),
                parameters: tool.parameters.clone(),
                is_strict: tool.strict == Some(true),
            };
            declared.define(&format!("tools[{index}].parameters"))
        }
        Some(_) | None if tool.r#type == "function" => {
            Err(ApiError::invalid(format!("tools[{index}].name"), "a tool has a name"))
        }
        _ => Err(ApiError::invalid(
            format!("tools[{index}]"),
            "only tools of the type `function` are known here",
        )),
    };
    tools.iter().enumerate().map(read).collect()
}

fn tool_json(tool: &WireTool) -> Value {
    json!({
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict.unwrap_or(false),
    })
}

fn read_format(format: Option<WireFormat>) -> Result<Option<ResponseFormat>, ApiError> {
    let Some(WireFormat { r#type, name, schema, strict }) = format else { return Ok(None) };
    let wrong = |message: String| Err(ApiError::invalid("text.format", message));
    match (&*r#type, name, schema) {
        ("text", ..) => Ok(None),
        ("json_schema", Some(name), Some(schema)) => Ok(Some(json_format(name, schema, strict))),
        ("json_schema", ..) => wrong("the type `json_schema` has a `name` and a `schema`".into()),
        (other, ..) => wrong(format!("`{other}` is none of `text` and `json_schema`")),
    }
}

fn format_json(format: Option<&WireFormat>) -> Value {
    match format {
        Some(WireFormat { r#type, name: Some(name), schema, strict }) => {
            json!({ "type": r#type, "name": name, "schema": schema, "strict": strict.unwrap_or(false) })
        }
        _ => json!({ "type": "text" }),
    }
}
