//! Descriptions for the model of what a schema expects.

use serde_json::{Map, Value};

use super::CHOICES;
use super::keywords::integer_type;
use crate::arguments::{Inspection, explain};

impl Inspection<'_> {
    /// Describes briefly what the schema expects.
    pub(super) fn describe(&self, schema: &Value) -> String {
        match self.resolved(schema) {
            Value::Object(schema) => self.describe_object(schema),
            _ => "a value".into(),
        }
    }

    /// Describes briefly what the schema, which is an object, expects.
    pub(super) fn describe_object(&self, schema: &Map<String, Value>) -> String {
        let format = schema.get("format").and_then(Value::as_str);
        if let Some(range) = format.and_then(integer_type).and_then(explain::describe_range) {
            let is_optional = schema.get("type").is_some_and(Value::is_array);
            return if is_optional { range + " or null" } else { range };
        }
        let choices = CHOICES.into_iter().find_map(|keyword| schema.get(keyword)?.as_array());
        let is_typed = ["type", "enum", "const"].iter().any(|keyword| schema.contains_key(*keyword));
        match choices.filter(|_| !is_typed) {
            Some(choices) => {
                let mut descriptions = Vec::new();
                for choice in choices.iter().map(|choice| self.resolved(choice)) {
                    let description = explain::describe_schema(choice);
                    if !descriptions.contains(&description) {
                        descriptions.push(description);
                    }
                }
                descriptions.join(" or ")
            }
            None => {
                let mut schema = schema.clone();
                schema.retain(|keyword, _| !CHOICES.contains(&keyword.as_str()));
                explain::describe_schema(&Value::Object(schema))
            }
        }
    }

    /// Describes what the schema expects, with all constraints on a value of the right type.
    pub(super) fn describe_constraints(&self, schema: &Map<String, Value>) -> String {
        let mut text = self.describe_object(schema);
        // With a type, the description contains its limits already.
        if schema.get("type").is_none() {
            let mut span = |from: &str, to: &str, unit: &str| match (schema.get(from), schema.get(to)) {
                (Some(from), Some(to)) => text.push_str(&format!(" of {from} to {to} {unit}")),
                (Some(from), None) => text.push_str(&format!(" of at least {from} {unit}")),
                (None, Some(to)) => text.push_str(&format!(" of at most {to} {unit}")),
                (None, None) => {}
            };
            span("minLength", "maxLength", "characters");
            span("minItems", "maxItems", "items");
            span("minProperties", "maxProperties", "entries");
            for (keyword, phrase) in
                [("minimum", "from"), ("maximum", "up to"), ("exclusiveMaximum", "below")]
            {
                if let Some(limit) = schema.get(keyword) {
                    text.push_str(&format!(" {phrase} {limit}"));
                }
            }
            if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
                text.push_str(&format!(" that matches `{pattern}`"));
            }
        }
        for (keyword, phrase) in [("exclusiveMinimum", "above"), ("multipleOf", "that is a multiple of")] {
            if let Some(limit) = schema.get(keyword) {
                text.push_str(&format!(" {phrase} {limit}"));
            }
        }
        if schema.get("uniqueItems").is_some_and(|unique| *unique == Value::Bool(true)) {
            text.push_str(" without repetitions");
        }
        let others = [
            "anyOf",
            "oneOf",
            "not",
            "if",
            "contains",
            "propertyNames",
            "dependentRequired",
            "dependentSchemas",
            "dependencies",
            "unevaluatedProperties",
            "unevaluatedItems",
        ];
        let others: Vec<_> = others
            .into_iter()
            .filter(|keyword| schema.contains_key(*keyword))
            .map(|keyword| format!("`{keyword}`"))
            .collect();
        if !others.is_empty() {
            text.push_str(&format!(" that satisfies {} of its schema", others.join(" and ")));
        }
        text
    }
}
