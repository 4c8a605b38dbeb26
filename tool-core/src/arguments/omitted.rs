//! Removal of the `null`s that stand for omitted arguments. In strict mode, a model must provide every argument.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::arguments::{Members, duplicate_members};
use crate::schema::{Choices, is_nullable};

/// The maximum depth of a text.
const MAX_DEPTH: usize = 128;

/// Removes each `null` of a property that is optional and not nullable. Returns `None` if there is none, or if a member is
/// duplicate: the tool refuses such a text, of which nothing must be removed before.
#[inline]
pub(crate) fn without_omitted(schema: &Value, text: &str) -> Option<String> {
    if !text.contains("null") || !duplicate_members(text).is_empty() {
        return None;
    }
    match (Remover { choices: Choices::new(schema) }).remove(&[schema], text.trim_ascii(), 0)? {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    }
}

struct Remover<'s> {
    choices: Choices<'s>,
}

impl<'s> Remover<'s> {
    /// Processes a value that at least one of the schemas describes. Returns `None` if the text cannot be processed.
    #[inline]
    fn remove<'a>(&self, schemas: &[&'s Value], text: &'a str, depth: usize) -> Option<Cow<'a, str>> {
        if depth > MAX_DEPTH || !text.contains("null") {
            return Some(Cow::Borrowed(text));
        }
        match text.as_bytes().first()? {
            b'{' => self.remove_in_object(&self.choices.resolve(schemas.iter().copied())?, text, depth),
            b'[' => self.remove_in_list(&self.choices.resolve(schemas.iter().copied())?, text, depth),
            _ => Some(Cow::Borrowed(text)),
        }
    }

    #[inline]
    fn remove_in_object<'a>(
        &self,
        found: &[&'s Map<String, Value>],
        text: &'a str,
        depth: usize,
    ) -> Option<Cow<'a, str>> {
        let Members(members) = serde_json::from_str(text).ok()?;
        let value_of =
            |name: &str| members.iter().find(|(other, _)| other == name).map(|(_, value)| value.get());
        let found: Vec<_> = found.iter().filter(|schema| !is_other_variant(schema, value_of)).collect();
        let (mut written, mut is_unchanged) = (String::from("{"), true);
        for (name, value) in &members {
            let schemas: Vec<_> =
                found.iter().filter_map(|schema| schema.get("properties")?.get(&**name)).collect();
            if value.get() == "null" {
                let is_optional = found.iter().any(|schema| is_optional_property(schema, name));
                let is_nullable = self.choices.resolve(schemas.iter().copied())?.into_iter().any(is_nullable);
                if is_optional && !is_nullable {
                    is_unchanged = false;
                    continue;
                }
            }
            let value = self.remove(&schemas, value.get(), depth + 1)?;
            is_unchanged &= matches!(value, Cow::Borrowed(_));
            if written.len() > 1 {
                written.push(',');
            }
            written.push_str(&serde_json::to_string(name).ok()?);
            written.push(':');
            written.push_str(&value);
        }
        written.push('}');
        Some(if is_unchanged { Cow::Borrowed(text) } else { Cow::Owned(written) })
    }

    #[inline]
    fn remove_in_list<'a>(
        &self,
        found: &[&'s Map<String, Value>],
        text: &'a str,
        depth: usize,
    ) -> Option<Cow<'a, str>> {
        let values: Vec<&'a RawValue> = serde_json::from_str(text).ok()?;
        let values = values.into_iter().enumerate().map(|(index, value)| {
            let item = |schema: &&'s Map<String, Value>| {
                schema.get("prefixItems").and_then(|prefix| prefix.get(index)).or_else(|| schema.get("items"))
            };
            self.remove(&found.iter().filter_map(item).collect::<Vec<_>>(), value.get(), depth + 1)
        });
        let values: Vec<_> = values.collect::<Option<_>>()?;
        let is_unchanged = values.iter().all(|value| matches!(value, Cow::Borrowed(_)));
        Some(if is_unchanged { Cow::Borrowed(text) } else { Cow::Owned(format!("[{}]", values.join(","))) })
    }
}

/// Returns `true` if the schema has this property and does not require it.
#[inline]
fn is_optional_property(schema: &Map<String, Value>, name: &str) -> bool {
    let is_property = schema.get("properties").is_some_and(|properties| properties.get(name).is_some());
    let required = schema.get("required").and_then(Value::as_array);
    is_property && !required.is_some_and(|names| names.iter().any(|other| other == name))
}

/// Returns `true` if a property has another constant than this variant requires.
#[inline]
fn is_other_variant<'a>(schema: &Map<String, Value>, value_of: impl Fn(&str) -> Option<&'a str>) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().any(|(name, schema)| {
        let Some(constant) = schema.get("const").and_then(Value::as_str) else { return false };
        let given = value_of(name).and_then(|text| serde_json::from_str::<String>(text).ok());
        given.is_some_and(|given| given != constant)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn removes_nulls_of_optional_properties() {
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
            (r#"{"c": 1, "a": 1, "a": null}"#, None),
            (r#"{"a": null, "c": 1, "list": [{"kind": 1, "kind": 2}]}"#, None),
            ("null", None),
            ("[null]", None),
            (r#"{"a": null"#, None),
        ];
        for (text, expected) in table {
            assert_eq!(without_omitted(&schema, text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn hostile_texts_and_schemas_are_unchanged() {
        let deep = r#"{"it":"#.repeat(10_000) + "null" + &"}".repeat(10_000);
        let circle = json!({
            "$defs": { "It": { "anyOf": [{ "$ref": "#/$defs/It" }, { "$ref": "#/$defs/Object" }] },
                "Object": { "type": "object", "properties": { "it": { "$ref": "#/$defs/It" } } } },
            "$ref": "#/$defs/It",
        });
        assert_eq!(without_omitted(&circle, &deep), None);
        assert_eq!(without_omitted(&circle, r#"{"it":{"it":null}}"#).as_deref(), Some(r#"{"it":{}}"#));
        let many = format!(r#"{{"it":[{}]}}"#, vec![r#"{"it":null}"#; 10_000].join(","));
        assert_eq!(without_omitted(&json!({ "properties": { "it": { "items": circle } } }), &many), None);
    }
}
