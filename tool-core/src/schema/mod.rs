//! JSON Schemas from Rust types, and what is made of schemas.

mod choices;
mod strict;

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

pub(crate) use self::choices::{Choices, is_nullable};
pub(crate) use self::strict::{Refusal, strict_form};
use crate::tool::private::Parameter;

/// The object schema of a tool's parameters, in their order; everything is inlined but recursion.
pub(crate) fn of_parameters(parameters: &[Parameter]) -> Value {
    let mut generator = generator();
    let mut properties = Map::new();
    for parameter in parameters {
        let mut schema = (parameter.schema)(&mut generator);
        RecursiveTransform(as_providers_take_it).transform(&mut schema);
        if let Some(description) = parameter.description {
            schema.insert("description".into(), description.into());
        }
        properties.insert(parameter.name.into(), schema.to_value());
    }
    let required: Vec<_> = parameters.iter().filter(|one| one.is_required).map(|one| one.name).collect();
    let mut object = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let definitions = generator.take_definitions(true);
    if !definitions.is_empty() {
        object["$defs"] = Value::Object(definitions);
    }
    object
}

/// The schemas of parameters as their types' crates have them: the formats of numbers are still there.
#[inline]
pub(crate) fn of_parameters_as_they_are(parameters: &[Parameter]) -> Value {
    let mut generator = settings().into_generator();
    let mut properties = Map::new();
    for parameter in parameters {
        properties.insert(parameter.name.into(), (parameter.schema)(&mut generator).to_value());
    }
    let mut object = Map::new();
    object.insert("properties".into(), properties.into());
    object.insert("$defs".into(), generator.take_definitions(false).into());
    object.into()
}

/// The schema of one parameter, for reading what is wrong with an argument.
pub(crate) fn of_parameter(parameter: &Parameter) -> Value {
    let mut generator = generator();
    let mut schema = (parameter.schema)(&mut generator);
    let definitions = generator.take_definitions(true);
    if !definitions.is_empty() {
        schema.insert("$defs".into(), Value::Object(definitions));
    }
    schema.to_value()
}

// Each program has it twice otherwise.
#[inline(never)]
fn generator() -> SchemaGenerator {
    settings().with_transform(RecursiveTransform(as_providers_take_it)).into_generator()
}

fn settings() -> SchemaSettings {
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
fn as_providers_take_it(schema: &mut Schema) {
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use schemars::JsonSchema;

    use super::*;
    use crate::tool::private::ToolParameter;

    fn schema_of<T: ToolParameter>() -> Value {
        of_parameters(&[Parameter::new::<T>("it", None, true)])
    }

    fn property_of<T: ToolParameter>() -> Value {
        schema_of::<T>()["properties"]["it"].clone()
    }

    /// A place on Earth.
    #[derive(serde::Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Place {
        /// In degrees.
        latitude: f64,
        name: Option<String>,
    }

    #[derive(serde::Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Tree {
        children: Vec<Tree>,
    }

    #[derive(serde::Deserialize, JsonSchema)]
    enum Unit {
        Celsius,
        Fahrenheit,
    }

    #[test]
    fn plain_types() {
        assert_eq!(property_of::<f64>(), json!({ "type": "number" }));
        assert_eq!(property_of::<u8>(), json!({ "type": "integer", "minimum": 0, "maximum": 255 }));
        assert_eq!(property_of::<i64>(), json!({ "type": "integer" }));
        assert_eq!(property_of::<String>(), json!({ "type": "string" }));
        assert_eq!(property_of::<bool>(), json!({ "type": "boolean" }));
        assert_eq!(property_of::<Unit>(), json!({ "type": "string", "enum": ["Celsius", "Fahrenheit"] }));
        assert_eq!(property_of::<Option<String>>(), json!({ "type": ["string", "null"] }));
    }

    #[test]
    fn collections() {
        let numbers = json!({ "type": "array", "items": { "type": "number" } });
        assert_eq!(property_of::<Vec<f64>>(), numbers);
        let set = json!({ "type": "array", "uniqueItems": true, "items": { "type": "string" } });
        assert_eq!(property_of::<BTreeSet<String>>(), set);
        let map = json!({ "type": "object", "additionalProperties": { "type": "boolean" } });
        assert_eq!(property_of::<BTreeMap<String, bool>>(), map);
    }

    #[test]
    fn a_tuple_has_items_and_anything_is_an_object() {
        let (byte, text) =
            (json!({ "type": "integer", "minimum": 0, "maximum": 255 }), json!({ "type": "string" }));
        let pair = property_of::<(u8, String)>();
        assert_eq!(pair["prefixItems"], json!([byte, text]));
        assert_eq!(pair["items"], json!({ "anyOf": [byte, text] }));
        assert_eq!(property_of::<Value>(), json!({}));
        assert_eq!(property_of::<Vec<Value>>()["items"], json!({}));
    }

    #[test]
    fn a_struct_is_inlined_with_its_docs() {
        let schema = schema_of::<Place>();
        assert!(schema.get("$defs").is_none());
        let place = &schema["properties"]["it"];
        assert_eq!(place["description"], "A place on Earth.");
        assert_eq!(
            place["properties"]["latitude"],
            json!({ "description": "In degrees.", "type": "number" })
        );
        assert_eq!(place["required"], json!(["latitude"]));
    }

    #[test]
    fn only_recursion_refers() {
        let schema = schema_of::<Tree>();
        let reference = &schema["properties"]["it"];
        let items = &reference["properties"]["children"]["items"]["$ref"];
        assert!(reference["$ref"] == "#/$defs/Tree" || *items == "#/$defs/Tree", "{schema}");
        assert_eq!(schema["$defs"]["Tree"]["properties"]["children"]["items"]["$ref"], "#/$defs/Tree");
    }

    #[test]
    fn the_order_is_that_of_the_parameters_and_each_use_keeps_its_description() {
        let schema = of_parameters(&[
            Parameter::new::<Place>("to", Some("where to"), true),
            Parameter::new::<Place>("from", None, true),
            Parameter::new::<Option<u32>>("days", None, false),
        ]);
        let names: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["to", "from", "days"]);
        assert_eq!(schema["required"], json!(["to", "from"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["to"]["description"], "where to");
        assert_eq!(schema["properties"]["from"]["description"], "A place on Earth.");
    }
}
