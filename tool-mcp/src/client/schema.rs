//! A quick check of the schema of a tool's arguments, which is untrusted.
//!
//! A schema that passes may still fail to compile. Compilation takes longer and is deferred to the first call.

use rmcp::model::JsonObject;
use serde_json::Value;
use tool_core::tool::DynamicTool;

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Keywords whose value is a schema, a list of schemas, or a map of schemas.
const SCHEMA_KEYWORDS: [&str; 8] =
    ["additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"];
const LIST_KEYWORDS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const MAP_KEYWORDS: [&str; 4] = ["$defs", "definitions", "patternProperties", "properties"];

/// Checks the size and the form of a schema without recursion.
///
/// # Errors
///
/// Returns the reason why the schema cannot be used.
pub(super) fn check_schema(schema: &Value) -> Result<(), String> {
    DynamicTool::check_size(schema).map_err(|reason| format!("its schema cannot be used: {reason}"))?;
    schema.as_object().map_or(Ok(()), check_form)
}

fn check_form(root: &JsonObject) -> Result<(), String> {
    let mut open = vec![root];
    while let Some(schema) = open.pop() {
        for (keyword, value) in schema {
            let name = keyword.as_str();
            let is_valid = match name {
                "type" => is_type(value),
                "required" | "enum" => value.is_array(),
                "$ref" => is_resolvable(root, value),
                _ if SCHEMA_KEYWORDS.contains(&name) => match value {
                    Value::Object(schema) => {
                        open.push(schema);
                        true
                    }
                    // Earlier drafts allow a list.
                    Value::Array(list) if name == "items" => push_all(list.iter(), &mut open),
                    value => value.is_boolean(),
                },
                _ if LIST_KEYWORDS.contains(&name) => {
                    value.as_array().is_some_and(|list| push_all(list.iter(), &mut open))
                }
                _ if MAP_KEYWORDS.contains(&name) => {
                    value.as_object().is_some_and(|map| push_all(map.values(), &mut open))
                }
                _ => true,
            };
            if !is_valid {
                let short: String = value.to_string().chars().take(100).collect();
                return Err(format!("its schema is not a valid JSON Schema: `{name}` is {short}"));
            }
        }
    }
    Ok(())
}

fn is_type(value: &Value) -> bool {
    let is_name = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    is_name(value) || value.as_array().is_some_and(|list| !list.is_empty() && list.iter().all(is_name))
}

/// Returns `true` if the reference points to a location in the same schema.
fn is_resolvable(root: &JsonObject, reference: &Value) -> bool {
    let Some(pointer) = reference.as_str().and_then(|reference| reference.strip_prefix('#')) else {
        return false;
    };
    let Some(pointer) = pointer.strip_prefix('/') else { return pointer.is_empty() };
    let (first, rest) = pointer.find('/').map_or((pointer, ""), |index| pointer.split_at(index));
    let first = first.replace("~1", "/").replace("~0", "~");
    root.get(&first).is_some_and(|value| value.pointer(rest).is_some())
}

/// Adds the schemas to those that are still to be checked. Returns `false` if one of them is not a schema.
fn push_all<'s>(schemas: impl Iterator<Item = &'s Value>, open: &mut Vec<&'s JsonObject>) -> bool {
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
    fn rejects_values_that_are_not_schemas() {
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
            match (check_schema(&schema), expected) {
                (Ok(()), None) => {}
                (Err(reason), Some(expected)) => assert!(reason.contains(expected), "{reason}"),
                (result, expected) => panic!("{result:?}, not {expected:?}"),
            }
        }
    }
}
