//! Messages in the JSON form of the OpenTelemetry convention.
//!
//! Schemas: <https://github.com/open-telemetry/semantic-conventions-genai/tree/main/docs/gen-ai>.

use serde_json::{Value, json};

use super::names::finish_reason;
use crate::content::{Content, Image, Part};
use crate::model::{AssistantMessage, FinishReason, Message};

pub(super) fn input_messages(messages: &[Message]) -> String {
    messages.iter().map(message).collect::<Value>().to_string()
}

pub(super) fn output_messages(message: &AssistantMessage, reason: &FinishReason) -> String {
    json!([{
        "role": "assistant",
        "parts": reply_parts(message),
        "finish_reason": finish_reason(reason),
    }])
    .to_string()
}

fn message(message: &Message) -> Value {
    match message {
        Message::System(content) => json!({ "role": "system", "parts": parts(content) }),
        Message::User(content) => json!({ "role": "user", "parts": parts(content) }),
        Message::Assistant(reply) => json!({ "role": "assistant", "parts": reply_parts(reply) }),
        Message::Tool(result) => {
            let mut all = vec![json!({
                "type": "tool_call_response",
                "id": result.call_id,
                "response": result.content.text(),
            })];
            all.extend(result.content.images().map(image));
            json!({ "role": "tool", "parts": all })
        }
    }
}

fn parts(content: &Content) -> Vec<Value> {
    let part = |part: &Part| match part {
        Part::Text { text: content } => text(content),
        Part::Json(content) => text(content.as_str()),
        Part::Image(content) => image(content),
        Part::File(content) => json!({ "type": "file", "mime_type": content.media_type() }),
    };
    content.parts().iter().map(part).collect()
}

fn reply_parts(reply: &AssistantMessage) -> Vec<Value> {
    let reasoning = reply.reasoning.iter().map(|content| json!({ "type": "reasoning", "content": content }));
    let texts = [Some(&reply.text), reply.refusal.as_ref()].into_iter().flatten();
    let texts = texts.filter(|content| !content.is_empty()).map(|content| text(content));
    let calls = reply.tool_calls.iter().map(|call| {
        // Invalid JSON is included as the string that the model wrote.
        let arguments = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!(call.arguments));
        json!({ "type": "tool_call", "id": call.id, "name": call.name, "arguments": arguments })
    });
    reasoning.chain(texts).chain(calls).collect()
}

fn text(content: &str) -> Value {
    json!({ "type": "text", "content": content })
}

/// Encodes the location or the type of an image, but not its bytes.
fn image(image: &Image) -> Value {
    let scheme = image.url().split(':').next().unwrap_or_default();
    if scheme.eq_ignore_ascii_case("data") {
        json!({ "type": "image", "modality": "image", "mime_type": image.media_type() })
    } else {
        json!({ "type": "uri", "modality": "image", "uri": image.url() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::JsonText;
    use crate::model::{ToolCall, ToolMessage};

    #[test]
    fn encodes_messages_by_the_convention() {
        let call = |arguments: &str| {
            Message::Assistant(
                AssistantMessage::default().with_tool_calls([ToolCall::new("1", "sum", arguments)]),
            )
        };
        let called = |arguments: Value| {
            json!({ "role": "assistant", "parts": [
                { "type": "tool_call", "id": "1", "name": "sum", "arguments": arguments },
            ] })
        };
        let mut reasoned = AssistantMessage::text("Hi.");
        reasoned.reasoning = Some("Greet.".into());
        let picture = Part::from(Image::from_bytes("image/png", b"secret"));
        let table = [
            (Message::system("Be kind."), json!({ "role": "system", "parts": [text("Be kind.")] })),
            (
                Message::user(Content::from_iter(["Look:".into(), picture])),
                json!({ "role": "user", "parts": [
                    text("Look:"),
                    { "type": "image", "modality": "image", "mime_type": "image/png" },
                ] }),
            ),
            (
                Message::user(Content::from(Part::from(Image::from_url("https://example.org/a.png")))),
                json!({ "role": "user", "parts": [
                    { "type": "uri", "modality": "image", "uri": "https://example.org/a.png" },
                ] }),
            ),
            (
                Message::Assistant(reasoned),
                json!({ "role": "assistant", "parts": [
                    { "type": "reasoning", "content": "Greet." },
                    text("Hi."),
                ] }),
            ),
            (call(r#"{"a": 1}"#), called(json!({ "a": 1 }))),
            (call("{"), called(json!("{"))),
            (
                Message::Tool(ToolMessage::new(
                    "1",
                    "sum",
                    Content::from(Part::from(JsonText::from(json!([3])))),
                )),
                json!({ "role": "tool", "parts": [
                    { "type": "tool_call_response", "id": "1", "response": "[3]" },
                ] }),
            ),
        ];
        for (message, expected) in table {
            let written: Value = serde_json::from_str(&input_messages(&[message])).unwrap();
            assert_eq!(written, json!([expected]));
        }
    }
}
