//! The text of a definition that is searched.

use std::collections::HashSet;

use serde_json::Value;

use super::words::terms;
use crate::content::MAX_SCHEMA_DEPTH;
use crate::model::ToolDefinition;

/// The number of fields.
pub(super) const FIELDS: usize = 3;

/// The terms of a field that are read. No tool is found more often for having more text.
const MAX_TERMS: usize = 300;

/// The distinct terms of a tool that are indexed, which bounds the index.
const MAX_DISTINCT_TERMS: usize = 100;

/// Returns the terms of a definition by field: the name, the description, and the parameters with their descriptions and values.
pub(super) fn fields(definition: &ToolDefinition) -> [Vec<String>; FIELDS] {
    let mut parameters = Vec::new();
    add_schema(definition.parameters(), MAX_SCHEMA_DEPTH, &mut parameters);
    let description = terms(definition.description().unwrap_or_default());
    let mut fields: [Vec<_>; FIELDS] = [
        terms(definition.name()).take(MAX_TERMS).collect(),
        description.take(MAX_TERMS).collect(),
        parameters,
    ];
    let mut distinct = HashSet::new();
    let mut is_indexed = |term: &String| {
        distinct.contains(term) || distinct.len() < MAX_DISTINCT_TERMS && distinct.insert(term.clone())
    };
    fields.iter_mut().for_each(|terms| terms.retain(&mut is_indexed));
    fields
}

/// Adds the names of properties, and the descriptions and values at every level.
fn add_schema(schema: &Value, depth: usize, found: &mut Vec<String>) {
    let add = |text: &str, found: &mut Vec<String>| {
        found.extend(terms(text).take(MAX_TERMS.saturating_sub(found.len())));
    };
    if depth == 0 || found.len() >= MAX_TERMS {
        return;
    }
    match schema {
        Value::Array(items) => items.iter().for_each(|item| add_schema(item, depth - 1, found)),
        Value::Object(members) => {
            for (keyword, value) in members {
                match (&**keyword, value) {
                    ("properties", Value::Object(properties)) => {
                        for (name, property) in properties {
                            add(name, found);
                            add_schema(property, depth - 1, found);
                        }
                    }
                    ("description" | "title" | "const", Value::String(text)) => add(text, found),
                    ("enum", Value::Array(values)) => {
                        values.iter().filter_map(Value::as_str).for_each(|value| add(value, found));
                    }
                    (_, Value::Array(_) | Value::Object(_)) => add_schema(value, depth - 1, found),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}
