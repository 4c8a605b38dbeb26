//! A first look at the schema of a tool's arguments, which may be a stranger's. What passes may still be refused when it is
//! compiled; that takes longer, and is done for what is called.

use rmcp::model::JsonObject;
use serde_json::Value;

/// How deep a schema may be, in levels of JSON. Beyond it begins what a message loses for being too deep.
const DEEPEST: usize = 100;

/// How large a schema may be as text, in bytes, about.
const LARGEST: usize = 1 << 20;

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Keywords with a schema, with a list of them, and with schemas by names.
const WITH_SCHEMA: [&str; 8] =
    ["additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"];
const WITH_LIST: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const WITH_NAMES: [&str; 4] = ["$defs", "definitions", "patternProperties", "properties"];

/// Why no arguments can be checked by the schema, as far as that is quickly seen. It does not recurse.
pub(super) fn flaw(root: &JsonObject) -> Option<String> {
    size(root).or_else(|| form(root))
}

fn size(root: &JsonObject) -> Option<String> {
    let mut open: Vec<_> = root.iter().map(|(name, value)| (name.len(), value, 2)).collect();
    let mut size = 0;
    while let Some((name, value, depth)) = open.pop() {
        size += name + 1;
        match value {
            Value::Array(_) | Value::Object(_) if depth > DEEPEST => {
                return Some(format!("its schema is nested deeper than {DEEPEST} levels"));
            }
            Value::String(text) => size += text.len(),
            Value::Array(values) => open.extend(values.iter().map(|value| (0, value, depth + 1))),
            Value::Object(members) => {
                open.extend(members.iter().map(|(name, value)| (name.len(), value, depth + 1)));
            }
            _ => {}
        }
        if size > LARGEST {
            let kilobytes = LARGEST >> 10;
            return Some(format!(
                "its schema is larger than {kilobytes} KiB, and every request would carry it"
            ));
        }
    }
    None
}

fn form(root: &JsonObject) -> Option<String> {
    let mut open = vec![root];
    while let Some(schema) = open.pop() {
        for (keyword, value) in schema {
            let name = keyword.as_str();
            let is_right = match name {
                "type" => is_type(value),
                "required" | "enum" => value.is_array(),
                "$ref" => is_there(root, value),
                _ if WITH_SCHEMA.contains(&name) => match value {
                    Value::Object(schema) => {
                        open.push(schema);
                        true
                    }
                    // So earlier drafts have it.
                    Value::Array(list) if name == "items" => take_all(list.iter(), &mut open),
                    value => value.is_boolean(),
                },
                _ if WITH_LIST.contains(&name) => {
                    value.as_array().is_some_and(|list| take_all(list.iter(), &mut open))
                }
                _ if WITH_NAMES.contains(&name) => {
                    value.as_object().is_some_and(|map| take_all(map.values(), &mut open))
                }
                _ => true,
            };
            if !is_right {
                let short: String = value.to_string().chars().take(100).collect();
                return Some(format!("its schema is no JSON Schema: `{name}` is {short}"));
            }
        }
    }
    None
}

fn is_type(value: &Value) -> bool {
    let is_one = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    is_one(value) || value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_one))
}

/// A reference leads to another place of the same schema.
fn is_there(root: &JsonObject, value: &Value) -> bool {
    let Some(rest) = value.as_str().and_then(|reference| reference.strip_prefix('#')) else { return false };
    let Some(rest) = rest.strip_prefix('/') else { return rest.is_empty() };
    let (first, rest) = rest.find('/').map_or((rest, ""), |place| rest.split_at(place));
    let first = first.replace("~1", "/").replace("~0", "~");
    root.get(&first).is_some_and(|value| value.pointer(rest).is_some())
}

/// Notes schemas to be looked at; one that is none is told of by `false`.
fn take_all<'s>(schemas: impl Iterator<Item = &'s Value>, open: &mut Vec<&'s JsonObject>) -> bool {
    let mut all = true;
    for schema in schemas {
        match schema {
            Value::Object(schema) => open.push(schema),
            schema => all &= schema.is_boolean(),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_schema_is_seen() {
        let table = [
            (json!({}), None),
            (json!({ "properties": { "type": { "type": ["string", "null"] }, "any": true } }), None),
            (json!({ "$defs": { "a/b": { "x": [{}] } }, "items": { "$ref": "#/$defs/a~1b/x/0" } }), None),
            (json!({ "allOf": [{ "$ref": "#" }], "items": [{}, true] }), None),
            (json!({ "properties": { "a": { "type": "strong" } } }), Some("`type` is \"strong\"")),
            (json!({ "properties": { "a": 7 } }), Some("`properties` is")),
            (json!({ "properties": [] }), Some("`properties` is")),
            (json!({ "anyOf": [{ "items": 7 }] }), Some("`items` is 7")),
            (json!({ "required": "a" }), Some("`required` is")),
            (json!({ "$ref": "#/nowhere" }), Some("`$ref` is \"#/nowhere\"")),
            (json!({ "$ref": "https://example.org/schema" }), Some("`$ref` is")),
            (json!({ "description": "x".repeat(2 << 20) }), Some("larger than 1024 KiB")),
        ];
        for (schema, expected) in table {
            let Value::Object(schema) = schema else { unreachable!() };
            match (flaw(&schema), expected) {
                (None, None) => {}
                (Some(flaw), Some(expected)) => assert!(flaw.contains(expected), "{flaw}"),
                (flaw, expected) => panic!("{flaw:?}, not {expected:?}"),
            }
        }
    }
}
