//! The content of a message, which is text or a list of parts.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess};

use crate::lenient::{self, Lenient, Object, Text};

/// The content of a message: a string, or a list of text parts and, from reasoning models such as Magistral, thinking.
#[derive(Default)]
pub(crate) struct WireContent<'a> {
    pub(crate) text: Cow<'a, str>,
    pub(crate) thinking: Cow<'a, str>,
}

/// Reads content directly, because nearly every chunk of a stream contains some.
impl<'de: 'a, 'a> Lenient<'de> for WireContent<'a> {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self { text, ..Self::default() }
    }

    fn from_unsigned(number: u64) -> Self {
        Self::from_text(number.to_string().into())
    }

    fn from_array<A: SeqAccess<'de>>(mut parts: A) -> Result<Self, A::Error> {
        let mut content = Self::default();
        while let Some(Object(part)) = parts.next_element()? {
            content.add(part.unwrap_or_default());
        }
        Ok(content)
    }

    fn from_object<A: MapAccess<'de>>(part: A) -> Result<Self, A::Error> {
        let mut content = Self::default();
        content.add(Object::from_object(part)?.0.unwrap_or_default());
        Ok(content)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for WireContent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient::deserialize(deserializer)
    }
}

impl WireContent<'_> {
    fn add(&mut self, part: WirePart<'_>) {
        self.text.to_mut().push_str(&part.text.0.unwrap_or_default());
        self.thinking.to_mut().push_str(&part.thinking.text);
    }
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct WirePart<'a> {
    text: Text<'a>,
    /// A string or, again, a list of parts.
    thinking: WireContent<'a>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_content_of_all_forms() {
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
}
