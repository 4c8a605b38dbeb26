//! What servers that claim the API do otherwise: one function each, with where it was seen.

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use tool_core::FinishReason;

use crate::error::ApiError;
use crate::lenient::{self, Object, nothing_is};

/// The error in a body, in any of the forms that are met; nothing if there is none in it.
///
/// `{error: {message, type, code}}` (OpenAI), `{error: "…"}` and `[{error}]` (Gemini), `{object: "error", message}`
/// (vLLM), `{message: {detail: [{msg}]}}` (Mistral), `{detail}` (FastAPI); the code is text or a number. Gemini says by
/// the word of its `status` what it is: its message is that of a used up quota also when a minute's requests are used up.
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
        status_word: text("status"),
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

/// How long a body may be that is looked through for an error, in bytes: to read one of any kind takes a multiple of it.
const LONGEST_ERROR_BODY: usize = 64 << 10;

/// The body tells of an error.
pub(crate) fn is_error_body(body: &str) -> bool {
    body.len() <= LONGEST_ERROR_BODY && api_error(body).is_some()
}

/// The value of `error` is one: some servers always have the field, with nothing in it.
pub(crate) fn is_error(value: &str) -> bool {
    !matches!(value.trim_ascii(), "null" | "false" | "0" | "\"\"" | "{}" | "[]")
}

/// The reply was given up by the provider, though this comes as a reason to finish: Mistral and OpenRouter (`error`),
/// SGLang and vLLM (`abort`), DeepSeek.
pub(crate) fn is_failure(finish_reason: &str) -> bool {
    matches!(finish_reason, "error" | "abort" | "insufficient_system_resource")
}

/// Why the model stopped; nothing if it is not said. Blank in each chunk of Ollama's, and the text `null` of DashScope's.
pub(crate) fn finish_reason(wire: &str) -> Option<FinishReason> {
    Some(match wire {
        "" | "null" => return None,
        "stop" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        // Mistral's, and others' that stand before a model of another API: what is cut short must be seen as such.
        "length" | "model_length" | "max_tokens" | "MAX_TOKENS" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        other => FinishReason::Other(other.to_owned()),
    })
}

/// An id for a call that came without. It is by chance that no other call of the conversation has it: the names that
/// servers give their responses may repeat, or be missing, too.
pub(crate) fn made_up_id() -> String {
    format!("call_{:016x}", RandomState::new().build_hasher().finish())
}

/// The content of a message: a text, or parts of which some are text and some, from reasoning models
/// such as Magistral, thinking.
#[derive(Default)]
pub(crate) struct WireContent<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) thinking: Cow<'a, str>,
}

impl<'de: 'a, 'a> Deserialize<'de> for WireContent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

/// Nearly every chunk of a stream has a text here, which is read without a detour.
struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = WireContent<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a list of parts")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(WireContent { text: Cow::Borrowed(text), ..WireContent::default() })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(WireContent { text: Cow::Owned(text.to_owned()), ..WireContent::default() })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        self.visit_string(number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        self.visit_string(number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        self.visit_string(number.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut content = WireContent::default();
        while let Some(Object(part)) = parts.next_element::<Object<WirePart<'_>>>()? {
            content.add(part.unwrap_or_default());
        }
        Ok(content)
    }

    fn visit_map<A: MapAccess<'de>>(self, part: A) -> Result<Self::Value, A::Error> {
        let mut content = WireContent::default();
        content.add(WirePart::deserialize(MapAccessDeserializer::new(part))?);
        Ok(content)
    }

    nothing_is!(null, bool);
}

impl WireContent<'_> {
    fn add(&mut self, part: WirePart<'_>) {
        self.text.to_mut().push_str(&part.text.unwrap_or_default());
        self.thinking.to_mut().push_str(&part.thinking.text);
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WirePart<'a> {
    #[serde(borrow, deserialize_with = "lenient::text")]
    text: Option<Cow<'a, str>>,
    /// A text, or parts again.
    #[serde(borrow)]
    thinking: WireContent<'a>,
}

/// The arguments of a call as text. The API has text; llama.cpp and others have the object itself, which
/// is then written compactly.
pub(crate) fn arguments<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Cow<'de, str>>, D::Error> {
    // As text, so that numbers of any length keep all their digits.
    let Some(json) = Option::<&RawValue>::deserialize(deserializer)?.map(RawValue::get) else {
        return Ok(None);
    };
    let Some(text) = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')) else {
        return Ok(Some(Cow::Owned(compact(json))));
    };
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return Ok(Some(Cow::Borrowed(text)));
    }
    serde_json::from_str::<String>(json).map(|text| Some(Cow::Owned(text))).map_err(Error::custom)
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

/// The JSON with a replacement character for each half of a surrogate pair that stands alone, if there is any. Proxies that
/// cut a text anywhere send the halves of one character in two chunks, and serde_json reads neither.
pub(crate) fn without_lone_surrogates(json: &str) -> Option<String> {
    let unit = |json: &str| u16::from_str_radix(json.strip_prefix("\\u")?.get(..4)?, 16).ok();
    let is_high = |unit: u16| (0xd800..0xdc00).contains(&unit);
    let is_low = |unit: u16| (0xdc00..0xe000).contains(&unit);
    let (mut mended, mut rest, mut is_mended) = (String::new(), json, false);
    while let Some(escape) = memchr::memchr(b'\\', rest.as_bytes()) {
        mended.push_str(&rest[..escape]);
        rest = &rest[escape..];
        let length = match unit(rest) {
            Some(high) if is_high(high) && rest.get(6..).and_then(unit).is_some_and(is_low) => 12,
            Some(half) if is_high(half) || is_low(half) => {
                mended.push('\u{fffd}');
                is_mended = true;
                rest = &rest[6..];
                continue;
            }
            Some(_) => 6,
            // What is escaped, such as a backslash, begins no escape of its own.
            None => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
        };
        mended.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    mended.push_str(rest);
    is_mended.then_some(mended)
}

/// The JSON, with whole characters. Where parts of it are kept as they came, and read one by one, a half would be found
/// too late: what it stands in would be as if it were not there.
pub(crate) fn with_whole_characters(json: &str) -> Cow<'_, str> {
    let has_surrogates = json.contains(r"\ud") || json.contains(r"\uD");
    let mended = if has_surrogates { without_lone_surrogates(json) } else { None };
    mended.map_or(Cow::Borrowed(json), Cow::Owned)
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
    fn contents_of_all_forms() {
        let table = [
            (r#""a\n""#, "a\n"),
            ("7", "7"),
            ("-7", "-7"),
            ("7.5", "7.5"),
            ("null", ""),
            ("true", ""),
            (r#"{"text": "a"}"#, "a"),
            (r#"[{"text": "a"}, 1, {"text": 2}]"#, "a2"),
        ];
        for (json, expected) in table {
            let content: WireContent<'_> = serde_json::from_str(json).expect(json);
            assert_eq!(content.text, expected, "{json}");
        }
    }

    #[test]
    fn objects_are_written_compactly_and_keep_their_digits() {
        let json = "{ \"a\\\" b\" : [ 1, 12345678901234567890123 ],\n \"c\": \" \\\\\" }";
        assert_eq!(compact(json), "{\"a\\\" b\":[1,12345678901234567890123],\"c\":\" \\\\\"}");
    }

    #[test]
    fn halves_of_a_character_are_replaced() {
        let table = [
            (r#""a""#, None),
            (r#""\n\ud83d\ude00\u00e4\\ud83d""#, None),
            (r#""\ud83d""#, Some("\"\u{fffd}\"")),
            (r#""\uDE00b""#, Some("\"\u{fffd}b\"")),
            (r#""\ud83d\ud83d\ude00\u0041""#, Some("\"\u{fffd}\\ud83d\\ude00\\u0041\"")),
            (r#""\\\ud83d \\""#, Some("\"\\\\\u{fffd} \\\\\"")),
            ("\\", None),
            ("\\u", None),
            ("\\u12\u{e4}", None),
            ("\\\u{e4}", None),
            ("\\ud83d\\u", Some("\u{fffd}\\u")),
        ];
        for (json, expected) in table {
            assert_eq!(without_lone_surrogates(json).as_deref(), expected, "{json}");
        }
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
