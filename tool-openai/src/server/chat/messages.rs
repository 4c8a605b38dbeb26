//! Parses the messages of a request.

use std::collections::HashMap;

use serde::Deserialize;
use tool_core::content::{Content, Image, Part};
use tool_core::model::{AssistantMessage, ToolMessage};
use tool_core::{Message, ToolCall};

use crate::server::error::ApiError;
use crate::server::request::check_results;

#[derive(Deserialize)]
pub(super) struct WireMessage {
    role: String,
    content: Option<WireContent>,
    refusal: Option<String>,
    /// The name of the reasoning on most servers of open models; some expect it back.
    reasoning_content: Option<String>,
    /// The name on other servers. Some send both names, and their clients send both back.
    reasoning: Option<String>,
    tool_calls: Option<Vec<WireCall>>,
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
    text: Option<String>,
    refusal: Option<String>,
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

pub(super) fn parse_messages(messages: Vec<WireMessage>) -> Result<Vec<Message>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "expected at least one message"));
    }
    // Results name their call but not its tool.
    let mut tool_names = HashMap::new();
    let mut parsed = Vec::with_capacity(messages.len());
    for (index, message) in messages.into_iter().enumerate() {
        let path = format!("messages[{index}]");
        let message = parse_message(message, &path, &mut tool_names)?;
        if let Message::Assistant(message) = &message {
            tool_names.extend(message.tool_calls.iter().map(|call| (call.id.clone(), call.name.clone())));
        }
        parsed.push(message);
    }
    check_results(&parsed, "messages")?;
    Ok(parsed)
}

/// Parses one message. `tool_names` maps the ids of open calls to their tools.
fn parse_message(
    wire: WireMessage,
    path: &str,
    tool_names: &mut HashMap<String, String>,
) -> Result<Message, ApiError> {
    Ok(match &*wire.role {
        "system" | "developer" => Message::System(parse_content(wire.content, path, false)?),
        "user" => Message::User(parse_content(wire.content, path, true)?),
        "assistant" => {
            let (mut content, mut refusal) = (wire.content, wire.refusal);
            if let Some(WireContent::Parts(parts)) = &mut content {
                let mut refusals =
                    parts.extract_if(.., |part| part.r#type == "refusal" && part.refusal.is_some());
                refusal = refusal.or(refusals.next().and_then(|part| part.refusal));
            }
            let content = content.unwrap_or(WireContent::Text(String::new()));
            let text = parse_content(Some(content), path, false)?.text().into_owned();
            let calls = wire.tool_calls.into_iter().flatten();
            let calls = calls.map(|call| ToolCall::new(call.id, call.function.name, call.function.arguments));
            let mut message = AssistantMessage::text(text).with_tool_calls(calls);
            message.refusal = refusal;
            let is_present = |reasoning: &String| !reasoning.is_empty();
            message.reasoning =
                wire.reasoning_content.filter(is_present).or(wire.reasoning.filter(is_present));
            Message::Assistant(message)
        }
        "tool" => {
            let param = format!("{path}.tool_call_id");
            let Some(call_id) = wire.tool_call_id else {
                return Err(ApiError::invalid(param, "a tool message needs the id of its call"));
            };
            let Some(name) = tool_names.remove(&call_id) else {
                return Err(ApiError::invalid(param, "no earlier open call has this id"));
            };
            // The published API allows only text, but some tools return images.
            Message::Tool(ToolMessage::new(call_id, name, parse_content(wire.content, path, true)?))
        }
        other => {
            let message =
                format!("unknown role `{other}`; use `system`, `developer`, `user`, `assistant` or `tool`");
            return Err(ApiError::invalid(format!("{path}.role"), message));
        }
    })
}

fn parse_content(content: Option<WireContent>, path: &str, allows_images: bool) -> Result<Content, ApiError> {
    match content {
        Some(WireContent::Text(text)) => Ok(Content::from(text)),
        Some(WireContent::Parts(parts)) => {
            let parse_part = |part: WirePart| match (&*part.r#type, part.text, part.image_url) {
                ("text", Some(text), _) => Ok(Part::from(text)),
                ("image_url", _, Some(image)) if allows_images => Ok(Part::from(Image::from_url(image.url))),
                ("image_url", _, None) if allows_images => {
                    let message = "a part of type `image_url` needs an object `image_url` with a `url`";
                    Err(ApiError::invalid(format!("{path}.content"), message))
                }
                (other, ..) => {
                    let supported = if allows_images { "`text` or `image_url`" } else { "`text`" };
                    let message =
                        format!("unsupported part of type `{other}`; use {supported}, each with its content");
                    Err(ApiError::invalid(format!("{path}.content"), message))
                }
            };
            parts.into_iter().map(parse_part).collect()
        }
        None => Err(ApiError::invalid(format!("{path}.content"), "missing content")),
    }
}
