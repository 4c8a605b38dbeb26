//! Reads the input of a request: a text, or items.

use std::collections::HashMap;

use serde_json::Value;
use tool_core::{AssistantMessage, Content, Image, Message, Part, ToolCall, ToolMessage};

use super::stored::Conversation;
use super::wire::{WireContent, WireInput, WireItem, WirePart};
use crate::server::error::ApiError;

/// The messages that the input adds to a conversation.
pub(super) fn read_input(input: WireInput, before: &Conversation) -> Result<Vec<Message>, ApiError> {
    let items = match input {
        WireInput::Text(text) => return Ok(vec![Message::user(text)]),
        WireInput::Items(items) => items,
    };
    if items.is_empty() && before.messages().next().is_none() {
        return Err(ApiError::invalid("input", "there is no item; send one at least"));
    }
    let mut reader = Reader::over(before);
    for (index, item) in items.into_iter().enumerate() {
        reader.read(item, &format!("input[{index}]"))?;
    }
    reader.close_reply();
    Ok(reader.messages)
}

struct Reader {
    messages: Vec<Message>,
    /// The model's message that is being read: its text and its calls are items of their own.
    reply: Option<AssistantMessage>,
    /// The tools of the calls that are open: results name their call, not its tool.
    open: HashMap<String, String>,
}

impl Reader {
    fn over(before: &Conversation) -> Self {
        let mut open = HashMap::new();
        for message in before.messages() {
            match message {
                Message::Assistant(message) => {
                    open.extend(message.tool_calls.iter().map(|call| (call.id.clone(), call.name.clone())));
                }
                Message::Tool(result) => {
                    open.remove(&result.call_id);
                }
                _ => {}
            }
        }
        Self { messages: Vec::new(), reply: None, open }
    }

    fn read(&mut self, item: WireItem, place: &str) -> Result<(), ApiError> {
        match item.r#type.as_deref() {
            None | Some("message") => self.read_message(item, place),
            Some("function_call") => {
                let (Some(id), Some(name), Some(arguments)) = (item.call_id, item.name, item.arguments)
                else {
                    let message = "a `function_call` has a `call_id`, a `name` and `arguments`";
                    return Err(ApiError::invalid(place, message));
                };
                self.open.insert(id.clone(), name.clone());
                self.reply.get_or_insert_default().tool_calls.push(ToolCall::new(id, name, arguments));
                Ok(())
            }
            Some("function_call_output") => {
                let param = format!("{place}.call_id");
                let Some(call_id) = item.call_id else {
                    return Err(ApiError::invalid(
                        param,
                        "a `function_call_output` names the call that it answers",
                    ));
                };
                let Some(name) = self.open.remove(&call_id) else {
                    return Err(ApiError::invalid(param, "no call before this item is open under that id"));
                };
                let output =
                    read_content(item.output, &format!("{place}.output"), &["input_text", "input_image"])?;
                self.push(Message::Tool(ToolMessage::new(call_id, name, output)));
                Ok(())
            }
            // What a model thought is not asked for again.
            Some("reasoning") => Ok(()),
            Some(other) => {
                let known = "`message`, `function_call`, `function_call_output` and `reasoning`";
                let message = format!("items of the types {known} are all that is read here, not `{other}`");
                Err(ApiError::invalid(format!("{place}.type"), message))
            }
        }
    }

    fn read_message(&mut self, item: WireItem, place: &str) -> Result<(), ApiError> {
        let content = format!("{place}.content");
        match item.role.as_deref() {
            Some("system" | "developer") => {
                self.push(Message::System(read_content(item.content, &content, &["input_text"])?));
            }
            Some("user") => {
                let known = ["input_text", "input_image"];
                self.push(Message::User(read_content(item.content, &content, &known)?));
            }
            Some("assistant") => {
                let (text, refusal) = read_reply(item.content, &content)?;
                if self.reply.as_ref().is_some_and(|reply| reply.tool_calls.is_empty()) {
                    self.close_reply();
                }
                let reply = self.reply.get_or_insert_default();
                reply.text.push_str(&text);
                reply.refusal = refusal.or(reply.refusal.take());
            }
            other => {
                let other = other.unwrap_or_default();
                let message = format!("`{other}` is none of `system`, `developer`, `user` and `assistant`");
                return Err(ApiError::invalid(format!("{place}.role"), message));
            }
        }
        Ok(())
    }

    fn push(&mut self, message: Message) {
        self.close_reply();
        self.messages.push(message);
    }

    fn close_reply(&mut self) {
        self.messages.extend(self.reply.take().map(Message::Assistant));
    }
}

fn read_parts(content: Option<Value>, place: &str) -> Result<WireContent, ApiError> {
    let content = content.filter(|content| !content.is_null());
    let content = content
        .ok_or_else(|| ApiError::invalid(place, "there is nothing; send a text, or a list of parts"))?;
    serde_json::from_value(content)
        .map_err(|_| ApiError::invalid(place, "expected a text, or a list of parts that each have a `type`"))
}

/// What the model said, and why it would not.
fn read_reply(content: Option<Value>, place: &str) -> Result<(String, Option<String>), ApiError> {
    let parts = match read_parts(content, place)? {
        WireContent::Text(text) => return Ok((text, None)),
        WireContent::Parts(parts) => parts,
    };
    let (mut text, mut refusal) = (String::new(), None);
    for part in parts {
        match (&*part.r#type, part.text, part.refusal) {
            ("output_text" | "input_text", Some(more), _) => text.push_str(&more),
            ("refusal", _, Some(why)) => refusal = Some(why),
            (other, ..) => return Err(unknown_part(other, &["output_text", "refusal"], place)),
        }
    }
    Ok((text, refusal))
}

fn read_content(content: Option<Value>, place: &str, known: &[&str]) -> Result<Content, ApiError> {
    let parts = match read_parts(content, place)? {
        WireContent::Text(text) => return Ok(Content::from(text)),
        WireContent::Parts(parts) => parts,
    };
    let read = |part: WirePart| match (&*part.r#type, part.text, part.image_url) {
        ("input_text", Some(text), _) => Ok(Part::from(text)),
        ("input_image", _, Some(url)) if known.contains(&"input_image") => {
            Ok(Part::from(Image::from_url(url)))
        }
        ("input_image", _, None) if known.contains(&"input_image") => Err(ApiError::invalid(
            place,
            "a part of the type `input_image` has an `image_url`; there are no files here",
        )),
        (other, ..) => Err(unknown_part(other, known, place)),
    };
    parts.into_iter().map(read).collect()
}

fn unknown_part(part: &str, known: &[&str], place: &str) -> ApiError {
    let known: Vec<_> = known.iter().map(|known| format!("`{known}`")).collect();
    let message = format!(
        "parts of the type {} are all that is read here, each with its content, not `{part}`",
        known.join(" and ")
    );
    ApiError::invalid(place, message)
}
