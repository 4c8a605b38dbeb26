//! JSON Schemas from Rust types, and what is made of schemas.

mod choices;
mod strict;

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

pub(crate) use self::choices::{Choices, is_nullable};
pub(crate) use self::strict::{Refusal, strict_form};

// Each program has it twice otherwise.
#[inline(never)]
pub(crate) fn generator() -> SchemaGenerator {
    settings().with_transform(RecursiveTransform(as_providers_take_it)).into_generator()
}

pub(crate) fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().for_deserialize().with(|settings| settings.inline_subschemas = true)
}

/// The schema of a type that holds all arguments of a tool, as its crate has it: the formats of numbers are still there.
pub(crate) fn of_arguments<T: JsonSchema>() -> Value {
    let mut generator = settings().into_generator();
    let schema = generator.subschema_for::<T>().to_value();
    let mut definitions = generator.take_definitions(false);
    // A type that holds itself stands in a definition; its root is wanted where the schema begins.
    let reference = schema.get("$ref").and_then(Value::as_str);
    let root = reference.and_then(|reference| definitions.get(reference.strip_prefix("#/$defs/")?));
    let mut root = root.cloned().unwrap_or(schema);
    if let Some(root) = root.as_object_mut().filter(|_| !definitions.is_empty()) {
        root.insert("$defs".into(), std::mem::take(&mut definitions).into());
    }
    root
}

/// The schema of such a type in the words that providers take, and what the type's own documentation says.
///
/// A type without any fields is an object without properties. What is no object stays as it is.
pub(crate) fn of_arguments_for_providers(mut root: Value) -> (Value, Option<String>) {
    if let Ok(schema) = <&mut Schema>::try_from(&mut root) {
        RecursiveTransform(as_providers_take_it).transform(schema);
    }
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
        if lists_all_names(&root) {
            object.insert("additionalProperties".into(), false.into());
        }
        object.extend(root.into_iter().filter(|(keyword, _)| keyword != "type"));
    }
    (object, description)
}

/// An object of this schema has no members but those that are listed under `properties`.
///
/// A schema that leaves it open is taken to mean that, unless it is put together of others: what names those
/// have is not known here.
pub(crate) fn lists_all_names(schema: &Map<String, Value>) -> bool {
    const COMPOSED: [&str; 11] = [
        "patternProperties",
        "unevaluatedProperties",
        "$ref",
        "allOf",
        "anyOf",
        "oneOf",
        "if",
        "then",
        "else",
        "dependentSchemas",
        "dependencies",
    ];
    match schema.get("additionalProperties") {
        Some(more) => *more == Value::Bool(false) && !schema.contains_key("patternProperties"),
        None => COMPOSED.iter().all(|keyword| !schema.contains_key(*keyword)),
    }
}

/// The same schema, in the words that providers take.
pub(crate) fn as_providers_take_it(schema: &mut Schema) {
    drop_number_format(schema);
    // "Anything" is `{}` to them, not `true`.
    if schema.as_bool() == Some(true) {
        schema.ensure_object();
    }
    // The Responses API refuses `oneOf`; of the variants of a type just one can fit, so both say the same.
    if schema.get("anyOf").is_none()
        && let Some(choices) = schema.remove("oneOf")
    {
        schema.insert("anyOf".into(), choices);
    }
    // A list has `items` to them, though nothing can stand behind those of a tuple.
    let prefix = schema.get("prefixItems").and_then(Value::as_array);
    if let Some(prefix) = prefix.filter(|_| schema.get("items").is_none()) {
        let items = json!({ "anyOf": prefix });
        schema.insert("items".into(), items);
    }
}

/// `format: "uint8"` and the like say nothing that type and bounds do not, and providers refuse unknown formats.
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
