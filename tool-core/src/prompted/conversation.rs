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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Image, JsonText, ToolCall, ToolError, ToolOutput};

    fn conversation() -> Vec<Message> {
        let sum = ToolCall::new("1", "sum", r#"{"a": 1.10}"#);
        let draw = ToolCall::new("2", "draw", "");
        let broken = ToolCall::new("3", "sum", "{</tool_call>");
        let mut said = AssistantMessage::text("Let me see.").with_tool_calls([sum.clone(), draw.clone()]);
        said.reasoning = Some("Hm.".into());
        let json = JsonText::serialize(&[1, 2]).unwrap();
        let image = Image::from_bytes("image/png", [0]);
        vec![
            Message::system("Be brief."),
            Message::user("What now?"),
            Message::Assistant(said),
            Message::Tool(ToolMessage::new("1", "sum", Content::from(Part::from(json)))),
            Message::tool(&draw, &Ok(ToolOutput::text("a\n</tool_response>").with_part(image))),
            Message::Assistant(AssistantMessage::default().with_tool_calls([broken.clone()])),
            Message::tool(&broken, &Err(ToolError::invalid_arguments("no"))),
            Message::user("And now?"),
            Message::assistant("Done."),
        ]
    }

    fn written(messages: &[Message], prompt: Option<&str>) -> Vec<Message> {
        let request = ChatRequest::borrowing(messages);
        Conversation::of(&request, prompt.map(str::to_owned)).messages.to_vec()
    }

    #[test]
    fn calls_and_results_are_texts() {
        let messages = written(&conversation(), Some("Tools."));
        let texts: Vec<_> = messages.iter().map(Message::text).collect();
        let expected = [
            "Be brief.\n\nTools.",
            "What now?",
            "Let me see.\n<tool_call>\n{\"name\": \"sum\", \"arguments\": {\"a\": 1.10}}\n</tool_call>\n\
             <tool_call>\n{\"name\": \"draw\", \"arguments\": {}}\n</tool_call>",
            "<tool_response>\n{\"name\": \"sum\", \"content\": [1,2]}\n</tool_response>\n\
             <tool_response>\n{\"name\": \"draw\", \"content\": \"a\\n<\\/tool_response>\", \"images\": 1}\n</tool_response>",
            "<tool_call>\n{\"name\": \"sum\", \"arguments\": \"{<\\/tool_call>\"}\n</tool_call>",
            "<tool_response>\n{\"name\": \"sum\", \"error\": \"no\"}\n</tool_response>",
            "And now?",
            "Done.",
        ];
        assert_eq!(texts, expected);
        assert!(!has_tools(&messages));
        let Message::User(results) = &messages[3] else { panic!("{messages:?}") };
        assert!(matches!(results.parts(), [Part::Text { .. }, Part::Image(_)]), "{results:?}");
        assert_eq!(messages[2].as_assistant().unwrap().reasoning.as_deref(), Some("Hm."));
    }

    #[test]
    fn a_prompt_stands_in_the_first_message() {
        let table = [
            (vec![], vec!["Tools."]),
            (vec![Message::user("a")], vec!["Tools.", "a"]),
            (vec![Message::user("a"), Message::system("b")], vec!["Tools.", "a", "b"]),
            (vec![Message::system("b"), Message::system("c")], vec!["b\n\nTools.", "c"]),
        ];
        for (messages, expected) in table {
            let messages = written(&messages, Some("Tools."));
            let texts: Vec<_> = messages.iter().map(Message::text).collect();
            assert_eq!(texts, expected);
        }
        assert_eq!(written(&[Message::user("a")], None).len(), 1);
    }

    #[test]
    fn what_was_sent_stays_as_long_as_the_cache_does() {
        let all = conversation();
        let cache = RequestCache::default();
        let mut before: Option<Conversation> = None;
        // Results that come one by one change a message that was sent.
        let changes = [5];
        for count in 1..=all.len() {
            let request = ChatRequest::borrowing(&all[..count]).with_cache(&cache);
            let now = Conversation::of(&request, Some("Tools.".into()));
            assert_eq!(*now.messages, written(&all[..count], Some("Tools.")), "{count}");
            if let Some(before) = before {
                let is_same = Arc::ptr_eq(&before.cache, &now.cache);
                assert_eq!(is_same, !changes.contains(&count), "{count}");
                assert!(!is_same || now.messages.starts_with(&before.messages), "{count}");
            }
            before = Some(now);
        }
        // Another prompt is another conversation.
        let now = Conversation::of(&ChatRequest::borrowing(&all).with_cache(&cache), None);
        assert!(!Arc::ptr_eq(&before.unwrap().cache, &now.cache));
        assert_eq!(*now.messages, written(&all, None));
    }
}
