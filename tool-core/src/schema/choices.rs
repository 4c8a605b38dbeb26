//! Resolution of references and alternatives in schemas.

use std::cell::Cell;

use serde_json::{Map, Value};

/// The maximum number of schemas that are visited for one text.
const MAX_VISITS: usize = 100_000;

/// Finds the schemas behind references and alternatives. Its work is bounded, because the schemas may be untrusted.
pub(crate) struct Choices<'s> {
    /// The schema that `$ref` refers to.
    root: &'s Value,
    remaining: Cell<usize>,
}

impl<'s> Choices<'s> {
    pub(crate) fn new(root: &'s Value) -> Self {
        Self { root, remaining: Cell::new(MAX_VISITS) }
    }

    /// Returns the schemas that describe a value themselves, among these and all schemas that they refer to, or `None` if
    /// there are too many.
    pub(crate) fn resolve(
        &self,
        schemas: impl IntoIterator<Item = &'s Value>,
    ) -> Option<Vec<&'s Map<String, Value>>> {
        let mut waiting: Vec<_> = schemas.into_iter().collect();
        // Visits the schemas in the order in which they are written.
        waiting.reverse();
        let (mut found, mut followed) = (Vec::new(), Vec::new());
        while let Some(schema) = waiting.pop() {
            self.remaining.set(self.remaining.get().checked_sub(1)?);
            let Some(schema) = schema.as_object() else { continue };
            if let Some(reference) = schema.get("$ref") {
                // Each reference is followed once, which ends cycles. There are only a few, so a linear search is enough.
                if !followed.contains(&reference) {
                    self.remaining.set(self.remaining.get().checked_sub(followed.len())?);
                    followed.push(reference);
                    waiting.extend(super::target(self.root, reference));
                }
                continue;
            }
            let lists =
                ["allOf", "oneOf", "anyOf"].iter().filter_map(|keyword| schema.get(*keyword)?.as_array());
            waiting.extend(lists.flat_map(|list| list.iter().rev()));
            found.push(schema);
        }
        Some(found)
    }

    /// Returns `true` if one of the schemas explicitly allows `null`.
    pub(crate) fn allow_null(&self, schemas: impl IntoIterator<Item = &'s Value>) -> bool {
        self.resolve(schemas).is_some_and(|found| found.into_iter().any(is_nullable))
    }
}

/// Returns `true` if the schema itself allows `null`.
pub(crate) fn is_nullable(schema: &Map<String, Value>) -> bool {
    if schema.get("nullable") == Some(&Value::Bool(true)) || schema.get("const") == Some(&Value::Null) {
        return true;
    }
    let is_listed = schema.get("enum").and_then(Value::as_array).map(|list| list.contains(&Value::Null));
    match schema.get("type") {
        Some(Value::String(name)) => name == "null",
        Some(Value::Array(names)) => names.iter().any(|name| name == "null") && is_listed != Some(false),
        _ => is_listed.unwrap_or(false),
    }
}
