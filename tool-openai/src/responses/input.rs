//! The messages of a request, as items of its input.

use tool_core::{AssistantMessage, Content, Image, Message, Part, ToolCall};

use super::{Dialect, echo};
use crate::json::{write_list, write_text};
use crate::{Error, quirks};

/// The input of the request before, as it was sent: a turn writes only what is new.
#[derive(Default)]
pub(super) struct WrittenInput {
    json: Vec<u8>,
    messages: usize,
    /// How it is written: an application may ask several endpoints in turn.
    dialect: Option<Dialect>,
}

impl WrittenInput {
    /// The messages as a list, but for its end.
    pub(super) fn with_new(&mut self, messages: &[Message], dialect: &Dialect) -> Result<&[u8], Error> {
        let is_other = self.dialect.as_ref().is_none_or(|written| !written.is_same(dialect));
        if is_other || messages.len() < self.messages {
            *self = Self { dialect: Some(dialect.clone()), ..Self::default() };
        }
        if self.json.is_empty() {
            self.json.push(b'[');
        }
        let written = self.json.len();
        let new = &messages[self.messages..];
        self.json.reserve(room_for(new, dialect));
        for message in new {
            if let Err(error) = write_message(&mut self.json, message, dialect) {
                self.json.truncate(written);
                return Err(error);
            }
        }
        self.messages = messages.len();
        Ok(&self.json)
    }
}

/// About how many bytes the messages take, so that a long body is not moved as it grows: their texts, some of which hold
/// JSON and so many quotes, and what stands around them.
fn room_for(messages: &[Message], dialect: &Dialect) -> usize {
    let of_content =
        |content: &Content| content.len() + content.images().map(|image| image.url().len()).sum::<usize>();
    let of_calls = |calls: &[ToolCall]| calls.iter().map(|call| 100 + call.arguments.len()).sum::<usize>();
    let texts = messages.iter().map(|message| match message {
        Message::System(content) | Message::User(content) => of_content(content),
        Message::Assistant(message) => {
            let kept = echo::kept(message, &dialect.provider).map_or(0, str::len);
            kept.max(message.text.len() + of_calls(&message.tool_calls))
        }
        Message::Tool(result) => of_content(&result.content),
        _ => 0,
    });
    texts.map(|text| 100 + text + text / 4).sum()
}

/// Begins an item of a list that has begun.
pub(super) fn begin_item(json: &mut Vec<u8>) {
    if json.last() != Some(&b'[') {
        json.push(b',');
    }
}

fn write_message(json: &mut Vec<u8>, message: &Message, dialect: &Dialect) -> Result<(), Error> {
    match message {
        Message::System(content) => {
            if content.images().next().is_some() {
                return Err(Error::request(
                    "a system message cannot hold an image; put it into a user's message",
                ));
            }
            // The API's newer word `developer` says the same, and not every server knows it.
            write_text_message(json, "system", &content.text());
        }
        Message::User(content) if content.images().next().is_none() => {
            write_text_message(json, "user", &content.text());
        }
        Message::User(content) => {
            begin_item(json);
            json.extend_from_slice(br#"{"type":"message","role":"user","content":"#);
            write_parts(json, content)?;
            json.push(b'}');
        }
        Message::Assistant(message) => {
            if !echo::write(json, message, dialect) {
                write_assistant(json, message);
            }
        }
        Message::Tool(result) => {
            begin_item(json);
            json.extend_from_slice(br#"{"type":"function_call_output","call_id":"#);
            write_text(json, &result.call_id);
            json.extend_from_slice(br#","output":"#);
            if result.content.images().next().is_some() {
                write_parts(json, &result.content)?;
            } else {
                write_text(json, &result.content.text());
            }
            json.push(b'}');
        }
        other => return Err(Error::request(format!("the Responses API has no message like {other:?}"))),
    }
    Ok(())
}

fn write_text_message(json: &mut Vec<u8>, role: &str, text: &str) {
    begin_item(json);
    json.extend_from_slice(br#"{"type":"message","role":"#);
    write_text(json, role);
    json.extend_from_slice(br#","content":"#);
    write_text(json, text);
    json.push(b'}');
}

/// Writes what another provider's model said, or what was changed since it was said. A message that says nothing is no
/// item; and a refusal is what the model said, as only items with an id of the API's have a word for it.
fn write_assistant(json: &mut Vec<u8>, message: &AssistantMessage) {
    let said = [Some(&*message.text), message.refusal.as_deref()];
    for text in said.into_iter().flatten().filter(|text| !text.is_empty()) {
        write_text_message(json, "assistant", text);
    }
    for call in &message.tool_calls {
        begin_item(json);
        json.extend_from_slice(br#"{"type":"function_call","call_id":"#);
        write_text(json, &call.id);
        json.extend_from_slice(br#","name":"#);
        write_text(json, &call.name);
        json.extend_from_slice(br#","arguments":"#);
        write_text(json, &quirks::arguments_sent_back(&call.arguments));
        json.push(b'}');
    }
}

/// Writes the parts of a user's message or of a result.
fn write_parts(json: &mut Vec<u8>, content: &Content) -> Result<(), Error> {
    // The API refuses an empty text.
    let parts = content.parts().iter().filter(|part| part.as_text() != Some(""));
    let parts = parts.map(|part| match (part, part.as_text()) {
        (Part::Image(image), _) => Ok(WirePart::Image(image)),
        (_, Some(text)) => Ok(WirePart::Text(text)),
        (other, None) => Err(Error::request(format!("the Responses API has no part like {other:?}"))),
    });
    write_list(json, parts.collect::<Result<Vec<_>, _>>()?, WirePart::write);
    Ok(())
}

enum WirePart<'a> {
    Text(&'a str),
    Image(&'a Image),
}

impl WirePart<'_> {
    fn write(json: &mut Vec<u8>, part: Self) {
        match part {
            Self::Text(text) => {
                json.extend_from_slice(br#"{"type":"input_text","text":"#);
                write_text(json, text);
            }
            Self::Image(image) => {
                json.extend_from_slice(br#"{"type":"input_image","detail":"auto","image_url":"#);
                write_text(json, image.url());
            }
        }
        json.push(b'}');
    }
}
