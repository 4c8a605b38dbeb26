//! What a schema expects, in words for a model.

use serde_json::{Map, Value};

use super::CHOICES;
use super::fitting::number_format;
use crate::arguments::{Inspection, expectation};

impl Inspection<'_> {
    /// What is expected, in short.
    pub(super) fn expectation(&self, schema: &Value) -> String {
        match self.resolved(schema) {
            Value::Object(schema) => self.words(schema),
            _ => "a value".into(),
        }
    }

    pub(super) fn words(&self, schema: &Map<String, Value>) -> String {
        let format = schema.get("format").and_then(Value::as_str);
        if let Some(range) = format.and_then(number_format).and_then(expectation::range_of) {
            let is_optional = schema.get("type").is_some_and(Value::is_array);
            return if is_optional { range + " or null" } else { range };
        }
        let choices = CHOICES.into_iter().find_map(|keyword| schema.get(keyword)?.as_array());
        let is_named = ["type", "enum", "const"].iter().any(|keyword| schema.contains_key(*keyword));
        match choices.filter(|_| !is_named) {
            Some(choices) => {
                let mut words = Vec::new();
                for choice in choices.iter().map(|choice| self.resolved(choice)) {
                    let word = expectation::of_schema(choice);
                    if !words.contains(&word) {
                        words.push(word);
                    }
                }
                words.join(" or ")
            }
            None => {
                let mut schema = schema.clone();
                schema.retain(|keyword, _| !CHOICES.contains(&keyword.as_str()));
                expectation::of_schema(&Value::Object(schema))
            }
        }
    }

    /// What is expected, with all that a value of the right type must keep to.
    pub(super) fn constraints_of(&self, schema: &Map<String, Value>) -> String {
        let mut words = self.words(schema);
        // With a type, its limits stand in its words already.
        if schema.get("type").is_none() {
            let mut span = |from: &str, to: &str, unit: &str| match (schema.get(from), schema.get(to)) {
                (Some(from), Some(to)) => words.push_str(&format!(" of {from} to {to} {unit}")),
                (Some(from), None) => words.push_str(&format!(" of at least {from} {unit}")),
                (None, Some(to)) => words.push_str(&format!(" of at most {to} {unit}")),
                (None, None) => {}
            };
            span("minLength", "maxLength", "characters");
            span("minItems", "maxItems", "items");
            span("minProperties", "maxProperties", "entries");
            for (keyword, word) in [("minimum", "from"), ("maximum", "up to"), ("exclusiveMaximum", "below")]
            {
                if let Some(limit) = schema.get(keyword) {
                    words.push_str(&format!(" {word} {limit}"));
                }
            }
            if let Some(pattern) = schema.get("pattern").and_then(Value::as_str) {
                words.push_str(&format!(" that matches `{pattern}`"));
            }
        }
        for (keyword, word) in [("exclusiveMinimum", "above"), ("multipleOf", "that is a multiple of")] {
            if let Some(limit) = schema.get(keyword) {
                words.push_str(&format!(" {word} {limit}"));
            }
        }
        if schema.get("uniqueItems").is_some_and(|unique| *unique == Value::Bool(true)) {
            words.push_str(" without repetitions");
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
            words.push_str(&format!(" that keeps to {} of its schema", others.join(" and ")));
        }
        words
    }
}
