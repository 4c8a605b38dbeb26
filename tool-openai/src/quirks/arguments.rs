//! Arguments of tool calls.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny};
use serde_json::value::RawValue;
use tool_core::content::compact_json;

/// Deserializes the arguments of a call as text. OpenAI sends a string; llama.cpp and others send the object itself, which
/// is then written without whitespace.
pub(crate) fn deserialize_arguments<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Cow<'de, str>>, D::Error> {
    // Raw, so that numbers of any length keep all their digits.
    let Some(json) = Option::<&RawValue>::deserialize(deserializer)?.map(RawValue::get) else {
        return Ok(None);
    };
    let Some(text) = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')) else {
        return Ok(Some(compact_json(json)));
    };
    if memchr::memchr(b'\\', text.as_bytes()).is_none() {
        return Ok(Some(Cow::Borrowed(text)));
    }
    serde_json::from_str::<String>(json).map(|text| Some(Cow::Owned(text))).map_err(Error::custom)
}

/// Returns the arguments of an earlier call in the form to send: always the text of a JSON object, because Ollama and others
/// parse it and reject the whole request otherwise.
pub(crate) fn normalize_arguments(text: &str) -> Cow<'_, str> {
    let is_blank = matches!(text.trim_ascii(), "" | "null");
    if !is_blank
        && text.trim_ascii_start().starts_with('{')
        && serde_json::from_str::<IgnoredAny>(text).is_ok()
    {
        Cow::Borrowed(text)
    } else if is_blank {
        Cow::Borrowed("{}")
    } else {
        Cow::Owned(serde_json::json!({ "INVALID_JSON": text }).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalized_arguments_are_always_an_object() {
        let table = [
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
            ("", "{}"),
            (" null ", "{}"),
            ("{\"a\": ", r#"{"INVALID_JSON":"{\"a\": "}"#),
            ("[1]", r#"{"INVALID_JSON":"[1]"}"#),
        ];
        for (text, expected) in table {
            assert_eq!(normalize_arguments(text), expected, "{text}");
        }
    }
}
