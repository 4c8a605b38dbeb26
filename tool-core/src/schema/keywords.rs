//! Properties of single keywords and references.

use serde_json::{Map, Value};

/// Keywords, separated by spaces.
pub(super) struct Keywords(pub(super) &'static str);

impl Keywords {
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static str> {
        self.0.split(' ')
    }

    pub(super) fn contains(&self, keyword: &str) -> bool {
        self.iter().any(|one| one == keyword)
    }
}

/// The keywords that describe a value without constraining it. Beside a `$ref`, they change nothing.
const ANNOTATIONS: Keywords = Keywords(
    "$comment $defs $id $schema default definitions deprecated description example examples nullable readOnly title writeOnly",
);

/// The keywords that let other schemas list properties.
const COMPOSED: Keywords = Keywords(
    "patternProperties unevaluatedProperties $ref allOf anyOf oneOf if then else dependentSchemas dependencies",
);

pub(super) fn is_annotation(keyword: &str) -> bool {
    ANNOTATIONS.contains(keyword) || keyword.starts_with("x-")
}

/// Returns the schema that the value of a `$ref` refers to, a part of the same document.
pub(crate) fn target<'s>(root: &'s Value, reference: &Value) -> Option<&'s Value> {
    root.pointer(reference.as_str()?.strip_prefix('#')?)
}

/// Returns `true` if objects of this schema can have only the members that are listed under `properties`.
///
/// A schema that does not specify this counts as closed, unless it is composed of others, whose properties are not known
/// here.
pub(crate) fn is_closed_object(schema: &Map<String, Value>) -> bool {
    match schema.get("additionalProperties") {
        Some(more) => *more == Value::Bool(false) && !schema.contains_key("patternProperties"),
        None => !COMPOSED.iter().any(|keyword| schema.contains_key(keyword)),
    }
}
