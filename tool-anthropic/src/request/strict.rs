//! Schemas that the API enforces: <https://platform.claude.com/docs/en/build-with-claude/structured-outputs>.
//!
//! `tool-core` has the strict form of a schema. The API enforces less of it than others, and limits the schemas of a request.

use serde_json::{Map, Value};

/// The keywords that the API rejects in an enforced schema. The model reads them in the description instead.
const UNSUPPORTED: [&str; 11] = [
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
];

/// The keywords whose values are lists or maps of schemas. That of `items` is one.
const LISTS: [&str; 3] = ["anyOf", "oneOf", "allOf"];
const MAPS: [&str; 2] = ["properties", "$defs"];

const MAX_STRICT_TOOLS: usize = 20;
const MAX_OPTIONAL: usize = 24;
const MAX_UNIONS: usize = 16;

/// What remains of the limits of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Budget {
    tools: usize,
    used: Cost,
}

/// What a schema uses of the limits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cost {
    optional: usize,
    unions: usize,
    is_recursive: bool,
}

impl Budget {
    /// Creates the budget that remains besides the schema of the reply.
    pub(super) fn besides(format: Cost) -> Self {
        Self { tools: 0, used: format }
    }

    /// Takes what a tool needs.
    ///
    /// # Errors
    ///
    /// Returns the limit that it would exceed.
    pub(super) fn take(&mut self, cost: Cost) -> Result<(), &'static str> {
        let optional = self.used.optional + cost.optional;
        let unions = self.used.unions + cost.unions;
        match () {
            () if cost.is_recursive => Err("schemas without recursion"),
            () if self.tools == MAX_STRICT_TOOLS => Err("20 strict tools"),
            () if optional > MAX_OPTIONAL => Err("24 optional parameters in strict schemas"),
            () if unions > MAX_UNIONS => Err("16 parameters with unions in strict schemas"),
            () => {
                (self.tools, self.used) = (self.tools + 1, Cost { optional, unions, is_recursive: false });
                Ok(())
            }
        }
    }
}

impl Cost {
    pub(super) const NONE: Self = Self { optional: 0, unions: 0, is_recursive: false };

    /// Counts what a schema uses. The schema has the strict form, whose references lead to `$defs`.
    pub(super) fn of_schema(schema: &Value) -> Self {
        let mut cost = Self::default();
        cost.add(schema);
        cost.is_recursive = is_recursive(schema);
        cost
    }

    fn add(&mut self, schema: &Value) {
        let Value::Object(members) = schema else { return };
        let is_union = members.get("type").is_some_and(Value::is_array)
            || members.contains_key("anyOf")
            || members.contains_key("oneOf");
        self.unions += usize::from(is_union);
        if let Some(properties) = members.get("properties").and_then(Value::as_object) {
            let required = members.get("required").and_then(Value::as_array).map_or(0, Vec::len);
            self.optional += properties.len().saturating_sub(required);
        }
        for_each_schema(members, &mut |schema| self.add(schema));
    }
}

/// Returns the schema as the API enforces it.
pub(super) fn enforceable(schema: &Value) -> Value {
    let Value::Object(members) = schema else { return schema.clone() };
    let mut kept = Map::new();
    let mut moved = Vec::new();
    for (name, value) in members {
        let name = name.as_str();
        if UNSUPPORTED.contains(&name) {
            moved.push(format!("{name}: {value}"));
            continue;
        }
        let value = match value {
            Value::Array(list) if LISTS.contains(&name) => list.iter().map(enforceable).collect(),
            Value::Object(map) if MAPS.contains(&name) => map
                .iter()
                .map(|(name, schema)| (name.clone(), enforceable(schema)))
                .collect::<Map<_, _>>()
                .into(),
            value if name == "items" => enforceable(value),
            value => value.clone(),
        };
        kept.insert(name.to_owned(), value);
    }
    if !moved.is_empty() {
        let moved = moved.join(", ");
        let description = match kept.get("description").and_then(Value::as_str) {
            Some(text) => format!("{text} ({moved})"),
            None => moved,
        };
        kept.insert("description".into(), description.into());
    }
    Value::Object(kept)
}

fn for_each_schema<'a>(members: &'a Map<String, Value>, visit: &mut dyn FnMut(&'a Value)) {
    for (name, value) in members {
        let name = name.as_str();
        match value {
            Value::Array(list) if LISTS.contains(&name) => list.iter().for_each(&mut *visit),
            Value::Object(map) if MAPS.contains(&name) => map.values().for_each(&mut *visit),
            value if name == "items" => visit(value),
            _ => {}
        }
    }
}

/// Returns `true` if a reference leads to a schema that contains it.
fn is_recursive(root: &Value) -> bool {
    let definitions = root.get("$defs").and_then(Value::as_object);
    // The references of each definition; `#` is the root.
    let names = definitions.into_iter().flatten().map(|(name, schema)| (name.as_str(), references(schema)));
    let mut edges: Vec<(&str, Vec<&str>)> = names.collect();
    // What leads only to definitions that are known to end, ends.
    loop {
        let before = edges.len();
        let open: Vec<&str> = edges.iter().map(|(name, _)| *name).collect();
        edges.retain(|(_, targets)| targets.iter().any(|target| open.contains(target) || *target == "#"));
        if edges.len() == before {
            break;
        }
    }
    !edges.is_empty() || references(root).contains(&"#")
}

fn references(schema: &Value) -> Vec<&str> {
    let Value::Object(members) = schema else { return Vec::new() };
    let own = members.get("$ref").and_then(Value::as_str);
    let mut found: Vec<&str> = own.map(|target| target.trim_start_matches("#/$defs/")).into_iter().collect();
    for_each_schema(members, &mut |schema| found.extend(references(schema)));
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bounds_are_moved_to_descriptions() {
        let schema = json!({
            "type": "object",
            "properties": {
                "hours": { "type": "integer", "minimum": 1, "maximum": 48, "description": "how far" },
                "ports": { "type": "array", "items": { "type": "string", "pattern": "^[A-Z]" }, "minItems": 1 },
                "minimum": { "anyOf": [{ "type": "number", "minimum": 0.5 }, { "type": "null" }] },
            },
            "required": ["hours", "ports", "minimum"],
            "additionalProperties": false,
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "hours": { "type": "integer", "description": "how far (minimum: 1, maximum: 48)" },
                "ports": { "type": "array", "items": { "type": "string", "description": "pattern: \"^[A-Z]\"" }, "description": "minItems: 1" },
                "minimum": { "anyOf": [{ "type": "number", "description": "minimum: 0.5" }, { "type": "null" }] },
            },
            "required": ["hours", "ports", "minimum"],
            "additionalProperties": false,
        });
        assert_eq!(enforceable(&schema), expected);
    }

    #[test]
    fn counts_unions_and_optional_parameters() {
        let schema = json!({
            "properties": {
                "a": { "type": ["string", "null"] },
                "b": { "items": { "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/c" }] } },
            },
            "required": ["a"],
            "$defs": { "c": { "type": "object", "properties": { "d": { "type": ["null", "number"] } }, "required": [] } },
        });
        assert_eq!(Cost::of_schema(&schema), Cost { optional: 2, unions: 3, is_recursive: false });
    }

    #[test]
    fn finds_recursion() {
        let table = [
            (json!({ "properties": { "a": { "$ref": "#" } } }), true),
            (json!({ "$ref": "#/$defs/a", "$defs": { "a": { "items": { "$ref": "#/$defs/a" } } } }), true),
            (
                json!({ "$defs": { "a": { "items": { "$ref": "#/$defs/b" } }, "b": { "items": { "$ref": "#/$defs/a" } } } }),
                true,
            ),
            (
                json!({ "$defs": { "a": { "items": { "$ref": "#/$defs/b" } }, "b": { "type": "string" } } }),
                false,
            ),
            (json!({ "type": "object" }), false),
        ];
        for (schema, expected) in table {
            assert_eq!(is_recursive(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn a_budget_names_the_limit() {
        let unions = |unions| Cost { unions, ..Cost::default() };
        let mut budget = Budget::besides(unions(10));
        assert_eq!(budget.take(unions(6)), Ok(()));
        assert_eq!(budget.take(unions(1)), Err("16 parameters with unions in strict schemas"));
        assert_eq!(
            budget.take(Cost { optional: 25, ..Cost::default() }),
            Err("24 optional parameters in strict schemas")
        );
        assert_eq!(
            budget.take(Cost { is_recursive: true, ..Cost::default() }),
            Err("schemas without recursion")
        );
        for _ in 1..20 {
            assert_eq!(budget.take(Cost::default()), Ok(()));
        }
        assert_eq!(budget.take(Cost::default()), Err("20 strict tools"));
    }
}
