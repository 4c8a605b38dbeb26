//! Objects, lists and their parts as unparsed texts.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of an object in order, with the texts of the values.
pub(crate) struct Members<'a>(pub(crate) Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Members<'a> {
    /// Returns the members of an object, or none of any other value.
    pub(crate) fn of(text: &'a str) -> Self {
        serde_json::from_str(text).unwrap_or(Self(Vec::new()))
    }
}

/// A name, borrowed from the text unless it contains an escape.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> Deserialize<'a> for Members<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;

        impl<'a> Visitor<'a> for MembersVisitor {
            type Value = Members<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<Members<'a>, A::Error> {
                let mut members = Vec::new();
                while let Some(Name(name)) = object.next_key()? {
                    members.push((name, object.next_value::<&'a RawValue>()?.get()));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(MembersVisitor)
    }
}

/// Returns the items of a list, or none of any other value.
pub(super) fn items(text: &str) -> Vec<&str> {
    let items = serde_json::from_str::<Vec<&RawValue>>(text).unwrap_or_default();
    items.into_iter().map(RawValue::get).collect()
}

/// A part of a value.
#[derive(Debug, PartialEq)]
pub(super) struct Place<'t> {
    /// The path, such as `.stops[2]`, empty for the whole value.
    pub(super) path: String,
    pub(super) text: &'t str,
    /// The objects and lists that contain the part, the outermost first.
    pub(super) containers: Vec<&'t str>,
}

/// Descends from a value into the parts that `is_next` chooses, given the number of steps so far and the position and text of a part.
pub(super) fn find_part<'t>(text: &'t str, is_next: impl Fn(usize, usize, &'t str) -> bool) -> Place<'t> {
    let mut place = Place { path: String::new(), text: text.trim_ascii(), containers: Vec::new() };
    loop {
        let depth = place.containers.len();
        let is_next = |(index, part): &(usize, &'t str)| is_next(depth, *index, part);
        let Members(members) = Members::of(place.text);
        let items = if members.is_empty() { items(place.text) } else { Vec::new() };
        let values = members.iter().map(|(_, value)| *value).chain(items);
        let Some((index, part)) = values.enumerate().find(is_next) else { return place };
        place.path.push_str(&match members.get(index) {
            Some((name, _)) => format!(".{name}"),
            None => format!("[{index}]"),
        });
        place.containers.push(place.text);
        place.text = part;
    }
}

/// Returns the offset of a part of a text.
pub(super) fn offset_in(text: &str, part: &str) -> usize {
    part.as_ptr().addr().saturating_sub(text.as_ptr().addr())
}

/// Appends the path of a part (`.stops[2]`) to the path of its value.
pub(crate) fn join(path: &str, part: &str) -> String {
    match path {
        "" => part.strip_prefix('.').unwrap_or(part).into(),
        path => format!("{path}{part}"),
    }
}

/// Writes an object of names and the texts of values.
pub(crate) fn write_object(members: &[(impl AsRef<str>, impl AsRef<str>)]) -> String {
    let mut object = String::from("{");
    for (name, value) in members {
        let (name, value) = (name.as_ref(), value.as_ref());
        if object.len() > 1 {
            object.push(',');
        }
        object.push_str(&serde_json::Value::from(name).to_string());
        object.push(':');
        object.push_str(value);
    }
    object.push('}');
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_parts_by_their_positions() {
        let text = r#" {"a": [10, {"b\"": "x"}], "c": true}"#;
        let table: [(&[usize], &str, &str); 6] = [
            (&[], "", text.trim()),
            (&[0, 0], ".a[0]", "10"),
            (&[0, 1, 0], r#".a[1].b""#, r#""x""#),
            (&[1], ".c", "true"),
            (&[1, 0], ".c", "true"),
            (&[0, 7], ".a", r#"[10, {"b\"": "x"}]"#),
        ];
        for (steps, path, part) in table {
            let found = find_part(text, |depth, index, _| steps.get(depth) == Some(&index));
            assert_eq!((&*found.path, found.text), (path, part), "{steps:?}");
        }
    }

    #[test]
    fn accepts_any_text() {
        for text in ["", "{", "[1,", r#"{"a"#, r#"{"a": "b\"#, "\"\\é", "]", "}}{", r#"{"a":{"b" 1"#, "é,ü"]
        {
            assert_eq!(find_part(text, |_, _, _| true).text, text);
        }
    }
}
