//! The messages of a request.

use std::borrow::Cow;

use serde::Serialize;
use serde::ser::{Error, SerializeMap, SerializeSeq, Serializer};
use tool_core::{AssistantMessage, Content, Image, Message, Part, ToolCall, ToolMessage};

use crate::quirks;

/// The messages, as the API has them.
///
/// A result of a tool can only be text there. So the pictures of results follow in a message of the user, behind the
/// last result of the turn: results that stand apart from their calls are refused. What was sent once is sent in the
/// same bytes ever after, as the results of a turn are there together.
pub(super) struct Messages<'a>(pub(super) &'a [Message]);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut messages = serializer.serialize_seq(None)?;
        for turn in self.0.chunk_by(|_, next| matches!(next, Message::Tool(_))) {
            for message in turn {
                messages.serialize_element(&WireMessage(message))?;
            }
            let pictures = Pictures(turn);
            if !pictures.is_empty() {
                messages.serialize_element(&pictures)?;
            }
        }
        messages.end()
    }
}

/// About how many bytes the messages take, so that a long body is not moved as it grows: their texts, some of which hold
/// JSON and so many quotes, and what stands around them.
pub(super) fn room_for(messages: &[Message]) -> usize {
    let of_calls = |message: &AssistantMessage| {
        message.tool_calls.iter().map(|call| call.arguments.len() + call.name.len() + 100).sum::<usize>()
    };
    let texts = messages.iter().map(|message| match message {
        Message::System(content) | Message::User(content) => room_for_content(content),
        Message::Assistant(message) => message.text.len() + of_calls(message),
        Message::Tool(result) => room_for_content(&result.content),
        _ => 0,
    });
    texts.map(|text| 100 + text + text / 4).sum()
}

fn room_for_content(content: &Content) -> usize {
    content.len() + content.images().map(|image| image.url().len()).sum::<usize>()
}

struct WireMessage<'a>(&'a Message);

impl Serialize for WireMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.0 {
            Message::System(content) => {
                if content.images().next().is_some() {
                    return Err(S::Error::custom(
                        "a system message cannot hold an image; put it into a user's message",
                    ));
                }
                map.serialize_entry("role", "system")?;
                map.serialize_entry("content", &content.text())?;
            }
            Message::User(content) => {
                map.serialize_entry("role", "user")?;
                if content.images().next().is_some() {
                    map.serialize_entry("content", &Parts(content))?;
                } else {
                    map.serialize_entry("content", &content.text())?;
                }
            }
            Message::Assistant(message) => write_assistant(message, &mut map)?,
            Message::Tool(message) => {
                map.serialize_entry("role", "tool")?;
                map.serialize_entry("tool_call_id", &message.call_id)?;
                map.serialize_entry("content", &text_of_result(&message.content))?;
            }
            other => {
                return Err(S::Error::custom(format_args!("Chat Completions has no message like {other:?}")));
            }
        }
        map.end()
    }
}

fn write_assistant<M: SerializeMap>(message: &AssistantMessage, map: &mut M) -> Result<(), M::Error> {
    map.serialize_entry("role", "assistant")?;
    // The key is always there; null only beside calls.
    let text = (!message.text.is_empty() || message.tool_calls.is_empty()).then_some(&*message.text);
    map.serialize_entry("content", &text)?;
    if let Some(refusal) = &message.refusal {
        map.serialize_entry("refusal", refusal)?;
    }
    if !message.tool_calls.is_empty() {
        map.serialize_entry("tool_calls", &Calls(&message.tool_calls))?;
    }
    Ok(())
}

struct Calls<'a>(&'a [ToolCall]);

impl Serialize for Calls<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(Call))
    }
}

struct Call<'a>(&'a ToolCall);

impl Serialize for Call<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Function<'a> {
            name: &'a str,
            arguments: &'a str,
        }

        let mut call = serializer.serialize_map(Some(3))?;
        call.serialize_entry("id", &self.0.id)?;
        call.serialize_entry("type", "function")?;
        let arguments = quirks::arguments_sent_back(&self.0.arguments);
        call.serialize_entry("function", &Function { name: &self.0.name, arguments: &arguments })?;
        call.end()
    }
}

/// The parts of a user's message.
struct Parts<'a>(&'a Content);

impl Serialize for Parts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut parts = serializer.serialize_seq(None)?;
        for part in self.0.parts() {
            match (part, part.as_text()) {
                (Part::Image(image), _) => parts.serialize_element(&WirePart::image(image))?,
                // The API refuses an empty text.
                (_, Some("")) => {}
                (_, Some(text)) => parts.serialize_element(&WirePart::Text { text })?,
                (other, None) => {
                    return Err(S::Error::custom(format_args!(
                        "Chat Completions has no part like {other:?}"
                    )));
                }
            }
        }
        parts.end()
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WirePart<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: &'a str,
}

impl<'a> WirePart<'a> {
    fn image(image: &'a Image) -> Self {
        Self::ImageUrl { image_url: ImageUrl { url: image.url() } }
    }
}

/// A result as the text that it can only be; it says so if there are pictures, too.
fn text_of_result(content: &Content) -> Cow<'_, str> {
    let text = content.text();
    let pictures = match content.images().count() {
        0 => return text,
        1 => "[1 image, in the user message behind the results]".to_owned(),
        images => format!("[{images} images, in the user message behind the results]"),
    };
    let line = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    Cow::Owned(format!("{text}{line}{pictures}"))
}

/// The pictures of the results of one turn, each behind a text that says whose it is.
struct Pictures<'a>(&'a [Message]);

impl Pictures<'_> {
    fn is_empty(&self) -> bool {
        results(self.0).all(|result| result.content.images().next().is_none())
    }
}

fn results(turn: &[Message]) -> impl Iterator<Item = &ToolMessage> {
    turn.iter().filter_map(|message| match message {
        Message::Tool(result) => Some(result),
        _ => None,
    })
}

impl Serialize for Pictures<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Content<'a>(&'a [Message]);

        impl Serialize for Content<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut parts = serializer.serialize_seq(None)?;
                for result in results(self.0) {
                    let (tool, call) = (&result.name, &result.call_id);
                    let images = result.content.images().count();
                    for (index, image) in result.content.images().enumerate() {
                        let number =
                            if images > 1 { format!(" {} of {images}", index + 1) } else { String::new() };
                        let text = format!("Image{number} from the tool `{tool}`, call `{call}`:");
                        parts.serialize_element(&WirePart::Text { text: &text })?;
                        parts.serialize_element(&WirePart::image(image))?;
                    }
                }
                parts.end()
            }
        }

        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("role", "user")?;
        map.serialize_entry("content", &Content(self.0))?;
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tool_core::{ChatRequest, JsonText, ToolOutput};

    use super::*;
    use crate::chat_completions::request::body;

    fn sent(messages: &[Message]) -> Result<Value, crate::Error> {
        let body = body("m", &ChatRequest::borrowing(messages), false)?;
        Ok(serde_json::from_slice::<Value>(&body).unwrap()["messages"].take())
    }

    fn written(messages: &[Message]) -> Value {
        sent(messages).unwrap()
    }

    fn image(name: &str) -> Image {
        Image::from_url(format!("https://example.org/{name}.png"))
    }

    fn wire_image(name: &str) -> Value {
        json!({ "type": "image_url", "image_url": { "url": format!("https://example.org/{name}.png") } })
    }

    fn wire_text(text: &str) -> Value {
        json!({ "type": "text", "text": text })
    }

    #[test]
    fn what_a_user_says() {
        let bytes = Image::from_bytes("image/png", [0, 1, 2]);
        let data = json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AAEC" } });
        let table = [
            (Content::from("Hi"), json!("Hi")),
            (Content::from_iter(["Hi ".into(), "there".into()]), json!("Hi there")),
            (Content::from(Part::from(JsonText::from(json!({ "a": [1] })))), json!("{\"a\":[1]}")),
            (
                Content::from_iter([
                    "What is ".into(),
                    image("a").into(),
                    "this?".into(),
                    JsonText::from(json!(1)).into(),
                ]),
                json!([wire_text("What is "), wire_image("a"), wire_text("this?"), wire_text("1")]),
            ),
            (Content::from_iter([Part::from(""), bytes.into()]), json!([data])),
        ];
        for (content, expected) in table {
            assert_eq!(written(&[Message::User(content)]), json!([{ "role": "user", "content": expected }]));
        }
    }

    #[test]
    fn a_system_message_has_no_pictures() {
        let error = sent(&[Message::System(Content::from(Part::from(image("a"))))]).unwrap_err();
        assert!(error.to_string().ends_with("put it into a user's message"), "{error}");
    }

    /// A turn whose calls `a`, `b` and `c` gave these outputs.
    fn turn(outputs: [ToolOutput; 3]) -> Vec<Message> {
        let calls = ["a", "b", "c"].map(|id| ToolCall::new(id, "plot", "{}"));
        let results: Vec<_> =
            calls.iter().zip(outputs).map(|(call, output)| Message::tool(call, &Ok(output))).collect();
        let calls = Message::Assistant(AssistantMessage::default().with_tool_calls(calls));
        [Message::user("Plot."), calls].into_iter().chain(results).collect()
    }

    #[test]
    fn the_pictures_of_a_turn_follow_its_last_result() {
        let outputs = [
            ToolOutput::text("Two:").with_part(image("1")).with_part(image("2")),
            ToolOutput::text("none"),
            ToolOutput::image(image("3")),
        ];
        let mut messages = turn(outputs);
        messages.push(Message::assistant("There."));
        let written = written(&messages);
        let result = |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "content": text });
        let pictures = json!([
            wire_text("Image 1 of 2 from the tool `plot`, call `a`:"),
            wire_image("1"),
            wire_text("Image 2 of 2 from the tool `plot`, call `a`:"),
            wire_image("2"),
            wire_text("Image from the tool `plot`, call `c`:"),
            wire_image("3"),
        ]);
        let expected = [
            result("a", "Two:\n[2 images, in the user message behind the results]"),
            result("b", "none"),
            result("c", "[1 image, in the user message behind the results]"),
            json!({ "role": "user", "content": pictures }),
            json!({ "role": "assistant", "content": "There." }),
        ];
        assert_eq!(written.as_array().unwrap()[2..], expected);
    }

    #[test]
    fn a_turn_with_pictures_begins_with_the_bytes_of_the_one_before() {
        let picture = || ToolOutput::image(image("1"));
        let turns = || turn([picture(), picture(), picture()]).into_iter();
        let conversation: Vec<_> = turns()
            .chain([Message::assistant("There.")])
            .chain(turns())
            .chain([Message::user("Thanks.")])
            .collect();
        // Requests are made where the model is asked: behind the user, and behind the results of a turn.
        let body = |end: usize| body("m", &ChatRequest::borrowing(&conversation[..end]), true).unwrap();
        let bodies: Vec<_> = [1, 5, 6, 7, 11, 12].map(body).into_iter().collect();
        for pair in bodies.windows(2) {
            let so_far = &pair[0][..pair[0].len() - "]}".len()];
            assert!(pair[1].starts_with(so_far), "{}", String::from_utf8_lossy(&pair[1]));
        }
    }
}
