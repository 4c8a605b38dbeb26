//! Parses the input of a request: a string or a list of items.

use std::collections::HashMap;

use serde_json::Value;
use tool_core::content::{Content, Image, Part};
use tool_core::model::{AssistantMessage, ToolMessage};
use tool_core::{Message, ToolCall};

use super::wire::{WireContent, WireInput, WireItem, WirePart};
use crate::server::error::ApiError;
use crate::server::stored_response::Conversation;

/// Returns the messages that the input adds to a conversation.
pub(super) fn parse_input(input: WireInput, previous: &Conversation) -> Result<Vec<Message>, ApiError> {
    let items = match input {
        WireInput::Text(text) => return Ok(vec![Message::user(text)]),
        WireInput::Items(items) => items,
    };
    if items.is_empty() && previous.messages().next().is_none() {
        return Err(ApiError::invalid("input", "expected at least one item"));
    }
    let mut parser = InputParser::new(previous);
    for (index, item) in items.into_iter().enumerate() {
        parser.parse_item(item, &format!("input[{index}]"))?;
    }
    parser.finish_reply();
    Ok(parser.messages)
}

struct InputParser {
    messages: Vec<Message>,
    /// The assistant message that is being assembled: its text and its calls are separate items.
    reply: Option<AssistantMessage>,
    /// The tools of open calls by call id: results name their call but not its tool.
    open_calls: HashMap<String, String>,
}

impl InputParser {
    fn new(previous: &Conversation) -> Self {
        let mut open_calls = HashMap::new();
        for message in previous.messages() {
            match message {
                Message::Assistant(message) => {
                    let calls = message.tool_calls.iter();
                    open_calls.extend(calls.map(|call| (call.id.clone(), call.name.clone())));
                }
                Message::Tool(result) => {
                    open_calls.remove(&result.call_id);
                }
                _ => {}
            }
        }
        Self { messages: Vec::new(), reply: None, open_calls }
    }

    fn parse_item(&mut self, item: WireItem, path: &str) -> Result<(), ApiError> {
        match item.r#type.as_deref() {
            None | Some("message") => self.parse_message(item, path),
            Some("function_call") => {
                let (Some(id), Some(name), Some(Value::String(arguments))) =
                    (item.call_id, item.name, item.arguments)
                else {
                    let message = "a `function_call` needs a `call_id`, a `name` and `arguments`";
                    return Err(ApiError::invalid(path, message));
                };
                self.open_calls.insert(id.clone(), name.clone());
                self.reply.get_or_insert_default().tool_calls.push(ToolCall::new(id, name, arguments));
                Ok(())
            }
            Some("function_call_output") => {
                let param = format!("{path}.call_id");
                let Some(call_id) = item.call_id else {
                    let message = "a `function_call_output` needs the id of its call";
                    return Err(ApiError::invalid(param, message));
                };
                let Some(name) = self.open_calls.remove(&call_id) else {
                    return Err(ApiError::invalid(param, "no earlier open call has this id"));
                };
                let output =
                    parse_content(item.output, &format!("{path}.output"), &["input_text", "input_image"])?;
                self.push(Message::Tool(ToolMessage::new(call_id, name, output)));
                Ok(())
            }
            // Models are not sent their earlier reasoning.
            Some("reasoning") => Ok(()),
            Some(other) => {
                let supported = "`message`, `function_call`, `function_call_output` or `reasoning`";
                let message = format!("unsupported item of type `{other}`; use {supported}");
                Err(ApiError::invalid(format!("{path}.type"), message))
            }
        }
    }

    fn parse_message(&mut self, item: WireItem, path: &str) -> Result<(), ApiError> {
        let content = format!("{path}.content");
        match item.role.as_deref() {
            Some("system" | "developer") => {
                self.push(Message::System(parse_content(item.content, &content, &["input_text"])?));
            }
            Some("user") => {
                let supported = ["input_text", "input_image"];
                self.push(Message::User(parse_content(item.content, &content, &supported)?));
            }
            Some("assistant") => {
                let (text, refusal) = parse_reply(item.content, &content)?;
                if self.reply.as_ref().is_some_and(|reply| reply.tool_calls.is_empty()) {
                    self.finish_reply();
                }
                let reply = self.reply.get_or_insert_default();
                reply.text.push_str(&text);
                reply.refusal = refusal.or(reply.refusal.take());
            }
            other => {
                let other = other.unwrap_or_default();
                let message =
                    format!("unknown role `{other}`; use `system`, `developer`, `user` or `assistant`");
                return Err(ApiError::invalid(format!("{path}.role"), message));
            }
        }
        Ok(())
    }

    fn push(&mut self, message: Message) {
        self.finish_reply();
        self.messages.push(message);
    }

    fn finish_reply(&mut self) {
        self.messages.extend(self.reply.take().map(Message::Assistant));
    }
}

fn parse_wire_content(content: Option<Value>, path: &str) -> Result<WireContent, ApiError> {
    let content = content
        .ok_or_else(|| ApiError::invalid(path, "missing content; send a string or a list of parts"))?;
    serde_json::from_value(content)
        .map_err(|_| ApiError::invalid(path, "expected a string, or a list of parts that each have a `type`"))
}

/// Parses the text and the refusal of an assistant message.
fn parse_reply(content: Option<Value>, path: &str) -> Result<(String, Option<String>), ApiError> {
    let parts = match parse_wire_content(content, path)? {
        WireContent::Text(text) => return Ok((text, None)),
        WireContent::Parts(parts) => parts,
    };
    let (mut text, mut refusal) = (String::new(), None);
    for part in parts {
        match (&*part.r#type, part.text, part.refusal) {
            ("output_text" | "input_text", Some(more), _) => text.push_str(&more),
            ("refusal", _, Some(why)) => refusal = Some(why),
            (other, ..) => return Err(unsupported_part(other, &["output_text", "refusal"], path)),
        }
    }
    Ok((text, refusal))
}

fn parse_content(content: Option<Value>, path: &str, supported: &[&str]) -> Result<Content, ApiError> {
    let parts = match parse_wire_content(content, path)? {
        WireContent::Text(text) => return Ok(Content::from(text)),
        WireContent::Parts(parts) => parts,
    };
    let parse_part = |part: WirePart| match (&*part.r#type, part.text, part.image_url) {
        ("input_text", Some(text), _) => Ok(Part::from(text)),
        ("input_image", _, Some(url)) if supported.contains(&"input_image") => {
            Ok(Part::from(Image::from_url(url)))
        }
        ("input_image", _, None) if supported.contains(&"input_image") => Err(ApiError::invalid(
            path,
            "a part of type `input_image` needs an `image_url`; files are not supported",
        )),
        (other, ..) => Err(unsupported_part(other, supported, path)),
    };
    parts.into_iter().map(parse_part).collect()
}

fn unsupported_part(part: &str, supported: &[&str], path: &str) -> ApiError {
    let supported: Vec<_> = supported.iter().map(|part| format!("`{part}`")).collect();
    let supported = supported.join(" or ");
    ApiError::invalid(
        path,
        format!("unsupported part of type `{part}`; use {supported}, each with its content"),
    )
}
