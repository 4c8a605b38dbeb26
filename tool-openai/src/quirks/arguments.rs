//! Arguments of tool calls.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;
use tool_core::provider::compact_json;

/// The arguments of a call as text. OpenAI sends a string; llama.cpp and others send the object itself, which is then written without
/// whitespace.
#[derive(Default)]
pub(crate) struct Arguments<'a>(pub(crate) Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for Arguments<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Raw, so that numbers of any length keep all their digits.
        let Some(json) = Option::<&RawValue>::deserialize(deserializer)?.map(RawValue::get) else {
            return Ok(Self(None));
        };
        let Some(text) = json.strip_prefix('"').and_then(|json| json.strip_suffix('"')) else {
            return Ok(Self(Some(compact_json(json))));
        };
        if memchr::memchr(b'\\', text.as_bytes()).is_none() {
            return Ok(Self(Some(text.into())));
        }
        let text = serde_json::from_str::<String>(json).map_err(Error::custom)?;
        Ok(Self(Some(text.into())))
    }
}
