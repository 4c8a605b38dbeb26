//! What servers that claim the API do otherwise: one function each, with where it was seen.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::ApiError;

/// The error in a body, in any of the forms that are met; nothing if there is none in it.
///
/// `{error: {message, type, code}}` (OpenAI), `{error: "…"}` and `[{error}]` (Gemini), `{object: "error", message}`
/// (vLLM), `{message: {detail: [{msg}]}}` (Mistral), `{detail}` (FastAPI); the code is text or a number.
pub(crate) fn api_error(body: &str) -> Option<ApiError> {
    let body: Value = serde_json::from_str(body).ok()?;
    let body = body.get(0).unwrap_or(&body);
    let error = match body.get("error") {
        Some(Value::Null) | None => body,
        Some(error) => error,
    };
    let message = match error {
        Value::String(message) => message.clone(),
        _ => error.get("message").or_else(|| error.get("detail")).and_then(message_text)?,
    };
    let text = |name: &str| match error.get(name)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    Some(ApiError {
        message,
        // In a stream of the Responses API, the type is that of the event.
        kind: text("type").filter(|kind| !matches!(&**kind, "error" | "response.error")),
        code: text("code"),
        param: text("param"),
        failed_generation: text("failed_generation"),
        ..ApiError::default()
    })
}

fn message_text(message: &Value) -> Option<String> {
    match message {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let parts: Vec<_> = parts.iter().filter_map(message_text).collect();
            (!parts.is_empty()).then(|| parts.join("; "))
        }
        Value::Object(object) => {
            ["detail", "msg", "message"].iter().find_map(|name| message_text(object.get(*name)?))
        }
        _ => None,
    }
}

/// The content of a message: a text, or parts of which some are text and some, from reasoning models
/// such as Magistral, thinking.
#[derive(Default)]
pub(crate) struct WireContent {
    pub(crate) text: String,
    pub(crate) thinking: String,
}

impl<'de> Deserialize<'de> for WireContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

/// Nearly every chunk of a stream has a text here, which is read without a detour.
struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = WireContent;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a list of parts")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<WireContent, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<WireContent, E> {
        Ok(WireContent { text, thinking: String::new() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<WireContent, A::Error> {
        let mut content = WireContent::default();
        while let Some(part) = parts.next_element::<Value>()? {
            if let Some(Value::String(text)) = part.get("text") {
                content.text.push_str(text);
            }
            match part.get("thinking") {
                Some(Value::String(text)) => content.thinking.push_str(text),
                Some(Value::Array(inner)) => {
                    inner
                        .iter()
                        .filter_map(|part| part.get("text")?.as_str())
                        .for_each(|text| content.thinking.push_str(text));
                }
                _ => {}
            }
        }
        Ok(content)
    }
}

/// The arguments of a call as text. The API has text; llama.cpp and others have the object itself, which
/// is then written compactly.
pub(crate) fn arguments<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    // As text, so that numbers of any length keep all their digits.
    let Some(value) = Option::<&RawValue>::deserialize(deserializer)? else { return Ok(None) };
    if value.get().starts_with('"') {
        return serde_json::from_str(value.get()).map(Some).map_err(serde::de::Error::custom);
    }
    Ok(Some(compact(value.get())))
}

/// A JSON text without the blanks between its tokens.
pub(crate) fn compact(json: &str) -> String {
    let (mut is_in_string, mut is_escaped) = (false, false);
    let keep = |character: &char| {
        let is_kept = is_in_string || !character.is_ascii_whitespace();
        if *character == '"' && !is_escaped {
            is_in_string = !is_in_string;
        }
        is_escaped = is_in_string && *character == '\\' && !is_escaped;
        is_kept
    };
    json.chars().filter(keep).collect()
}

/// The arguments of an earlier call as they are sent back: always the text of a JSON object, because
/// Ollama and others parse it and refuse the whole request otherwise.
pub(crate) fn arguments_sent_back(text: &str) -> Cow<'_, str> {
    let blank = matches!(text.trim_ascii(), "" | "null");
    if !blank && text.trim_ascii_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
    {
        Cow::Borrowed(text)
    } else if blank {
        Cow::Borrowed("{}")
    } else {
        Cow::Owned(serde_json::json!({ "INVALID_JSON": text }).to_string())
    }
}

/// An id of a call as Mistral takes it: nine letters and digits, always the same for the same id.
///
/// <https://docs.mistral.ai/capabilities/function_calling> has such ids; others are refused.
pub(crate) fn nine_alphanumeric(id: &str) -> Cow<'_, str> {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Cow::Borrowed(id);
    }
    // FNV-1a, as std's hashes may change from one version to the next, and a kept run must send the same.
    let mut hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let digits = std::iter::repeat_with(|| {
        let digit = ALPHABET[(hash % 62) as usize];
        hash /= 62;
        char::from(digit)
    });
    Cow::Owned(digits.take(9).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_all_forms() {
        let table = [
            (r#"{"error":{"message":"no","type":"t","code":"c"}}"#, Some(("no", Some("t"), Some("c")))),
            (r#"{"error":{"message":"no","code":429}}"#, Some(("no", None, Some("429")))),
            (r#"{"error":"no"}"#, Some(("no", None, None))),
            (r#"{"type":"error","message":"no","code":"c","param":null}"#, Some(("no", None, Some("c")))),
            (r#"[{"error":{"message":"no","code":400}}]"#, Some(("no", None, Some("400")))),
            (r#"{"object":"error","message":"no","type":"t"}"#, Some(("no", Some("t"), None))),
            (r#"{"message":{"detail":[{"msg":"a"},{"msg":"b"}]}}"#, Some(("a; b", None, None))),
            (r#"{"detail":"no"}"#, Some(("no", None, None))),
            (r#"{"detail":[{"msg":"a"}]}"#, Some(("a", None, None))),
            (r#"{"choices":[]}"#, None),
            ("<html>", None),
            ("[]", None),
        ];
        for (body, expected) in table {
            let error = api_error(body);
            let found =
                error.as_ref().map(|error| (&*error.message, error.kind.as_deref(), error.code.as_deref()));
            assert_eq!(found, expected, "{body}");
        }
    }

    #[test]
    fn objects_are_written_compactly_and_keep_their_digits() {
        let json = "{ \"a\\\" b\" : [ 1, 12345678901234567890123 ],\n \"c\": \" \\\\\" }";
        assert_eq!(compact(json), "{\"a\\\" b\":[1,12345678901234567890123],\"c\":\" \\\\\"}");
    }

    #[test]
    fn arguments_sent_back_are_always_an_object() {
        let table = [
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
            ("", "{}"),
            (" null ", "{}"),
            ("{\"a\": ", r#"{"INVALID_JSON":"{\"a\": "}"#),
            ("[1]", r#"{"INVALID_JSON":"[1]"}"#),
        ];
        for (text, expected) in table {
            assert_eq!(arguments_sent_back(text), expected, "{text}");
        }
    }

    #[test]
    fn ids_of_nine() {
        // A kept run sends the same in every version.
        let table = [("abcDEF123", "abcDEF123"), ("", "HIQo8RRkb"), ("call_1", "9gD2Dimct")];
        for (id, expected) in table {
            assert_eq!(nine_alphanumeric(id), expected, "{id}");
        }
        let ids: std::collections::HashSet<_> =
            (0..1000).map(|number| nine_alphanumeric(&format!("call_{number}")).into_owned()).collect();
        assert_eq!(ids.len(), 1000);
    }
}
