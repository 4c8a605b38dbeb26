//! Schemas of Rust types, and the form of them that providers accept.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::keywords::is_closed_object;

pub(crate) fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().for_deserialize().with(|settings| settings.inline_subschemas = true)
}

/// Returns the schema of a type that holds all arguments of a tool, exactly as the type defines it, including the formats of
/// numbers.
pub(crate) fn arguments_schema<T: JsonSchema>() -> Value {
    let mut generator = settings().into_generator();
    let schema = generator.subschema_for::<T>().to_value();
    let mut definitions = generator.take_definitions(false);
    // The schema of a recursive type is a reference to a definition, but the top level must be the definition itself.
    let reference = schema.get("$ref").and_then(Value::as_str);
    let root = reference.and_then(|reference| definitions.get(reference.strip_prefix("#/$defs/")?));
    let mut root = root.cloned().unwrap_or(schema);
    if let Some(root) = root.as_object_mut().filter(|_| !definitions.is_empty()) {
        root.insert("$defs".into(), std::mem::take(&mut definitions).into());
    }
    root
}

/// Converts the schema of such a type to a form that providers accept and separates the documentation of the type.
///
/// A type without fields becomes an object without properties. A schema that is not an object is otherwise unchanged.
pub(crate) fn arguments_schema_for_providers(root: Value) -> (Value, Option<String>) {
    let root = for_providers(root);
    let Value::Object(mut root) = root else { return (root, None) };
    root.remove("title");
    let description = root.remove("description").and_then(|text| text.as_str().map(str::to_owned));
    if root.get("type").is_some_and(|kind| kind == "null") {
        root = Map::new();
        root.insert("type".into(), "object".into());
    }
    if root.get("type").is_none_or(|kind| kind != "object") {
        return (Value::Object(root), description);
    }
    let mut object = json!({
        "type": "object",
        "properties": root.remove("properties").unwrap_or_else(|| json!({})),
        "required": root.remove("required").unwrap_or_else(|| json!([])),
    });
    if let Some(object) = object.as_object_mut() {
        if is_closed_object(&root) {
            object.insert("additionalProperties".into(), false.into());
        }
        object.extend(root.into_iter().filter(|(keyword, _)| keyword != "type"));
    }
    (object, description)
}

/// Returns a schema with keywords that providers accept, at any depth.
pub(crate) fn for_providers(mut root: Value) -> Value {
    if let Ok(schema) = <&mut Schema>::try_from(&mut root) {
        RecursiveTransform(adapt_to_providers).transform(schema);
    }
    root
}

/// Rewrites one schema with keywords that providers accept.
fn adapt_to_providers(schema: &mut Schema) {
    drop_number_format(schema);
    // Providers accept `{}` for any value, but not `true`.
    if schema.as_bool() == Some(true) {
        schema.ensure_object();
    }
    // The Responses API refuses `oneOf`. Only one variant of a type can match a value, so `anyOf` is equivalent.
    if schema.get("anyOf").is_none()
        && let Some(choices) = schema.remove("oneOf")
    {
        schema.insert("anyOf".into(), choices);
    }
    // Providers require `items` for every list, even if a tuple has no further items.
    let prefix = schema.get("prefixItems").and_then(Value::as_array);
    if let Some(prefix) = prefix.filter(|_| schema.get("items").is_none()) {
        let items = json!({ "anyOf": prefix });
        schema.insert("items".into(), items);
    }
}

/// Removes formats such as `uint8`: they add nothing to the type and bounds, and providers refuse unknown formats.
fn drop_number_format(schema: &mut Schema) {
    let is_number_format = |format: &str| {
        let integer = format.strip_prefix("uint").or_else(|| format.strip_prefix("int"));
        matches!(format, "float" | "double")
            || integer.is_some_and(|bits| bits.is_empty() || bits.parse::<u8>().is_ok())
    };
    if schema.get("format").and_then(Value::as_str).is_some_and(is_number_format) {
        schema.remove("format");
    }
}
