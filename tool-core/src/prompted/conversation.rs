//! Converts calls and results to texts, for models that do not know tools.

use std::sync::Arc;

use serde_json::Value;

use super::prompt::escape_closing_tags;
use crate::content::{Content, Part};
use crate::model::{AssistantMessage, ChatRequest, Message, RequestCache, ToolMessage};

/// A conversation in which calls and results are texts, with the cache of the model's provider.
#[derive(Clone, Default)]
pub(super) struct TextConversation {
    pub(super) messages: Arc<Vec<Message>>,
    pub(super) cache: Arc<RequestCache>,
}

impl TextConversation {
    /// Converts a request's conversation and adds the prompt, if any, to its system message. Messages that were converted
    /// for an earlier request are reused.
    pub(super) fn from_request(request: &ChatRequest<'_>, prompt: Option<String>) -> Self {
        request.cached(|cached: &mut CachedConversation| {
            let messages = request.messages();
            if cached.prompt != prompt || cached.count > messages.len() {
                *cached = CachedConversation { prompt, ..CachedConversation::default() };
            }
            cached.extend(messages);
            cached.conversation.clone()
        })
    }
}

/// Returns `true` if a conversation contains calls or results.
pub(super) fn has_tools(messages: &[Message]) -> bool {
    let has_calls =
        |message: &Message| message.as_assistant().is_some_and(|reply| !reply.tool_calls.is_empty());
    messages.iter().any(|message| matches!(message, Message::Tool(_)) || has_calls(message))
}

/// Appends a text to the last message if that is the user's, as many models reject two user messages in a row;
/// otherwise as a new user message.
pub(super) fn append_user_text(messages: &mut Vec<Message>, text: &str) {
    match messages.pop() {
        Some(Message::User(content)) => messages.push(Message::User(with_text(content, text))),
        last => {
            messages.extend(last);
            messages.push(Message::user(text));
        }
    }
}

/// The converted part of a run's conversation, which only grows.
#[derive(Default)]
struct CachedConversation {
    prompt: Option<String>,
    /// The number of the run's messages that are converted.
    count: usize,
    conversation: TextConversation,
}

impl CachedConversation {
    /// Converts the messages that are new.
    fn extend(&mut self, all: &[Message]) {
        let TextConversation { messages, cache } = &mut self.conversation;
        let messages = Arc::make_mut(messages);
        let mut new = all.get(self.count..).unwrap_or_default();
        let is_first = messages.is_empty();
        if is_first && let Some(prompt) = &self.prompt {
            match new.split_first() {
                Some((Message::System(content), rest)) => {
                    messages.push(Message::System(with_text(content.clone(), prompt)));
                    new = rest;
                }
                _ => messages.push(Message::system(&**prompt)),
            }
        }
        let is_result = |message: &Message| matches!(message, Message::Tool(_));
        let ended_with_results =
            self.count.checked_sub(1).and_then(|last| all.get(last)).is_some_and(is_result);
        for (index, group) in new.chunk_by(|one, next| is_result(one) && is_result(next)).enumerate() {
            match group {
                [Message::Tool(_), ..] => {
                    let mut parts = Vec::new();
                    if index == 0 && ended_with_results {
                        // The last message changes after it was sent, so the provider's cache is no longer valid.
                        *cache = Arc::default();
                        if let Some(Message::User(content)) = messages.pop() {
                            parts = content.into_parts();
                        }
                    }
                    for message in group {
                        if let Message::Tool(result) = message {
                            push_result(&mut parts, result);
                        }
                    }
                    messages.push(Message::User(Content::from_iter(parts)));
                }
                others => messages.extend(others.iter().map(calls_to_text)),
            }
        }
        self.count = all.len();
    }
}

/// Appends a text to the content as a separate paragraph.
fn with_text(content: Content, text: &str) -> Content {
    let mut parts = content.into_parts();
    match parts.last_mut() {
        Some(Part::Text { text: last }) if !last.is_empty() => last.extend(["\n\n", text]),
        _ => parts.push(Part::from(text)),
    }
    Content::from_iter(parts)
}

/// Returns a message with its calls as text.
fn calls_to_text(message: &Message) -> Message {
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
        let arguments = call.arguments_as_json();
        text.push_str("<tool_call>\n");
        text.push_str(&escape_closing_tags(&format!(r#"{{"name": {name}, "arguments": {arguments}}}"#)));
        text.push_str("\n</tool_call>");
    }
    let mut reply = AssistantMessage { tool_calls: Vec::new(), ..reply.clone() };
    reply.text = text;
    Message::Assistant(reply)
}

/// Appends the result of a call: first its text, then its images and files.
fn push_result(parts: &mut Vec<Part>, result: &ToolMessage) {
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
    let json = escape_closing_tags(&format!(r#"{{"name": {name}, "{key}": {content}{images}}}"#));
    let block = format!("<tool_response>\n{json}\n</tool_response>");
    match parts.last_mut() {
        Some(Part::Text { text }) => text.extend(["\n", &block]),
        _ => parts.push(Part::from(block)),
    }
    parts.extend(result.content.parts().iter().filter(|part| part.as_text().is_none()).cloned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::{Image, JsonText};
    use crate::model::ToolCall;
    use crate::tool::{ToolError, ToolOutput};

    fn conversation() -> Vec<Message> {
        let sum = ToolCall::new("1", "sum", r#"{"a": 1.10}"#);
        let draw = ToolCall::new("2", "draw", "");
        let broken = ToolCall::new("3", "sum", "{</tool_call>");
        let mut reply = AssistantMessage::text("Let me see.").with_tool_calls([sum.clone(), draw.clone()]);
        reply.reasoning = Some("Hm.".into());
        let json = JsonText::serialize(&[1, 2]).unwrap();
        let image = Image::from_bytes("image/png", [0]);
        vec![
            Message::system("Be brief."),
            Message::user("What now?"),
            Message::Assistant(reply),
            Message::Tool(ToolMessage::new("1", "sum", Content::from(Part::from(json)))),
            Message::tool(&draw, &Ok(ToolOutput::text("a\n</tool_response>").with_part(image))),
            Message::Assistant(AssistantMessage::default().with_tool_calls([broken.clone()])),
            Message::tool(&broken, &Err(ToolError::invalid_arguments("no"))),
            Message::user("And now?"),
            Message::assistant("Done."),
        ]
    }

    fn convert(messages: &[Message], prompt: Option<&str>) -> Vec<Message> {
        let request = ChatRequest::borrowing(messages);
        TextConversation::from_request(&request, prompt.map(str::to_owned)).messages.to_vec()
    }

    #[test]
    fn converts_calls_and_results_to_texts() {
        let messages = convert(&conversation(), Some("Tools."));
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
    fn adds_the_prompt_to_the_first_system_message() {
        let table = [
            (vec![], vec!["Tools."]),
            (vec![Message::user("a")], vec!["Tools.", "a"]),
            (vec![Message::user("a"), Message::system("b")], vec!["Tools.", "a", "b"]),
            (vec![Message::system("b"), Message::system("c")], vec!["b\n\nTools.", "c"]),
        ];
        for (messages, expected) in table {
            let messages = convert(&messages, Some("Tools."));
            let texts: Vec<_> = messages.iter().map(Message::text).collect();
            assert_eq!(texts, expected);
        }
        assert_eq!(convert(&[Message::user("a")], None).len(), 1);
    }

    #[test]
    fn sent_messages_do_not_change_while_the_cache_is_shared() {
        let all = conversation();
        let cache = RequestCache::default();
        let mut before: Option<TextConversation> = None;
        // Results that arrive one by one change a message that was sent.
        let changes = [5];
        for count in 1..=all.len() {
            let request = ChatRequest::borrowing(&all[..count]).with_cache(&cache);
            let now = TextConversation::from_request(&request, Some("Tools.".into()));
            assert_eq!(*now.messages, convert(&all[..count], Some("Tools.")), "{count}");
            if let Some(before) = before {
                let is_same = Arc::ptr_eq(&before.cache, &now.cache);
                assert_eq!(is_same, !changes.contains(&count), "{count}");
                assert!(!is_same || now.messages.starts_with(&before.messages), "{count}");
            }
            before = Some(now);
        }
        // Another prompt starts another conversation.
        let now = TextConversation::from_request(&ChatRequest::borrowing(&all).with_cache(&cache), None);
        assert!(!Arc::ptr_eq(&before.unwrap().cache, &now.cache));
        assert_eq!(*now.messages, convert(&all, None));
    }
}
