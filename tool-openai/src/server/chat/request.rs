//! Parses requests of the API into the core types.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tool_core::ModelOptions;
use tool_core::model::ChatRequest;
use tool_core::provider::{ResponseFormat, ToolDefinitions};
use tool_http::server::Caller;

use super::messages::{WireMessage, parse_messages};
use crate::server::backend::{BackendRequest, FieldNames};
use crate::server::error::ApiError;
use crate::server::request::{DeclaredFunction, check_tools, json_format, parse_body, parse_tool_choice};
use crate::server::state::ServerState;

const FIELD_NAMES: FieldNames = FieldNames {
    messages: "messages",
    response_format: "response_format",
    reasoning_effort: "reasoning_effort",
};

/// A parsed request.
pub(super) struct Request {
    pub(super) backend_request: BackendRequest,
    pub(super) is_streamed: bool,
    pub(super) includes_usage: bool,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct WireRequest {
    model: String,
    messages: Vec<WireMessage>,
    tools: Option<Vec<WireTool>>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u32>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    max_completion_tokens: Option<u32>,
    /// The former name of `max_completion_tokens`, which clients of other servers still send.
    max_tokens: Option<u32>,
    seed: Option<i64>,
    stop: Option<WireStop>,
    frequency_penalty: Option<f64>,
    presence_penalty: Option<f64>,
    logprobs: Option<bool>,
    top_logprobs: Option<u8>,
    service_tier: Option<String>,
    user: Option<String>,
    metadata: Option<BTreeMap<String, String>>,
    reasoning_effort: Option<String>,
    response_format: Option<WireFormat>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`stop` must be a string or a list of strings")]
enum WireStop {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
struct WireFormat {
    r#type: String,
    json_schema: Option<WireSchema>,
}

#[derive(Deserialize)]
struct WireSchema {
    name: String,
    schema: Option<Value>,
    strict: Option<bool>,
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct WireTool {
    r#type: String,
    function: Option<DeclaredFunction>,
}

pub(super) fn parse(body: &[u8], caller: Caller, state: &ServerState) -> Result<Request, ApiError> {
    let wire: WireRequest = parse_body(body)?;
    if wire.n.is_some_and(|n| n != 1) {
        return Err(ApiError::invalid("n", "only one choice is supported; omit `n`"));
    }
    let definitions = parse_tools(wire.tools.unwrap_or_default())?;
    let object_form = r#"{"type": "function", "function": {"name": …}}"#;
    let choice = parse_tool_choice(wire.tool_choice.as_ref(), chosen_tool, object_form, &definitions)?;
    // `model` stays unset: the backend decides how its model is called upstream.
    let mut options = ModelOptions::default();
    options.temperature = wire.temperature;
    options.top_p = wire.top_p;
    options.max_output_tokens = wire.max_completion_tokens.or(wire.max_tokens);
    options.seed = wire.seed;
    options.frequency_penalty = wire.frequency_penalty;
    options.presence_penalty = wire.presence_penalty;
    options.top_logprobs = wire.top_logprobs.or(Some(0)).filter(|_| wire.logprobs == Some(true));
    options.service_tier = wire.service_tier;
    options.user = wire.user;
    options.metadata = wire.metadata.unwrap_or_default();
    options.reasoning_effort = wire.reasoning_effort;
    options.stop = match wire.stop {
        Some(WireStop::One(text)) => vec![text],
        Some(WireStop::Several(texts)) => texts,
        None => Vec::new(),
    };
    let options = state.model_options(&wire.model, options, &FIELD_NAMES)?;
    let chat = ChatRequest::new(parse_messages(wire.messages)?)
        .with_tools(definitions)
        .with_tool_choice(choice)
        .with_parallel_tool_calls(wire.parallel_tool_calls)
        .with_options(options)
        .with_response_format(parse_format(wire.response_format)?);
    Ok(Request {
        backend_request: BackendRequest {
            caller,
            user: None,
            model: wire.model,
            chat,
            // A caller that has not declared the tool does not expect its calls.
            is_asked: false,
            field_names: &FIELD_NAMES,
        },
        is_streamed: wire.stream.unwrap_or(false),
        includes_usage: wire.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
    })
}

fn parse_tools(tools: Vec<WireTool>) -> Result<ToolDefinitions, ApiError> {
    let parse_tool = |(index, tool): (usize, WireTool)| match tool.function {
        Some(function) if tool.r#type == "function" => {
            function.into_definition(&format!("tools[{index}].function.parameters"))
        }
        _ => Err(ApiError::invalid(format!("tools[{index}]"), "unsupported type of tool; use `function`")),
    };
    check_tools(&tools)?;
    tools.into_iter().enumerate().map(parse_tool).collect()
}

fn chosen_tool(choice: &Value) -> Option<&str> {
    choice["function"]["name"].as_str()
}

fn parse_format(format: Option<WireFormat>) -> Result<Option<ResponseFormat>, ApiError> {
    let Some(WireFormat { r#type, json_schema }) = format else { return Ok(None) };
    let invalid = |message: String| Err(ApiError::invalid("response_format", message));
    match (&*r#type, json_schema) {
        ("text", _) => Ok(None),
        ("json_schema", Some(WireSchema { name, schema: Some(schema), strict })) => {
            Ok(Some(json_format(name, schema, strict)))
        }
        ("json_schema", _) => {
            invalid("`json_schema` needs an object `json_schema` with a `name` and a `schema`".into())
        }
        (other, _) => invalid(format!("unsupported format `{other}`; use `text` or `json_schema`")),
    }
}
