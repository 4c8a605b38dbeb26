//! The content of a message, which is text or a list of parts.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::lenient::{self, MaybeObject, default_for};

/// The content of a message: a string, or a list of text parts and, from reasoning models such as Magistral, thinking.
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

/// Deserializes content directly, because nearly every chunk of a stream contains some.
struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = WireContent<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of parts")
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
        while let Some(MaybeObject(part)) = parts.next_element::<MaybeObject<WirePart<'_>>>()? {
            content.add(part.unwrap_or_default());
        }
        Ok(content)
    }

    fn visit_map<A: MapAccess<'de>>(self, part: A) -> Result<Self::Value, A::Error> {
        let mut content = WireContent::default();
        content.add(WirePart::deserialize(MapAccessDeserializer::new(part))?);
        Ok(content)
    }

    default_for!(null, bool);
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
    #[serde(borrow, deserialize_with = "lenient::string")]
    text: Option<Cow<'a, str>>,
    /// A string or, again, a list of parts.
    #[serde(borrow)]
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
