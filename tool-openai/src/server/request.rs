//! Reads the API's requests into the core types.

use std::collections::HashMap;

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use tool_core::{
    AnswerFormat, AssistantMessage, ChatRequest, Content, Image, Message, ModelOptions, Part, ToolCall,
    ToolChoice, ToolDefinition, ToolDefinitions, ToolMessage,
};

use super::error::ApiError;

/// One request, read.
pub(super) struct Request {
    pub(super) model: String,
    pub(super) chat: ChatRequest<'static>,
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
struct WireMessage {
    role: String,
    #[serde(default)]
    content: Option<WireContent>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<WireCall>>,
    #[serde(default)]
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireContent {
    Text(String),
    Parts(Vec<WirePart>),
}

#[derive(Deserialize)]
struct WirePart {
    r#type: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    image_url: Option<WireImage>,
}

#[derive(Deserialize)]
struct WireImage {
    url: String,
}

#[derive(Deserialize)]
struct WireCall {
    id: String,
    function: WireFunction,
}

#[derive(Deserialize)]
struct WireFunction {
    name: String,
    arguments: String,
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
    let choice = read_choice(wire.tool_choice, &definitions)?;
    // Its model is the one that answers here, whatever it is called behind this server.
    let mut options = ModelOptions::default();
    options.temperature = wire.temperature;
    options.top_p = wire.top_p;
    options.max_output_tokens = wire.max_completion_tokens.or(wire.max_tokens);
    options.seed = wire.seed;
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
        .with_answer_format(read_format(wire.response_format)?);
    Ok(Request {
        model: wire.model,
        chat,
        is_streamed: wire.stream.unwrap_or(false),
        includes_usage: wire.stream_options.and_then(|options| options.include_usage).unwrap_or(false),
    })
}

fn read_tools(tools: Vec<WireTool>) -> Result<ToolDefinitions, ApiError> {
    let read = |(index, tool): (usize, WireTool)| match tool.function {
        Some(function) if tool.r#type == "function" => {
            let definition = ToolDefinition::new(function.name, function.description.unwrap_or_default());
            Ok(match function.parameters {
                Some(parameters) => definition.with_parameters(parameters),
                None => definition,
            })
        }
        _ => Err(ApiError::invalid(
            format!("tools[{index}]"),
            "only tools of the type `function` are known here",
        )),
    };
    tools.into_iter().enumerate().map(read).collect()
}

fn read_choice(choice: Option<Value>, definitions: &ToolDefinitions) -> Result<ToolChoice, ApiError> {
    let wrong = |message: String| Err(ApiError::invalid("tool_choice", message));
    let choice = match choice {
        None | Some(Value::Null) => return Ok(ToolChoice::Auto),
        Some(Value::String(word)) => match &*word {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            _ => return wrong(format!("`{word}` is none of `auto`, `none` and `required`")),
        },
        Some(other) => match other["function"]["name"].as_str() {
            Some(name) if definitions.iter().any(|definition| definition.name() == name) => {
                ToolChoice::Tool(name.to_owned())
            }
            Some(name) => return wrong(format!("there is no tool `{name}` in `tools`")),
            None => {
                return wrong(
                    "expected a word, or `{\"type\": \"function\", \"function\": {\"name\": …}}`".into(),
                );
            }
        },
    };
    if choice == ToolChoice::Required && definitions.is_empty() {
        return wrong("a tool is required, but there is none in `tools`".into());
    }
    Ok(choice)
}

fn read_format(format: Option<WireFormat>) -> Result<Option<AnswerFormat>, ApiError> {
    let Some(WireFormat { r#type, json_schema }) = format else { return Ok(None) };
    let wrong = |message: String| Err(ApiError::invalid("response_format", message));
    match (&*r#type, json_schema) {
        ("text", _) => Ok(None),
        ("json_schema", Some(WireSchema { name, schema: Some(schema), strict })) => {
            let format = AnswerFormat::json_schema(name, schema);
            // Left out, it means `false` here.
            Ok(Some(if strict == Some(true) { format } else { format.without_strict() }))
        }
        ("json_schema", _) => {
            wrong("the type `json_schema` has an object `json_schema` with a `name` and a `schema`".into())
        }
        (other, _) => wrong(format!("`{other}` is none of `text` and `json_schema`")),
    }
}

fn read_messages(messages: Vec<WireMessage>) -> Result<Vec<Message>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "there is no message; send one at least"));
    }
    // Results name their call, not its tool.
    let mut tool_names = HashMap::new();
    let mut read = Vec::with_capacity(messages.len());
    for (index, message) in messages.into_iter().enumerate() {
        let place = format!("messages[{index}]");
        let message = read_message(message, &place, &mut tool_names)?;
        if let Message::Assistant(message) = &message {
            tool_names.extend(message.tool_calls.iter().map(|call| (call.id.clone(), call.name.clone())));
        }
        read.push(message);
    }
    Ok(read)
}

/// `tool_names` has the tools of the calls that are open.
fn read_message(
    wire: WireMessage,
    place: &str,
    tool_names: &mut HashMap<String, String>,
) -> Result<Message, ApiError> {
    Ok(match &*wire.role {
        "system" | "developer" => Message::System(read_content(wire.content, place)?),
        "user" => Message::User(read_parts(wire.content, place, true)?),
        "assistant" => {
            let text = match wire.content {
                Some(content) => read_content(Some(content), place)?.text().into_owned(),
                None => String::new(),
            };
            let calls = wire.tool_calls.into_iter().flatten();
            let calls = calls.map(|call| ToolCall::new(call.id, call.function.name, call.function.arguments));
            let mut message = AssistantMessage::text(text).with_tool_calls(calls);
            message.refusal = wire.refusal;
            Message::Assistant(message)
        }
        "tool" => {
            let param = format!("{place}.tool_call_id");
            let Some(call_id) = wire.tool_call_id else {
                return Err(ApiError::invalid(param, "a tool message names the call that it answers"));
            };
            let Some(name) = tool_names.remove(&call_id) else {
                return Err(ApiError::invalid(param, "no call before this message is open under that id"));
            };
            Message::Tool(ToolMessage::new(call_id, name, read_content(wire.content, place)?))
        }
        other => {
            let message =
                format!("`{other}` is none of `system`, `developer`, `user`, `assistant` and `tool`");
            return Err(ApiError::invalid(format!("{place}.role"), message));
        }
    })
}

/// The content of a message that can only be text.
fn read_content(content: Option<WireContent>, place: &str) -> Result<Content, ApiError> {
    read_parts(content, place, false)
}

fn read_parts(content: Option<WireContent>, place: &str, may_have_images: bool) -> Result<Content, ApiError> {
    match content {
        Some(WireContent::Text(text)) => Ok(Content::from(text)),
        Some(WireContent::Parts(parts)) => {
            let read = |part: WirePart| match (&*part.r#type, part.text, part.image_url) {
                ("text", Some(text), _) => Ok(Part::from(text)),
                ("image_url", _, Some(image)) if may_have_images => {
                    Ok(Part::from(Image::from_url(image.url)))
                }
                ("image_url", _, None) if may_have_images => {
                    let message = "a part of the type `image_url` has an object `image_url` with the `url`";
                    Err(ApiError::invalid(format!("{place}.content"), message))
                }
                (other, ..) => {
                    let known = if may_have_images { "`text` and `image_url`" } else { "`text`" };
                    let message =
                        format!("parts of the type {known} are all that is read here, not `{other}`");
                    Err(ApiError::invalid(format!("{place}.content"), message))
                }
            };
            parts.into_iter().map(read).collect()
        }
        None => Err(ApiError::invalid(format!("{place}.content"), "the message has no content")),
    }
}
