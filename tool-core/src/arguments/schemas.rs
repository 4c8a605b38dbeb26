//! JSON Schemas of declared parameters.

use serde_json::{Map, Value, json};

use crate::arguments::Parameter;
use crate::schema::{for_providers, settings};

/// Returns the object schema of a tool's parameters, in order. Everything except recursive types is inlined.
pub(crate) fn parameters_schema(parameters: &[Parameter]) -> Value {
    let mut object = for_providers(exact_parameters_schema(parameters));
    for parameter in parameters {
        let property = object["properties"].get_mut(parameter.name).and_then(Value::as_object_mut);
        if let (Some(property), Some(description)) = (property, parameter.description) {
            property.insert("description".into(), description.into());
        }
    }
    object
}

/// Returns the schemas of parameters exactly as their types define them, including the formats of numbers.
pub(crate) fn exact_parameters_schema(parameters: &[Parameter]) -> Value {
    let mut generator = settings().into_generator();
    let mut properties = Map::new();
    for parameter in parameters {
        properties.insert(parameter.name.into(), (parameter.schema)(&mut generator).to_value());
    }
    let required: Vec<_> =
        parameters.iter().filter(|parameter| parameter.is_required).map(|parameter| parameter.name).collect();
    let mut object = json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    let definitions = generator.take_definitions(false);
    if !definitions.is_empty() {
        object["$defs"] = Value::Object(definitions);
    }
    object
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use schemars::JsonSchema;

    use super::*;
    use crate::arguments::ToolParameter;
    use crate::arguments::private::ParameterKind;

    fn schema_of<T: ToolParameter>() -> Value {
        parameters_schema(&[Parameter::new::<T>("it", None, true, ParameterKind::Other)])
    }

    fn property_of<T: ToolParameter>() -> Value {
        schema_of::<T>()["properties"]["it"].clone()
    }

    /// A place on Earth.
    #[derive(serde::Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Place {
        /// In degrees.
        latitude: f64,
        name: Option<String>,
    }

    #[derive(serde::Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Tree {
        children: Vec<Tree>,
    }

    #[derive(serde::Deserialize, JsonSchema)]
    enum Unit {
        Celsius,
        Fahrenheit,
    }

    #[test]
    fn schemas_of_plain_types() {
        assert_eq!(property_of::<f64>(), json!({ "type": "number" }));
        assert_eq!(property_of::<u8>(), json!({ "type": "integer", "minimum": 0, "maximum": 255 }));
        assert_eq!(property_of::<i64>(), json!({ "type": "integer" }));
        assert_eq!(property_of::<String>(), json!({ "type": "string" }));
        assert_eq!(property_of::<bool>(), json!({ "type": "boolean" }));
        assert_eq!(property_of::<Unit>(), json!({ "type": "string", "enum": ["Celsius", "Fahrenheit"] }));
        assert_eq!(property_of::<Option<String>>(), json!({ "type": ["string", "null"] }));
    }

    #[test]
    fn schemas_of_collections() {
        let numbers = json!({ "type": "array", "items": { "type": "number" } });
        assert_eq!(property_of::<Vec<f64>>(), numbers);
        let set = json!({ "type": "array", "uniqueItems": true, "items": { "type": "string" } });
        assert_eq!(property_of::<BTreeSet<String>>(), set);
        let map = json!({ "type": "object", "additionalProperties": { "type": "boolean" } });
        assert_eq!(property_of::<BTreeMap<String, bool>>(), map);
    }

    #[test]
    fn tuples_have_items_and_any_value_is_an_empty_schema() {
        let (byte, text) =
            (json!({ "type": "integer", "minimum": 0, "maximum": 255 }), json!({ "type": "string" }));
        let pair = property_of::<(u8, String)>();
        assert_eq!(pair["prefixItems"], json!([byte, text]));
        assert_eq!(pair["items"], json!({ "anyOf": [byte, text] }));
        assert_eq!(property_of::<Value>(), json!({}));
        assert_eq!(property_of::<Vec<Value>>()["items"], json!({}));
    }

    #[test]
    fn structs_are_inlined_with_their_docs() {
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
    fn only_recursive_types_are_referenced() {
        let schema = schema_of::<Tree>();
        let reference = &schema["properties"]["it"];
        let items = &reference["properties"]["children"]["items"]["$ref"];
        assert!(reference["$ref"] == "#/$defs/Tree" || *items == "#/$defs/Tree", "{schema}");
        assert_eq!(schema["$defs"]["Tree"]["properties"]["children"]["items"]["$ref"], "#/$defs/Tree");
    }

    #[test]
    fn parameters_keep_their_order_and_descriptions() {
        let schema = parameters_schema(&[
            Parameter::new::<Place>("to", Some("where to"), true, ParameterKind::Other),
            Parameter::new::<Place>("from", None, true, ParameterKind::Other),
            Parameter::new::<Option<u32>>("days", None, false, ParameterKind::Other),
        ]);
        let names: Vec<_> = schema["properties"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["to", "from", "days"]);
        assert_eq!(schema["required"], json!(["to", "from"]));
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["properties"]["to"]["description"], "where to");
        assert_eq!(schema["properties"]["from"]["description"], "A place on Earth.");
    }
}
