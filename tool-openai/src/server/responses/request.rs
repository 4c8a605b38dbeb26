//! Parses requests of the API into the core types.

use std::sync::Arc;

use serde_json::{Value, json};
use tool_core::model::ChatRequest;
use tool_core::provider::{ResponseFormat, ToolDefinitions};
use tool_core::{Message, ModelOptions};
use tool_http::server::Caller;

use super::input::parse_input;
use super::wire::{WireFormat, WireRequest, WireTool};
use crate::server::backend::{BackendRequest, FieldNames};
use crate::server::error::ApiError;
use crate::server::request::{
    DeclaredFunction, check_results, check_tools, json_format, parse_body, parse_tool_choice,
};
use crate::server::state::ServerState;
use crate::server::stored_response::{Conversation, StoredResponse};

const FIELD_NAMES: FieldNames =
    FieldNames { messages: "input", response_format: "text.format", reasoning_effort: "reasoning.effort" };

/// A parsed request.
pub(super) struct Request {
    pub(super) backend_request: BackendRequest,
    /// The fields of the request that the response repeats.
    pub(super) echoed: Value,
    /// The conversation including the input, without instructions.
    pub(super) conversation: Conversation,
    pub(super) is_stored: bool,
    pub(super) is_streamed: bool,
}

/// Parses a request; `find_response` returns the stored response with an id.
pub(super) fn parse(
    body: &[u8],
    caller: Caller,
    state: &ServerState,
    find_response: impl FnOnce(&str) -> Result<Arc<StoredResponse>, ApiError>,
) -> Result<Request, ApiError> {
    let wire: WireRequest = parse_body(body)?;
    refuse_unsupported_fields(&wire)?;
    let tools = wire.tools.as_deref().unwrap_or_default();
    let definitions = parse_tools(tools)?;
    let object_form = r#"{"type": "function", "name": …}"#;
    let choice = parse_tool_choice(wire.tool_choice.as_ref(), chosen_tool, object_form, &definitions)?;
    let previous = wire.previous_response_id.as_deref().map(find_response).transpose()?;
    let previous = previous.map(|previous| previous.conversation.clone()).unwrap_or_default();
    let Some(input) = wire.input else {
        return Err(ApiError::invalid("input", "missing input; send a string or a list of items"));
    };
    let conversation = previous.with(parse_input(input, &previous)?);
    let instructions = wire.instructions.as_deref().map(Message::system);
    let messages: Vec<_> = instructions.into_iter().chain(conversation.messages().cloned()).collect();
    check_results(&messages, "input")?;

    // `model` stays unset: the backend decides how its model is called upstream.
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
    let options = state.model_options(&wire.model, options, &FIELD_NAMES)?;
    let is_stored = wire.store.unwrap_or(true);
    let wire_format = wire.text.and_then(|text| text.format);
    let echoed = json!({
        "model": wire.model,
        "instructions": wire.instructions,
        "max_output_tokens": options.max_output_tokens,
        "metadata": options.metadata,
        "parallel_tool_calls": wire.parallel_tool_calls.unwrap_or(true),
        "previous_response_id": wire.previous_response_id,
        "reasoning": { "effort": options.reasoning_effort, "summary": null },
        "store": is_stored,
        "temperature": options.temperature,
        "text": { "format": format_json(wire_format.as_ref()) },
        "tool_choice": wire.tool_choice.unwrap_or_else(|| json!("auto")),
        "tools": tools.iter().map(tool_json).collect::<Vec<_>>(),
        "top_logprobs": wire.top_logprobs.and(options.top_logprobs),
        "top_p": options.top_p,
        "truncation": "disabled",
    });
    let chat = ChatRequest::new(messages)
        .with_tools(definitions)
        .with_tool_choice(choice)
        .with_parallel_tool_calls(wire.parallel_tool_calls)
        .with_options(options)
        .with_response_format(parse_format(wire_format)?);
    Ok(Request {
        backend_request: BackendRequest {
            caller,
            user: None,
            model: wire.model,
            chat,
            is_asked: is_stored,
            field_names: &FIELD_NAMES,
        },
        echoed,
        conversation,
        is_stored,
        is_streamed: wire.stream.unwrap_or(false),
    })
}

fn refuse_unsupported_fields(wire: &WireRequest) -> Result<(), ApiError> {
    let (param, message) = if wire.background == Some(true) {
        ("background", "background responses are not supported; omit `background`")
    } else if wire.conversation.is_some() {
        ("conversation", "conversations are not supported; use `previous_response_id`")
    } else if wire.prompt.is_some() {
        ("prompt", "stored prompts are not supported; use `instructions` and `input`")
    } else {
        return Ok(());
    };
    Err(ApiError::invalid(param, message))
}

fn chosen_tool(choice: &Value) -> Option<&str> {
    choice["name"].as_str()
}

fn parse_tools(tools: &[WireTool]) -> Result<ToolDefinitions, ApiError> {
    let parse_tool = |(index, tool): (usize, &WireTool)| match &tool.name {
        // The caller does not expect the tool to be offered at once.
        _ if tool.defer_loading == Some(true) => Err(ApiError::invalid(
            format!("tools[{index}].defer_loading"),
            "this server has no search for tools; omit `defer_loading` and the tool `tool_search`",
        )),
        Some(name) if tool.r#type == "function" => {
            let declared = DeclaredFunction {
                name: name.clone(),
                description: tool.description.clone(),
                parameters: tool.parameters.clone(),
                strict: tool.strict,
            };
            declared.into_definition(&format!("tools[{index}].parameters"))
        }
        None if tool.r#type == "function" => {
            Err(ApiError::invalid(format!("tools[{index}].name"), "missing name of the tool"))
        }
        _ => Err(ApiError::invalid(format!("tools[{index}]"), "unsupported type of tool; use `function`")),
    };
    check_tools(tools)?;
    tools.iter().enumerate().map(parse_tool).collect()
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

fn parse_format(format: Option<WireFormat>) -> Result<Option<ResponseFormat>, ApiError> {
    let Some(WireFormat { r#type, name, schema, strict }) = format else { return Ok(None) };
    let invalid = |message: String| Err(ApiError::invalid("text.format", message));
    match (&*r#type, name, schema) {
        ("text", ..) => Ok(None),
        ("json_schema", Some(name), Some(schema)) => Ok(Some(json_format(name, schema, strict))),
        ("json_schema", ..) => invalid("`json_schema` needs a `name` and a `schema`".into()),
        (other, ..) => invalid(format!("unsupported format `{other}`; use `text` or `json_schema`")),
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
