//! The keywords of all schemas that describe the same value.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::schema::keywords::is_annotation;

pub(super) const ANYTHING: &str = "strict mode does not support values of any type; specify a `type`";

/// The maximum number of keywords of a schema, and of schemas in `allOf`. It bounds the work for each alternative, to which the
/// keywords of the enclosing schemas apply.
const MAX_PARTS: usize = 100;

/// The keywords whose values are merged from all parts.
const MERGED: [&str; 4] = ["properties", "required", "additionalProperties", "allOf"];

type Read<T> = Result<Option<T>, String>;

/// A schema with those in its `allOf` and, if it is an alternative, the constraints of the enclosing schema.
#[derive(Clone, Default)]
pub(super) struct StrictNode<'s>(BTreeMap<&'s str, Vec<&'s Value>>);

impl<'s> StrictNode<'s> {
    /// Merges schemas of the same value.
    pub(super) fn merge(schemas: &[&'s Value]) -> Result<Self, String> {
        Self::default().with(schemas)
    }

    /// Returns an alternative of this node, whose constraints apply to it as well.
    pub(super) fn alternative(&self, schema: &'s Value) -> Result<Self, String> {
        let mut node = self.clone();
        node.0.retain(|keyword, _| !is_annotation(keyword) && !matches!(*keyword, "anyOf" | "oneOf"));
        node.with(&[schema])
    }

    fn with(mut self, schemas: &[&'s Value]) -> Result<Self, String> {
        let mut waiting: Vec<_> = schemas.iter().rev().copied().collect();
        let mut parts = waiting.len();
        while let Some(schema) = waiting.pop() {
            let schema = keywords(schema)?;
            for (keyword, value) in schema {
                let values = self.0.entry(keyword).or_default();
                let is_merged = is_annotation(keyword) || MERGED.contains(&&**keyword);
                if !is_merged && values.first().is_some_and(|first| *first != value) {
                    return Err(format!(
                        "`{keyword}` has different values that cannot be merged for strict mode; combine the schemas into one"
                    ));
                }
                values.push(value);
            }
            if let Some(all) = schema.get("allOf") {
                let all = all.as_array().ok_or("`allOf` must be a list of schemas")?;
                parts += all.len();
                if parts > MAX_PARTS {
                    return Err(format!("an `allOf` may contain at most {MAX_PARTS} schemas; merge them"));
                }
                waiting.extend(all.iter().rev());
            }
        }
        Ok(self)
    }

    /// Returns the first value of a keyword.
    pub(super) fn get(&self, keyword: &str) -> Option<&'s Value> {
        self.all(keyword).next()
    }

    /// Returns all values of a keyword.
    pub(super) fn all<'n>(&'n self, keyword: &str) -> impl Iterator<Item = &'s Value> + use<'n, 's> {
        self.0.get(keyword).into_iter().flatten().copied()
    }

    /// Reads the first value of a keyword.
    pub(super) fn get_as<T>(&self, keyword: &str, kind: &str, read: fn(&'s Value) -> Option<T>) -> Read<T> {
        let read = |value| read(value).ok_or_else(|| format!("`{keyword}` must be {kind}"));
        self.get(keyword).map(read).transpose()
    }

    pub(super) fn text(&self, keyword: &str) -> Read<&'s str> {
        self.get_as(keyword, "a string", Value::as_str)
    }

    /// Returns a length or number of items.
    pub(super) fn length(&self, keyword: &str) -> Read<u64> {
        self.get_as(keyword, "a non-negative integer", Value::as_u64)
    }

    /// Returns the first constraint beside a `$ref`.
    pub(super) fn constraint_beside_reference(&self) -> Option<&'s str> {
        self.0
            .keys()
            .copied()
            .find(|keyword| !matches!(*keyword, "$ref" | "allOf") && !is_annotation(keyword))
    }
}

/// Returns the keywords of a schema.
fn keywords(schema: &Value) -> Result<&Map<String, Value>, String> {
    match schema {
        Value::Object(schema) if schema.len() <= MAX_PARTS => Ok(schema),
        Value::Object(_) => Err(format!("a schema may have at most {MAX_PARTS} keywords")),
        Value::Bool(true) => Err(ANYTHING.into()),
        Value::Bool(false) => Err("no value is valid here; remove the schema".into()),
        _ => Err("a schema must be an object".into()),
    }
}
