//! What a model leaves out by `null`, because strict mode makes it give every argument.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::arguments::Members;
use crate::schema::{Choices, is_nullable};

/// How deep a text is read.
const DEEPEST: usize = 128;

/// The text of the arguments as the schema has them: without each `null` of a property that may be left out and may not be
/// `null`. Nothing if there is none.
#[inline]
pub(crate) fn without_omitted(schema: &Value, text: &str) -> Option<String> {
    if !text.contains("null") {
        return None;
    }
    match (Reader { choices: Choices::new(schema) }).read(&[schema], text.trim_ascii(), 0)? {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    }
}

struct Reader<'s> {
    choices: Choices<'s>,
}

impl<'s> Reader<'s> {
    /// The text of a value that one of the schemas is about, at least; `None` if it cannot be told.
    #[inline]
    fn read<'a>(&self, schemas: &[&'s Value], text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        if depth > DEEPEST || !text.contains("null") {
            return Some(Cow::Borrowed(text));
        }
        match text.as_bytes().first()? {
            b'{' => self.read_object(&self.choices.of(schemas.iter().copied())?, text, depth),
            b'[' => self.read_list(&self.choices.of(schemas.iter().copied())?, text, depth),
            _ => Some(Cow::Borrowed(text)),
        }
    }

    #[inline]
    fn read_object<'a>(
        &self,
        found: &[&'s Map<String, Value>],
        text: &'a str,
        depth: usize,
    ) -> Option<Cow<'a, str>> {
        let Members(members) = serde_json::from_str(text).ok()?;
        let value_of =
            |name: &str| members.iter().find(|(other, _)| other == name).map(|(_, value)| value.get());
        let found: Vec<_> = found.iter().filter(|words| !is_another(words, value_of)).collect();
        let (mut read, mut is_as_it_was) = (String::from("{"), true);
        for (name, value) in &members {
            let schemas: Vec<_> =
                found.iter().filter_map(|words| words.get("properties")?.get(&**name)).collect();
            if value.get() == "null" {
                let may_be_left_out = found.iter().any(|words| may_be_left_out(words, name));
                let may_be_null = self.choices.of(schemas.iter().copied())?.into_iter().any(is_nullable);
                if may_be_left_out && !may_be_null {
                    is_as_it_was = false;
                    continue;
                }
            }
            let value = self.read(&schemas, value.get(), depth + 1)?;
            is_as_it_was &= matches!(value, Cow::Borrowed(_));
            if read.len() > 1 {
                read.push(',');
            }
            read.push_str(&serde_json::to_string(name).ok()?);
            read.push(':');
            read.push_str(&value);
        }
        read.push('}');
        Some(if is_as_it_was { Cow::Borrowed(text) } else { Cow::Owned(read) })
    }

    #[inline]
    fn read_list<'a>(
        &self,
        found: &[&'s Map<String, Value>],
        text: &'a str,
        depth: usize,
    ) -> Option<Cow<'a, str>> {
        let values: Vec<&'a RawValue> = serde_json::from_str(text).ok()?;
        let values = values.into_iter().enumerate().map(|(index, value)| {
            let item = |words: &&'s Map<String, Value>| {
                words.get("prefixItems").and_then(|prefix| prefix.get(index)).or_else(|| words.get("items"))
            };
            self.read(&found.iter().filter_map(item).collect::<Vec<_>>(), value.get(), depth + 1)
        });
        let values: Vec<_> = values.collect::<Option<_>>()?;
        let is_as_it_was = values.iter().all(|value| matches!(value, Cow::Borrowed(_)));
        Some(if is_as_it_was { Cow::Borrowed(text) } else { Cow::Owned(format!("[{}]", values.join(","))) })
    }
}

/// The object has such a property, and may be without it.
#[inline]
fn may_be_left_out(words: &Map<String, Value>, name: &str) -> bool {
    let is_property = words.get("properties").is_some_and(|properties| properties.get(name).is_some());
    let required = words.get("required").and_then(Value::as_array);
    is_property && !required.is_some_and(|names| names.iter().any(|other| other == name))
}

/// Another variant is meant: a property has another constant.
#[inline]
fn is_another<'a>(words: &Map<String, Value>, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
    let properties = words.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().any(|(name, schema)| {
        let Some(wanted) = schema.get("const").and_then(Value::as_str) else { return false };
        let given = value_of(name).and_then(|text| serde_json::from_str::<String>(text).ok());
        given.is_some_and(|given| given != wanted)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_by_null() {
        let schema = json!({
            "type": "object",
            "properties": {
                "a": { "type": "integer" },
                "b": { "type": ["integer", "null"] },
                "c": { "type": "integer" },
                "list": { "type": "array", "items": { "$ref": "#/$defs/Item" } },
                "item": { "anyOf": [{ "$ref": "#/$defs/Item" }, { "type": "null" }] },
                "pair": { "type": "array", "prefixItems": [{ "type": "string" }, { "$ref": "#/$defs/Item" }] },
            },
            "required": ["c"],
            "$defs": { "Item": { "anyOf": [
                {
                    "type": "object",
                    "properties": { "kind": { "const": "plain" }, "it": { "type": "integer" } },
                    "required": ["kind"],
                },
                {
                    "type": "object",
                    "properties": { "kind": { "const": "open" }, "it": { "type": ["integer", "null"] } },
                    "required": ["kind"],
                },
                {
                    "type": "object",
                    "properties": { "kind": { "const": "deep" }, "item": { "$ref": "#/$defs/Item" } },
                    "required": ["kind"],
                },
            ] } },
        });
        let table = [
            (r#"{"a": null}"#, Some("{}")),
            (r#"{"a": 1.50, "b": null, "c": null}"#, None),
            (
                r#"{"a": null, "b": null, "c": 9007199254740993.0}"#,
                Some(r#"{"b":null,"c":9007199254740993.0}"#),
            ),
            (r#"{"item": null}"#, None),
            (r#"{"item": {"kind": "plain", "it": null}}"#, Some(r#"{"item":{"kind":"plain"}}"#)),
            (r#"{"item": {"kind": "open", "it": null}}"#, None),
            (
                r#"{"list": [{"it": null, "kind": "plain"}, null]}"#,
                Some(r#"{"list":[{"kind":"plain"},null]}"#),
            ),
            (
                r#"{"pair": ["null", {"kind": "plain", "it": null}]}"#,
                Some(r#"{"pair":["null",{"kind":"plain"}]}"#),
            ),
            (
                r#"{"item": {"kind": "deep", "item": {"kind": "deep", "item": null}}}"#,
                Some(r#"{"item":{"kind":"deep","item":{"kind":"deep"}}}"#),
            ),
            (r#"{"unknown": null}"#, None),
            ("null", None),
            ("[null]", None),
            (r#"{"a": null"#, None),
        ];
        for (text, expected) in table {
            assert_eq!(without_omitted(&schema, text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn hostile_texts_and_schemas_are_left_as_they_are() {
        let deep = r#"{"it":"#.repeat(10_000) + "null" + &"}".repeat(10_000);
        let circle = json!({
            "$defs": { "It": { "anyOf": [{ "$ref": "#/$defs/It" }, { "$ref": "#/$defs/Object" }] },
                "Object": { "type": "object", "properties": { "it": { "$ref": "#/$defs/It" } } } },
            "$ref": "#/$defs/It",
        });
        assert_eq!(without_omitted(&circle, &deep), None);
        assert_eq!(without_omitted(&circle, r#"{"it":{"it":null}}"#).as_deref(), Some(r#"{"it":{}}"#));
        let many = format!(r#"{{"it":[{}]}}"#, vec![r#"{"it":null}"#; 50_000].join(","));
        assert_eq!(without_omitted(&json!({ "properties": { "it": { "items": circle } } }), &many), None);
    }
}
