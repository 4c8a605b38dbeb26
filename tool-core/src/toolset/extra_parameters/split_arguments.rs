//! The arguments of a call, told apart: those that were added, and those of the tool.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// The arguments of a call as the model wrote them, told apart.
#[derive(Default)]
pub(super) struct Split<'a> {
    /// Each with its name.
    pub(super) extra: Vec<(String, &'a str)>,
    /// Each with its name as it is written, quotes and all.
    own: Vec<(&'a str, &'a str)>,
}

impl<'a> Split<'a> {
    /// Reads the text of an object.
    ///
    /// # Errors
    ///
    /// It is none.
    pub(super) fn of(text: &'a str, is_extra: impl Fn(&str) -> bool) -> Result<Self, serde_json::Error> {
        // Models without anything to say send these.
        if matches!(text.trim_ascii(), "" | "null") {
            return Ok(Self::default());
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let split = deserializer.deserialize_map(Splitter { is_extra })?;
        deserializer.end()?;
        Ok(split)
    }

    /// The text of an object of the tool's own arguments, every name and value as it was written; `None` if
    /// there are no others.
    pub(super) fn own(&self) -> Option<String> {
        (!self.extra.is_empty()).then(|| object(self.own.iter().map(|(name, value)| (*name, *value))))
    }
}

/// The text of an object, of names and values that are JSON.
pub(super) fn object<N: AsRef<str>, V: AsRef<str>>(members: impl Iterator<Item = (N, V)>) -> String {
    let mut text = String::from("{");
    for (name, value) in members {
        if text.len() > 1 {
            text.push(',');
        }
        text.extend([name.as_ref(), ":", value.as_ref()]);
    }
    text.push('}');
    text
}

/// A name as it is written in JSON.
pub(super) fn quoted(name: &str) -> Cow<'_, str> {
    match serde_json::to_string(name) {
        Ok(quoted) => quoted.into(),
        // A text always has a JSON form.
        Err(_) => name.into(),
    }
}

struct Splitter<F> {
    is_extra: F,
}

impl<'a, F: Fn(&str) -> bool> Visitor<'a> for Splitter<F> {
    type Value = Split<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<Split<'a>, A::Error> {
        let mut split = Split::default();
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
    fn the_tools_own_arguments_stay_as_they_are_written() {
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
            let split = Split::of(text, |name| name == "reason").unwrap();
            assert_eq!(split.own().as_deref(), own, "{text}");
            assert_eq!(split.extra.len(), usize::from(own.is_some()), "{text}");
        }
        for text in ["[]", "1", "{", "{} x", r#"{"a":1,}"#] {
            assert!(Split::of(text, |_| true).is_err(), "{text}");
        }
    }
}
