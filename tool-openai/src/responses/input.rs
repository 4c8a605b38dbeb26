//! Encodes the messages of a request as input items.

use std::collections::BTreeSet;

use tool_core::Message;
use tool_core::model::AssistantMessage;
use tool_http::client::{AppendBuffer, Error, normalize_arguments, normalize_tool_name};

use super::dialect::Dialect;
use super::items::Items;
use super::replay;
use crate::content::{WirePart, file_name, has_media, parts, system_text};
use crate::json::{write_array, write_string};
use crate::tools::MAX_NAME_CHARS;

/// The encoded input of the previous request, so that a turn encodes only new messages.
#[derive(Default)]
pub(super) struct InputCache {
    /// All messages as an array without its end, or nothing if there are none.
    pub(super) json: AppendBuffer,
    /// The names of the tools that were called without the namespace in which the provider finds deferred ones.
    pub(super) calls_without_namespace: BTreeSet<String>,
    count: usize,
    /// The first message whose reasoning is written.
    reasoning_start: usize,
    /// The dialect that it is encoded for: an application may use several endpoints in turn.
    dialect: Option<Dialect>,
}

impl InputCache {
    /// Encodes the new messages.
    pub(super) fn append_new(
        &mut self,
        messages: &[Message],
        reasoning_start: usize,
        dialect: &Dialect,
    ) -> Result<&Self, Error> {
        let is_other = self.dialect.as_ref() != Some(dialect) || self.reasoning_start != reasoning_start;
        if is_other || messages.len() < self.count {
            *self = Self { dialect: Some(dialect.clone()), reasoning_start, ..Self::default() };
        }
        let is_empty = self.json.is_empty();
        let mut calls_without_namespace = self.json.append(|json| {
            let mut items = Items { is_first: is_empty, json, calls_without_namespace: BTreeSet::new() };
            for (position, message) in messages.iter().enumerate().skip(self.count) {
                write_message(&mut items, message, position >= reasoning_start, dialect)?;
            }
            Ok::<_, Error>(items.calls_without_namespace)
        })?;
        self.calls_without_namespace.append(&mut calls_without_namespace);
        self.count = messages.len();
        Ok(self)
    }
}

fn write_message(
    items: &mut Items<'_>,
    message: &Message,
    has_reasoning: bool,
    dialect: &Dialect,
) -> Result<(), Error> {
    match message {
        Message::System(content) => {
            // The newer role `developer` has the same effect, but not every server supports it.
            write_text_message(items, "system", &system_text(content)?);
        }
        Message::User(content) if !has_media(content) => {
            write_text_message(items, "user", &content.text());
        }
        Message::User(content) => {
            let json = items.next();
            json.extend_from_slice(br#"{"type":"message","role":"user","content":"#);
            write_array(json, parts(content)?, write_part);
            json.push(b'}');
        }
        Message::Assistant(message) => {
            if !replay::write(items, message, has_reasoning, dialect) {
                write_assistant(items, message);
            }
        }
        Message::Tool(result) => {
            let json = items.next();
            json.extend_from_slice(br#"{"type":"function_call_output","call_id":"#);
            write_string(json, &result.call_id);
            json.extend_from_slice(br#","output":"#);
            if has_media(&result.content) {
                write_array(json, parts(&result.content)?, write_part);
            } else {
                write_string(json, &result.content.text());
            }
            json.push(b'}');
        }
        other => {
            return Err(Error::request(format!(
                "the Responses API does not support this message: {other:?}"
            )));
        }
    }
    Ok(())
}

fn write_text_message(items: &mut Items<'_>, role: &str, text: &str) {
    let json = items.next();
    json.extend_from_slice(br#"{"type":"message","role":"#);
    write_string(json, role);
    json.extend_from_slice(br#","content":"#);
    write_string(json, text);
    json.push(b'}');
}

/// Writes a message of another provider's model, or one that was changed. An empty message has no items. A refusal is
/// written as text, because only items with an id can have a refusal.
fn write_assistant(items: &mut Items<'_>, message: &AssistantMessage) {
    let texts = [Some(&*message.text), message.refusal.as_deref()];
    for text in texts.into_iter().flatten().filter(|text| !text.is_empty()) {
        write_text_message(items, "assistant", text);
    }
    for call in &message.tool_calls {
        items.add_call_without_namespace(&call.name);
        let json = items.next();
        json.extend_from_slice(br#"{"type":"function_call","call_id":"#);
        write_string(json, &call.id);
        json.extend_from_slice(br#","name":"#);
        write_string(json, &normalize_tool_name(&call.name, MAX_NAME_CHARS));
        json.extend_from_slice(br#","arguments":"#);
        write_string(json, &normalize_arguments(&call.arguments));
        json.push(b'}');
    }
}

fn write_part(json: &mut Vec<u8>, part: WirePart<'_>) {
    match part {
        WirePart::Text(text) => {
            json.extend_from_slice(br#"{"type":"input_text","text":"#);
            write_string(json, &text);
        }
        WirePart::Image(image) => {
            json.extend_from_slice(br#"{"type":"input_image","detail":"auto","image_url":"#);
            write_string(json, image.url());
        }
        WirePart::File(file) => {
            json.extend_from_slice(br#"{"type":"input_file""#);
            let url = file.url().unwrap_or_default();
            let (name, value) = match (file.id(), file.base64()) {
                (Some(id), _) => ("file_id", id),
                (None, Some(_)) => ("file_data", url),
                (None, None) => ("file_url", url),
            };
            if name == "file_data" {
                json.extend_from_slice(br#","filename":"#);
                write_string(json, file_name(file));
            }
            json.extend_from_slice(format!(r#","{name}":"#).as_bytes());
            write_string(json, value);
        }
    }
    json.push(b'}');
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};
    use tool_core::content::{Content, File, Image, Part};
    use tool_core::provider::JsonText;
    use tool_core::{ToolCall, ToolOutput};

    use super::*;
    use crate::responses::tests::{dialect, stored};
    use tool_http::client::BodyWriter;

    /// Returns the items that `write` writes.
    pub(in crate::responses) fn items(write: impl FnOnce(&mut Items<'_>)) -> Value {
        let mut json = Vec::new();
        write(&mut Items { json: &mut json, is_first: true, calls_without_namespace: BTreeSet::new() });
        json.extend_from_slice(if json.is_empty() { b"[]" } else { b"]" });
        serde_json::from_slice(&json).unwrap()
    }

    fn written(messages: &[Message]) -> Value {
        items(|items| {
            messages.iter().for_each(|message| write_message(items, message, true, &dialect()).unwrap());
        })
    }

    fn image(name: &str) -> Image {
        Image::from_url(format!("https://example.org/{name}.png"))
    }

    fn wire_image(name: &str) -> Value {
        let url = format!("https://example.org/{name}.png");
        json!({ "type": "input_image", "detail": "auto", "image_url": url })
    }

    fn wire_text(text: &str) -> Value {
        json!({ "type": "input_text", "text": text })
    }

    #[test]
    fn writes_messages() {
        let parts = [
            "What is ".into(),
            image("a").into(),
            "".into(),
            "this?".into(),
            JsonText::from(json!(1)).into(),
        ];
        let refusal = AssistantMessage::refusal("I may not say that");
        let table = [
            (Message::system("Be brief."), json!([{ "role": "system", "content": "Be brief." }])),
            (Message::user("Hi"), json!([{ "role": "user", "content": "Hi" }])),
            (
                Message::user(Content::from_iter(["Hi ".into(), "there".into()])),
                json!([{ "role": "user", "content": "Hi there" }]),
            ),
            (
                Message::user(Content::from_iter(parts)),
                json!([{ "role": "user", "content": [wire_text("What is "), wire_image("a"), wire_text("this?"), wire_text("1")] }]),
            ),
            (Message::assistant("Hello"), json!([{ "role": "assistant", "content": "Hello" }])),
            (Message::Assistant(refusal), json!([{ "role": "assistant", "content": "I may not say that" }])),
            (Message::assistant(""), json!([])),
        ];
        for (message, mut expected) in table {
            for item in expected.as_array_mut().unwrap() {
                item["type"] = json!("message");
            }
            assert_eq!(written(&[message]), expected);
        }
    }

    #[test]
    fn writes_files() {
        let files = [
            File::from_bytes("text/plain", "tides").into(),
            File::from_url("https://example.org/a.pdf").into(),
            File::from_id("file-1").into(),
        ];
        let expected = json!([
            { "type": "input_file", "filename": "file.txt", "file_data": "data:text/plain;base64,dGlkZXM=" },
            { "type": "input_file", "file_url": "https://example.org/a.pdf" },
            { "type": "input_file", "file_id": "file-1" },
        ]);
        assert_eq!(written(&[Message::user(Content::from_iter(files))])[0]["content"], expected);
    }

    #[test]
    fn writes_calls_and_results() {
        let calls =
            [ToolCall::new("1", "now", r#"{"zone": "UTC"}"#), ToolCall::new("2", "clock.now", "{broken")];
        let outputs = [ToolOutput::text("noon"), ToolOutput::text("see:").with_part(image("a"))];
        let results: Vec<_> =
            calls.iter().zip(outputs).map(|(call, output)| Message::tool(call, &Ok(output))).collect();
        let reply = AssistantMessage::text("Let me see.").with_tool_calls(calls);
        let messages: Vec<_> =
            [Message::user("When?"), Message::Assistant(reply)].into_iter().chain(results).collect();
        let call = |id: &str, name: &str, arguments: &str| json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments });
        let result = |id: &str, output: Value| json!({ "type": "function_call_output", "call_id": id, "output": output });
        let expected = [
            json!({ "type": "message", "role": "assistant", "content": "Let me see." }),
            call("1", "now", r#"{"zone": "UTC"}"#),
            call("2", "clock_now", r#"{"INVALID_JSON":"{broken"}"#),
            result("1", json!("noon")),
            result("2", json!([wire_text("see:"), wire_image("a")])),
        ];
        assert_eq!(written(&messages).as_array().unwrap()[1..], expected);
    }

    fn bytes(written: &InputCache) -> Vec<u8> {
        let mut body = BodyWriter::default();
        body.append(&written.json);
        body.finish().to_vec()
    }

    fn encoded_without_cache(messages: &[Message], dialect: &Dialect) -> Vec<u8> {
        bytes(InputCache::default().append_new(messages, 0, dialect).unwrap())
    }

    #[test]
    fn encodes_only_new_messages() {
        let messages = ["When?", "Now?", "Where?"].map(Message::user);
        let mut written = InputCache::default();
        written.append_new(&messages[..1], 0, &dialect()).unwrap();
        // Earlier messages must not change, so they are not read again.
        let changed = [Message::user("changed"), messages[1].clone(), messages[2].clone()];
        let whole = bytes(written.append_new(&changed, 0, &dialect()).unwrap());
        assert_eq!(whole, encoded_without_cache(&messages, &dialect()));
        // Fewer messages, or another dialect.
        for (messages, dialect) in [(&changed[..2], dialect()), (&messages[..2], stored())] {
            assert_eq!(
                bytes(written.append_new(messages, 0, &dialect).unwrap()),
                encoded_without_cache(messages, &dialect)
            );
        }
    }

    #[test]
    fn empty_messages_have_no_items() {
        let nothing = Message::assistant("");
        let mut written = InputCache::default();
        assert!(written.append_new(&[], 0, &dialect()).unwrap().json.is_empty());
        assert!(written.append_new(std::slice::from_ref(&nothing), 0, &dialect()).unwrap().json.is_empty());
        let some = [nothing.clone(), Message::user("a"), nothing, Message::user("b")];
        let written = bytes(written.append_new(&some, 0, &dialect()).unwrap());
        assert_eq!(written, encoded_without_cache(&[some[1].clone(), some[3].clone()], &dialect()));
        assert!(written.starts_with(b"[{"), "{}", String::from_utf8_lossy(&written));
    }

    #[test]
    fn a_failure_leaves_the_cache_unchanged() {
        let invalid = Message::System(Content::from(Part::from(image("a"))));
        let mut written = InputCache::default();
        let good = [Message::user("a"), Message::user("b")];
        written.append_new(&good[..1], 0, &dialect()).unwrap();
        let bad = [good[0].clone(), good[1].clone(), invalid];
        assert!(written.append_new(&bad, 0, &dialect()).is_err());
        assert_eq!(
            bytes(written.append_new(&good, 0, &dialect()).unwrap()),
            encoded_without_cache(&good, &dialect())
        );
    }
}
