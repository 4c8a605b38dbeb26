//! The messages of a request, as items of its input.

use tool_core::{AssistantMessage, Content, Image, Message, Part, ToolCall};

use super::{Dialect, echo};
use crate::json::{write_list, write_text};
use crate::pieces::Growing;
use crate::{Error, quirks};

/// The input of the request before, as it was sent: a turn writes only what is new.
#[derive(Default)]
pub(super) struct WrittenInput {
    json: Growing,
    messages: usize,
    /// How it is written: an application may ask several endpoints in turn.
    dialect: Option<Dialect>,
}

impl WrittenInput {
    /// The messages as a list, but for its end; nothing, if there are none.
    pub(super) fn with_new(&mut self, messages: &[Message], dialect: &Dialect) -> Result<&Growing, Error> {
        let is_other = self.dialect.as_ref().is_none_or(|written| !written.is_same(dialect));
        if is_other || messages.len() < self.messages {
            *self = Self { dialect: Some(dialect.clone()), ..Self::default() };
        }
        let new = &messages[self.messages..];
        let mut items =
            Items { json: Vec::with_capacity(room_for(new, dialect)), are_first: self.json.is_empty() };
        for message in new {
            write_message(&mut items, message, dialect)?;
        }
        if !items.json.is_empty() {
            self.json.push(items.json);
        }
        self.messages = messages.len();
        Ok(&self.json)
    }
}

/// Items of a list, as they are written.
pub(super) struct Items {
    json: Vec<u8>,
    /// None of them stands before these.
    are_first: bool,
}

impl Items {
    /// Where the next item is written.
    pub(super) fn next(&mut self) -> &mut Vec<u8> {
        let is_first = self.are_first && self.json.is_empty();
        self.json.push(if is_first { b'[' } else { b',' });
        &mut self.json
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

fn write_message(items: &mut Items, message: &Message, dialect: &Dialect) -> Result<(), Error> {
    match message {
        Message::System(content) => {
            if content.images().next().is_some() {
                return Err(Error::request(
                    "a system message cannot hold an image; put it into a user's message",
                ));
            }
            // The API's newer word `developer` says the same, and not every server knows it.
            write_text_message(items, "system", &content.text());
        }
        Message::User(content) if content.images().next().is_none() => {
            write_text_message(items, "user", &content.text());
        }
        Message::User(content) => {
            let json = items.next();
            json.extend_from_slice(br#"{"type":"message","role":"user","content":"#);
            write_parts(json, content)?;
            json.push(b'}');
        }
        Message::Assistant(message) => {
            if !echo::write(items, message, dialect) {
                write_assistant(items, message);
            }
        }
        Message::Tool(result) => {
            let json = items.next();
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

fn write_text_message(items: &mut Items, role: &str, text: &str) {
    let json = items.next();
    json.extend_from_slice(br#"{"type":"message","role":"#);
    write_text(json, role);
    json.extend_from_slice(br#","content":"#);
    write_text(json, text);
    json.push(b'}');
}

/// Writes what another provider's model said, or what was changed since it was said. A message that says nothing is no
/// item; and a refusal is what the model said, as only items with an id of the API's have a word for it.
fn write_assistant(items: &mut Items, message: &AssistantMessage) {
    let said = [Some(&*message.text), message.refusal.as_deref()];
    for text in said.into_iter().flatten().filter(|text| !text.is_empty()) {
        write_text_message(items, "assistant", text);
    }
    for call in &message.tool_calls {
        let json = items.next();
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tool_core::{JsonText, ToolOutput};

    use super::*;
    use crate::pieces::BodyWriter;
    use crate::responses::tests::{dialect, stored};

    impl Items {
        pub(in crate::responses) fn none() -> Self {
            Self { json: Vec::new(), are_first: true }
        }

        pub(in crate::responses) fn read(mut self) -> Value {
            if self.json.is_empty() {
                return json!([]);
            }
            self.json.push(b']');
            serde_json::from_slice(&self.json).unwrap()
        }
    }

    fn sent(messages: &[Message]) -> Result<Value, Error> {
        let mut items = Items::none();
        messages.iter().try_for_each(|message| write_message(&mut items, message, &dialect()))?;
        Ok(items.read())
    }

    fn written(messages: &[Message]) -> Value {
        sent(messages).unwrap()
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
    fn what_is_said() {
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
    fn a_system_message_has_no_pictures() {
        let error = sent(&[Message::System(Content::from(Part::from(image("a"))))]).unwrap_err();
        assert!(error.to_string().ends_with("put it into a user's message"), "{error}");
    }

    #[test]
    fn calls_and_results() {
        let calls = [ToolCall::new("1", "now", r#"{"zone": "UTC"}"#), ToolCall::new("2", "now", "{broken")];
        let outputs = [ToolOutput::text("noon"), ToolOutput::text("see:").with_part(image("a"))];
        let results: Vec<_> =
            calls.iter().zip(outputs).map(|(call, output)| Message::tool(call, &Ok(output))).collect();
        let said = AssistantMessage::text("Let me see.").with_tool_calls(calls);
        let messages: Vec<_> =
            [Message::user("When?"), Message::Assistant(said)].into_iter().chain(results).collect();
        let call = |id: &str, arguments: &str| json!({ "type": "function_call", "call_id": id, "name": "now", "arguments": arguments });
        let result = |id: &str, output: Value| json!({ "type": "function_call_output", "call_id": id, "output": output });
        let expected = [
            json!({ "type": "message", "role": "assistant", "content": "Let me see." }),
            call("1", r#"{"zone": "UTC"}"#),
            call("2", r#"{"INVALID_JSON":"{broken"}"#),
            result("1", json!("noon")),
            result("2", json!([wire_text("see:"), wire_image("a")])),
        ];
        assert_eq!(written(&messages).as_array().unwrap()[1..], expected);
    }

    fn bytes(written: &Growing) -> Vec<u8> {
        let mut body = BodyWriter::default();
        body.append(written);
        body.finish().to_vec()
    }

    fn anew(messages: &[Message], dialect: &Dialect) -> Vec<u8> {
        bytes(WrittenInput::default().with_new(messages, dialect).unwrap())
    }

    #[test]
    fn only_what_is_new_is_written() {
        let messages = ["When?", "Now?", "Where?"].map(Message::user);
        let mut written = WrittenInput::default();
        written.with_new(&messages[..1], &dialect()).unwrap();
        // Nobody may change it; so it is not looked at again.
        let changed = [Message::user("changed"), messages[1].clone(), messages[2].clone()];
        let whole = bytes(written.with_new(&changed, &dialect()).unwrap());
        assert_eq!(whole, anew(&messages, &dialect()));
        // But for fewer messages, or in another dialect.
        for (messages, dialect) in [(&changed[..2], dialect()), (&messages[..2], stored())] {
            assert_eq!(bytes(written.with_new(messages, &dialect).unwrap()), anew(messages, &dialect));
        }
    }

    #[test]
    fn messages_that_say_nothing_are_no_items() {
        let nothing = Message::assistant("");
        let mut written = WrittenInput::default();
        assert!(written.with_new(&[], &dialect()).unwrap().is_empty());
        assert!(written.with_new(std::slice::from_ref(&nothing), &dialect()).unwrap().is_empty());
        let some = [nothing.clone(), Message::user("a"), nothing, Message::user("b")];
        let written = bytes(written.with_new(&some, &dialect()).unwrap());
        assert_eq!(written, anew(&[some[1].clone(), some[3].clone()], &dialect()));
        assert!(written.starts_with(b"[{"), "{}", String::from_utf8_lossy(&written));
    }

    #[test]
    fn what_cannot_be_written_leaves_no_trace() {
        let picture = Message::System(Content::from(Part::from(image("a"))));
        let mut written = WrittenInput::default();
        let good = [Message::user("a"), Message::user("b")];
        written.with_new(&good[..1], &dialect()).unwrap();
        let bad = [good[0].clone(), good[1].clone(), picture];
        assert!(written.with_new(&bad, &dialect()).is_err());
        assert_eq!(bytes(written.with_new(&good, &dialect()).unwrap()), anew(&good, &dialect()));
    }
}
