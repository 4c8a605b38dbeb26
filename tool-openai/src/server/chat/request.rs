//! Reads the API's requests into the core types.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use tool_core::{ChatRequest, ModelOptions, ResponseFormat, ToolDefinitions};

use super::WORDS;
use super::messages::{WireMessage, read_messages};
use crate::server::backend::Asked;
use crate::server::error::ApiError;
use crate::server::tools::{DeclaredFunction, json_format, read_choice};

/// One request, read.
pub(super) struct Request {
    pub(super) asked: Asked,
    pub(super) is_streamed: bool,
    pub(super) includes_usage: bool,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct WireRequest {
    model: String,
    messages: Vec<WireMessage>,
    #[serde(default)]
    tools: Option<Vec<WireTool>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    parallel_tool_calls: Option<bool>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    n: Option<u32>,
    #[serde(default)]
    temperature: Option<f64>,
    #[serde(default)]
    top_p: Option<f64>,
    #[serde(default)]
    max_completion_tokens: Option<u32>,
    /// The earlier name of `max_completion_tokens`, which clients of other servers still send.
    #[serde(default)]
    max_tokens: Option<u32>,
    #[serde(default)]
    seed: Option<i64>,
    #[serde(default)]
    stop: Option<WireStop>,
    #[serde(default)]
    frequency_penalty: Option<f64>,
    #[serde(default)]
    presence_penalty: Option<f64>,
    #[serde(default)]
    logprobs: Option<bool>,
    #[serde(default)]
    top_logprobs: Option<u8>,
    #[serde(default)]
    service_tier: Option<String>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    metadata: Option<BTreeMap<String, String>>,
    #[serde(default)]
    reasoning_effort: Option<String>,
    #[serde(default)]
    response_format: Option<WireFormat>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`stop` must be a text or a list of texts")]
enum WireStop {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
struct WireFormat {
    r#type: String,
    #[serde(default)]
    json_schema: Option<WireSchema>,
}

#[derive(Deserialize)]
struct WireSchema {
    name: String,
    #[serde(default)]
    schema: Option<Value>,
    #[serde(default)]
    strict: Option<bool>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct WireTool {
    r#type: String,
    #[serde(default)]
    function: Option<WireDefinition>,
}

#[derive(Deserialize)]
struct WireDefinition {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    parameters: Option<Value>,
    #[serde(default)]
    strict: Option<bool>,
}

pub(super) fn read(body: &[u8]) -> Result<Request, ApiError> {
    let wire: WireRequest = serde_json::from_slice(body).map_err(|error| {
        let what =
            if error.is_data() { "the request cannot be read" } else { "the request is not valid JSON" };
        ApiError::new(StatusCode::BAD_REQUEST, format!("{what}: {error}"))
    })?;
    if wire.n.is_some_and(|n| n != 1) {
        return Err(ApiError::invalid("n", "one choice is all that there is here; leave `n` out"));
    }
    let definitions = read_tools(wire.tools.unwrap_or_default())?;
    let shape = r#"{"type": "function", "function": {"name": …}}"#;
    let choice = read_choice(wire.tool_choice.as_ref(), name_in_choice, shape, &definitions)?;
    // Its model is the one that answers here, whatever it is called behind this server.
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
    let chat = ChatRequest::new(read_messages(wire.messages)?)
        .with_tools(definitions)
        .with_tool_choice(choice)
        .with_parallel_tool_calls(wire.parallel_tool_calls)
        .with_options(options)
        .with_response_format(read_format(wire.response_format)?);
    Ok(Request {
        asked: Asked { model: wire.model, chat, words: &WORDS },
        is_streamed: wire.stream.unwrap_or(false),
        includes_usage: wire.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
    })
}

fn read_tools(tools: Vec<WireTool>) -> Result<ToolDefinitions, ApiError> {
    let read = |(index, tool): (usize, WireTool)| match tool.function {
        Some(function) if tool.r#type == "function" => {
            let declared = DeclaredFunction {
                name: function.name,
                description: function.description,
                parameters: function.parameters,
                is_strict: function.strict == Some(true),
            };
            declared.define(&format!("tools[{index}].function.parameters"))
        }
        _ => Err(ApiError::invalid(
            format!("tools[{index}]"),
            "only tools of the type `function` are known here",
        )),
    };
    tools.into_iter().enumerate().map(read).collect()
}

fn name_in_choice(choice: &Value) -> Option<&str> {
    choice["function"]["name"].as_str()
}

fn read_format(format: Option<WireFormat>) -> Result<Option<ResponseFormat>, ApiError> {
    let Some(WireFormat { r#type, json_schema }) = format else { return Ok(None) };
    let wrong = |message: String| Err(ApiError::invalid("response_format", message));
    match (&*r#type, json_schema) {
        ("text", _) => Ok(None),
        ("json_schema", Some(WireSchema { name, schema: Some(schema), strict })) => {
            Ok(Some(json_format(name, schema, strict)))
        }
        ("json_schema", _) => {
            wrong("the type `json_schema` has an object `json_schema` with a `name` and a `schema`".into())
        }
        (other, _) => wrong(format!("`{other}` is none of `text` and `json_schema`")),
    }
}
