//! Schemas that are merged from all parts that describe the same value.

use serde_json::{Map, Value};

/// The maximum number of schemas that are merged into one.
const MAX_PARTS: usize = 100;

/// The keywords that constrain a value. All others are annotations or combine schemas.
const CONSTRAINTS: [&str; 40] = [
    "$ref",
    "type",
    "const",
    "enum",
    "properties",
    "required",
    "additionalProperties",
    "patternProperties",
    "unevaluatedProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "minContains",
    "maxContains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "contentEncoding",
    "contentMediaType",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "not",
    "if",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "$dynamicRef",
    "$recursiveRef",
];

/// The keywords of objects that are merged from all parts.
const MERGED: [&str; 3] = ["properties", "required", "additionalProperties"];

/// A schema with those in its `allOf` and, if it is an alternative, the constraints of the enclosing schema.
#[derive(Clone)]
pub(super) struct Node<'s> {
    parts: Vec<&'s Map<String, Value>>,
    /// The number of parts from enclosing schemas. Only their constraints apply.
    enclosing: usize,
}

impl<'s> Node<'s> {
    /// Creates a node from a single schema.
    pub(super) fn new(schema: &'s Map<String, Value>) -> Result<Self, String> {
        Self::with_enclosing(Vec::new(), schema)
    }

    /// Creates a node for an alternative of this node, whose constraints apply to it as well.
    pub(super) fn alternative(&self, schema: &'s Map<String, Value>) -> Result<Self, String> {
        let enclosing = if self.has_constraints() { self.parts.clone() } else { Vec::new() };
        Self::with_enclosing(enclosing, schema)
    }

    /// Creates a node from several schemas of the same value.
    pub(super) fn merged(schemas: &[&'s Map<String, Value>]) -> Result<Self, String> {
        let mut node = Self { parts: Vec::new(), enclosing: 0 };
        for schema in schemas {
            node.push(schema)?;
        }
        node.refuse_conflicts()?;
        Ok(node)
    }

    fn with_enclosing(
        enclosing: Vec<&'s Map<String, Value>>,
        schema: &'s Map<String, Value>,
    ) -> Result<Self, String> {
        let mut node = Self { enclosing: enclosing.len(), parts: enclosing };
        node.push(schema)?;
        node.refuse_conflicts()?;
        Ok(node)
    }

    /// Adds a schema and those in its `allOf`.
    fn push(&mut self, schema: &'s Map<String, Value>) -> Result<(), String> {
        let mut pending = vec![schema];
        while let Some(schema) = pending.pop() {
            self.parts.push(schema);
            let Some(all) = schema.get("allOf") else { continue };
            let all = all.as_array().ok_or("`allOf` must be a list of schemas")?;
            if self.parts.len() + pending.len() + all.len() > MAX_PARTS {
                return Err(format!("an `allOf` may contain at most {MAX_PARTS} schemas; merge them"));
            }
            for schema in all.iter().rev() {
                pending.push(schema.as_object().ok_or("`allOf` must be a list of schemas that are objects")?);
            }
        }
        Ok(())
    }

    /// Fails if keywords that cannot be merged have different values.
    fn refuse_conflicts(&self) -> Result<(), String> {
        if self.parts.len() < 2 {
            return Ok(());
        }
        for keyword in CONSTRAINTS.iter().filter(|keyword| !MERGED.contains(keyword)) {
            // The enclosing parts were compared with each other before.
            let first = self.parts.iter().find_map(|part| part.get(*keyword));
            let mut more = self.parts[self.enclosing..].iter().filter_map(|part| part.get(*keyword));
            if more.any(|other| first.is_some_and(|first| !std::ptr::eq(first, other) && first != other)) {
                return Err(format!(
                    "`{keyword}` has different values that cannot be merged for strict mode; combine the schemas into one"
                ));
            }
        }
        let has_reference = self.parts.iter().any(|part| part.contains_key("$ref"));
        let constrained = self.parts.iter().filter(|part| has_constraints(part)).count();
        if has_reference && constrained > 1 {
            return Err(
                "a `$ref` cannot be merged with other constraints in strict mode; inline the definition"
                    .into(),
            );
        }
        Ok(())
    }

    /// Returns the first value of a keyword.
    pub(super) fn get(&self, keyword: &str) -> Option<&'s Value> {
        self.all(keyword).next()
    }

    /// Returns all values of a keyword.
    pub(super) fn all<'n>(&'n self, keyword: &str) -> impl Iterator<Item = &'s Value> + use<'n, 's> {
        let skipped = if CONSTRAINTS.contains(&keyword) { 0 } else { self.enclosing };
        let keyword = keyword.to_owned();
        self.parts[skipped..].iter().filter_map(move |part| part.get(&keyword))
    }

    /// Returns `true` if the schema constrains values itself, and not only through alternatives.
    pub(super) fn has_constraints(&self) -> bool {
        self.parts.iter().any(|part| has_constraints(part))
    }

    /// Returns `true` if the schema has the keyword `nullable` of OpenAPI.
    pub(super) fn is_nullable(&self) -> bool {
        self.get("nullable") == Some(&Value::Bool(true))
    }

    /// Returns the keywords of all parts that constrain values.
    pub(super) fn constraints(&self) -> impl Iterator<Item = &'static str> + use<'_, 's> {
        CONSTRAINTS.into_iter().filter(|keyword| self.get(keyword).is_some())
    }
}

fn has_constraints(schema: &Map<String, Value>) -> bool {
    CONSTRAINTS.iter().any(|keyword| schema.contains_key(*keyword))
}
