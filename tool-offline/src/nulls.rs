//! Decides where a JSON Schema allows `null`, and fills in required nulls.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// The depth to which nested objects are filled.
const MAX_DEPTH: usize = 6;
/// The number of properties of an object that are filled.
const MAX_PROPERTIES: usize = 64;
/// The number of subschemas that are visited to resolve one schema.
const MAX_SUBSCHEMAS: usize = 10_000;

/// Inserts `null` for every required property that may be `null` and has no value.
pub(crate) fn fill_with_nulls(schema: &Value, arguments: &mut Value) {
    fill_object(schema, schema, arguments, 0);
}

fn fill_object(root: &Value, schema: &Value, object: &mut Value, depth: usize) {
    let (Value::Object(object), true) = (object, depth <= MAX_DEPTH) else { return };
    for keywords in alternatives(root, schema) {
        let properties = keywords.get("properties").and_then(Value::as_object);
        let required = keywords.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (name, property) in properties.into_iter().flatten().take(MAX_PROPERTIES) {
            match object.get_mut(name) {
                Some(inner) => fill_object(root, property, inner, depth + 1),
                None if required.iter().any(|one| one == name) && admits_null(root, property) => {
                    object.insert(name.clone(), Value::Null);
                }
                None => {}
            }
        }
    }
}

/// Returns the schemas that constrain a value: this one, its alternatives and what they refer to.
fn alternatives<'s>(root: &'s Value, schema: &'s Value) -> Vec<&'s Map<String, Value>> {
    let (mut pending, mut found, mut followed) = (vec![schema], Vec::new(), HashSet::new());
    while let Some(schema) = pending.pop() {
        let Some(keywords) = schema.as_object() else { continue };
        if found.len() + followed.len() >= MAX_SUBSCHEMAS {
            break;
        }
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            // A reference is followed once, so cycles end.
            if followed.insert(reference) {
                pending.extend(reference.strip_prefix('#').and_then(|path| root.pointer(path)));
            }
            continue;
        }
        let lists =
            ["allOf", "oneOf", "anyOf"].iter().filter_map(|keyword| keywords.get(*keyword)?.as_array());
        pending.extend(lists.flat_map(|list| list.iter().rev()));
        found.push(keywords);
    }
    found
}

/// Returns `true` if one of the alternatives of a schema allows `null` explicitly.
pub(crate) fn admits_null(root: &Value, schema: &Value) -> bool {
    alternatives(root, schema).into_iter().any(|keywords| {
        let is_listed =
            keywords.get("enum").and_then(Value::as_array).map(|list| list.contains(&Value::Null));
        let has_null_type = match keywords.get("type") {
            Some(Value::String(name)) => name == "null",
            Some(Value::Array(names)) => names.iter().any(|name| name == "null") && is_listed != Some(false),
            _ => is_listed == Some(true),
        };
        has_null_type
            || keywords.get("nullable") == Some(&Value::Bool(true))
            || keywords.get("const") == Some(&Value::Null)
    })
}
