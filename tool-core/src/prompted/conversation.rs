//! A conversation as a model reads it that knows no tools: calls and their results are texts in it.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::prompt::within_tags;
use crate::{AssistantMessage, ChatRequest, Content, Message, Part, RequestCache, ToolMessage};

/// A conversation without calls and results, and what the model's provider keeps of it.
#[derive(Clone, Default)]
pub(super) struct Conversation {
    pub(super) messages: Arc<Vec<Message>>,
    pub(super) cache: Arc<RequestCache>,
}

impl Conversation {
    /// The request's conversation, behind a prompt if there is one. What was made of it for an earlier request is not
    /// made again.
    pub(super) fn of(request: &ChatRequest<'_>, prompt: Option<String>) -> Self {
        request.cached(|written: &mut Written| {
            let messages = request.messages();
            if written.prompt != prompt || written.count > messages.len() {
                *written = Written { prompt, ..Written::default() };
            }
            written.extend(messages);
            written.conversation.clone()
        })
    }
}

/// Whether a conversation has calls or results in it.
pub(super) fn has_tools(messages: &[Message]) -> bool {
    messages.iter().any(|message| match message {
        Message::Tool(_) => true,
        Message::Assistant(message) => !message.tool_calls.is_empty(),
        _ => false,
    })
}

/// Says something behind a conversation, in the user's message if that is the last: many models want a reply between
/// any two of them.
pub(super) fn say(messages: &mut Vec<Message>, text: &str) {
    match messages.pop() {
        Some(Message::User(content)) => messages.push(Message::User(with_text(content, text))),
        last => {
            messages.extend(last);
            messages.push(Message::user(text));
        }
    }
}

/// What is made of a run's conversation, which only grows.
#[derive(Default)]
struct Written {
    prompt: Option<String>,
    /// How many messages of the run are in it.
    count: usize,
    conversation: Conversation,
}

impl Written {
    fn extend(&mut self, all: &[Message]) {
        let Conversation { messages, cache } = &mut self.conversation;
        let messages = Arc::make_mut(messages);
        let mut new = all.get(self.count..).unwrap_or_default();
        let is_first = messages.is_empty();
        if is_first && let Some(prompt) = &self.prompt {
            match new.split_first() {
                Some((Message::System(content), behind)) => {
                    messages.push(Message::System(with_text(content.clone(), prompt)));
                    new = behind;
                }
                _ => messages.push(Message::system(&**prompt)),
            }
        }
        let are_results = |message: &Message| matches!(message, Message::Tool(_));
        let ended_with_results =
            self.count.checked_sub(1).and_then(|last| all.get(last)).is_some_and(are_results);
        for (position, group) in new.chunk_by(|one, next| are_results(one) && are_results(next)).enumerate() {
            match group {
                [Message::Tool(_), ..] => {
                    let mut parts = Vec::new();
                    if position == 0 && ended_with_results {
                        // The message was sent without these, so nothing that was made of it holds.
                        *cache = Arc::default();
                        if let Some(Message::User(content)) = messages.pop() {
                            parts = content.into_parts();
                        }
                    }
                    for message in group {
                        if let Message::Tool(result) = message {
                            write_result(&mut parts, result);
                        }
                    }
                    messages.push(Message::User(Content::from_iter(parts)));
                }
                others => messages.extend(others.iter().map(without_calls)),
            }
        }
        self.count = all.len();
    }
}

/// The content with a text as a paragraph of its own behind it.
fn with_text(content: Content, text: &str) -> Content {
    let mut parts = content.into_parts();
    match parts.last_mut() {
        Some(Part::Text { text: last }) if !last.is_empty() => last.extend(["\n\n", text]),
        _ => parts.push(Part::from(text)),
    }
    Content::from_iter(parts)
}

fn without_calls(message: &Message) -> Message {
    let Message::Assistant(reply) = message else { return message.clone() };
    if reply.tool_calls.is_empty() {
        return message.clone();
    }
    let mut text = reply.text.clone();
    for call in &reply.tool_calls {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let name = Value::from(&*call.name);
        let arguments = arguments_of(&call.arguments);
        text.push_str("<tool_call>\n");
        text.push_str(&within_tags(&format!(r#"{{"name": {name}, "arguments": {arguments}}}"#)));
        text.push_str("\n</tool_call>");
    }
    let mut reply = AssistantMessage { tool_calls: Vec::new(), ..reply.clone() };
    reply.text = text;
    Message::Assistant(reply)
}

/// Arguments as JSON: as they were written, or as a text if they are none.
fn arguments_of(arguments: &str) -> Cow<'_, str> {
    match serde_json::from_str::<&RawValue>(arguments) {
        Ok(json) => Cow::Borrowed(json.get()),
        Err(_) if arguments.trim().is_empty() => Cow::Borrowed("{}"),
        Err(_) => Cow::Owned(Value::from(arguments).to_string()),
    }
}

/// Writes what a call gave back behind what others gave, its pictures behind its text.
fn write_result(parts: &mut Vec<Part>, result: &ToolMessage) {
    let name = Value::from(&*result.name);
    let key = if result.is_error { "error" } else { "content" };
    let content = match result.content.parts() {
        [Part::Json(json)] => json.as_str().to_owned(),
        _ => Value::from(&*result.content.text()).to_string(),
    };
    let images = match result.content.images().count() {
        0 => String::new(),
        count => format!(r#", "images": {count}"#),
    };
    let json = within_tags(&format!(r#"{{"name": {name}, "{key}": {content}{images}}}"#));
    let block = format!("<tool_response>\n{json}\n</tool_response>");
    match parts.last_mut() {
        Some(Part::Text { text }) => text.extend(["\n", &block]),
        _ => parts.push(Part::from(block)),
    }
    parts.extend(result.content.images().cloned().map(Part::from));
}
