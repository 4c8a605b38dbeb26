//! Reads the messages of a request.

use std::collections::HashMap;

use serde::Deserialize;
use tool_core::{AssistantMessage, Content, Image, Message, Part, ToolCall, ToolMessage};

use crate::server::error::ApiError;
use crate::server::tools::check_results;

#[derive(Deserialize)]
pub(super) struct WireMessage {
    role: String,
    #[serde(default)]
    content: Option<WireContent>,
    #[serde(default)]
    refusal: Option<String>,
    /// What servers with open models call it; they may want it back.
    #[serde(default)]
    reasoning_content: Option<String>,
    /// What others call it; some say both, and their clients send both back.
    #[serde(default)]
    reasoning: Option<String>,
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

pub(super) fn read_messages(messages: Vec<WireMessage>) -> Result<Vec<Message>, ApiError> {
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
    check_results(&read, "messages")?;
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
            let is_said = |reasoning: &String| !reasoning.is_empty();
            message.reasoning = wire.reasoning_content.filter(is_said).or(wire.reasoning.filter(is_said));
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
            // Only text is in the published API, but pictures are what some tools give.
            Message::Tool(ToolMessage::new(call_id, name, read_parts(wire.content, place, true)?))
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
