//! Separation of the extra arguments of a call from the tool's own.

use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// The arguments of a call as the model wrote them, split into extra arguments and the tool's own.
#[derive(Default)]
pub(super) struct SplitArguments<'a> {
    /// The extra arguments: decoded names and the texts of the values.
    pub(super) extra: Vec<(String, &'a str)>,
    /// The tool's own arguments: the texts of the names, including quotes, and of the values.
    own: Vec<(&'a str, &'a str)>,
}

impl<'a> SplitArguments<'a> {
    /// Parses the text of an object.
    /// Fails if the text is not a JSON object.
    pub(super) fn parse(text: &'a str, is_extra: impl Fn(&str) -> bool) -> Result<Self, serde_json::Error> {
        // Some models send these if there are no arguments.
        if matches!(text.trim_ascii(), "" | "null") {
            return Ok(Self::default());
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let split = deserializer.deserialize_map(SplitVisitor { is_extra })?;
        deserializer.end()?;
        Ok(split)
    }

    /// Returns an object of the tool's own arguments, with every name and value as it was written, or `None` if there are
    /// no extra arguments.
    pub(super) fn tool_arguments(&self) -> Option<String> {
        (!self.extra.is_empty()).then(|| write_object(self.own.iter().map(|(name, value)| (*name, *value))))
    }
}

/// Writes an object with names and values that are JSON already.
fn write_object<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut text = String::from("{");
    for (name, value) in members {
        if text.len() > 1 {
            text.push(',');
        }
        text.extend([name, ":", value]);
    }
    text.push('}');
    text
}

struct SplitVisitor<F> {
    is_extra: F,
}

impl<'a, F: Fn(&str) -> bool> Visitor<'a> for SplitVisitor<F> {
    type Value = SplitArguments<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<SplitArguments<'a>, A::Error> {
        let mut split = SplitArguments::default();
        while let Some((name, value)) = object.next_entry::<&'a RawValue, &'a RawValue>()? {
            match serde_json::from_str::<String>(name.get()) {
                Ok(name) if (self.is_extra)(&name) => split.extra.push((name, value.get())),
                _ => split.own.push((name.get(), value.get())),
            }
        }
        Ok(split)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_arguments_are_unchanged() {
        let table = [
            (r#"{"reason":"x","a":1.50}"#, Some(r#"{"a":1.50}"#)),
            (r#"{ "a" : 1e3 , "reason" : null , "b":"\u0041\/" }"#, Some(r#"{"a":1e3,"b":"\u0041\/"}"#)),
            (r#"{"\u0061": [1,  2], "r\u0065ason": 1}"#, Some(r#"{"\u0061":[1,  2]}"#)),
            (r#"{"a":1,"a":2,"reason":""}"#, Some(r#"{"a":1,"a":2}"#)),
            (r#"{"reason":1}"#, Some("{}")),
            (r#"{"a": 9007199254740993}"#, None),
            ("", None),
            (" null", None),
        ];
        for (text, own) in table {
            let split = SplitArguments::parse(text, |name| name == "reason").unwrap();
            assert_eq!(split.tool_arguments().as_deref(), own, "{text}");
            assert_eq!(split.extra.len(), usize::from(own.is_some()), "{text}");
        }
        for text in ["[]", "1", "{", "{} x", r#"{"a":1,}"#] {
            assert!(SplitArguments::parse(text, |_| true).is_err(), "{text}");
        }
    }
}
