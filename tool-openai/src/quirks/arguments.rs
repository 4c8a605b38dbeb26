//! Arguments of tool calls.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
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
