//! Parameters without a description.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::content::{MAX_SCHEMA_DEPTH, first_chars};
use crate::schema::target;

/// The maximum number of schemas that are searched in one definition, which may be untrusted.
const MAX_SCHEMAS: usize = 10_000;

/// Returns the paths of the parameters and their fields that have no description.
pub(super) fn undescribed_parameters(parameters: &Value) -> Vec<String> {
    let mut search = Search {
        root: parameters,
        found: Vec::new(),
        followed: BTreeSet::new(),
        enclosing: Vec::new(),
        remaining: MAX_SCHEMAS,
    };
    search.visit(parameters, "", false, 0);
    search.found
}

/// The maximum number of characters of a name in a path.
const MAX_NAME_CHARS: usize = 64;

struct Search<'s> {
    /// The schema that `$ref` refers to.
    root: &'s Value,
    found: Vec<String>,
    /// The targets of the references that were followed, which are reported once.
    followed: BTreeSet<*const Value>,
    /// The properties of the objects that enclose the current one.
    enclosing: Vec<&'s Value>,
    remaining: usize,
}

impl<'s> Search<'s> {
    fn visit(&mut self, schema: &'s Value, path: &str, is_choice: bool, depth: usize) {
        let Some(remaining) = self.remaining.checked_sub(1) else { return };
        self.remaining = remaining;
        let Some(schema) = schema.as_object().filter(|_| depth < MAX_SCHEMA_DEPTH) else { return };
        if let Some(target) = schema.get("$ref").and_then(|reference| self.follow(reference)) {
            self.visit(target, path, is_choice, depth + 1);
        }
        if let Some(all @ Value::Object(properties)) = schema.get("properties") {
            self.enclosing.push(all);
            // A variant that holds data is described by the description of the variant.
            let is_variant = is_choice && properties.len() == 1 && has_text(schema);
            for (name, property) in properties {
                if self.remaining == 0 {
                    break;
                }
                let name = first_chars(name, MAX_NAME_CHARS);
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                if !is_variant && !self.is_described(property, 0) {
                    self.found.push(path.clone());
                }
                self.visit(property, &path, false, depth + 1);
            }
            self.enclosing.pop();
        }
        // For a tuple, `items` repeats the schemas of `prefixItems`.
        let items = schema.get("items").filter(|_| !schema.contains_key("prefixItems"));
        for (inner, below) in [(items, "[]"), (schema.get("additionalProperties"), ".*")] {
            if let Some(inner) = inner {
                self.visit(inner, &format!("{path}{below}"), false, depth + 1);
            }
        }
        for (position, inner) in list(schema, "prefixItems").enumerate() {
            self.visit(inner, &format!("{path}[{position}]"), false, depth + 1);
        }
        for inner in choices(schema) {
            self.visit(inner, path, true, depth + 1);
        }
    }

    /// Returns `true` if the property, the schema that it refers to or one of its alternatives has a description, or if it
    /// can have only one value.
    fn is_described(&self, property: &Value, depth: usize) -> bool {
        let Some(property) = property.as_object().filter(|_| depth < MAX_SCHEMA_DEPTH) else { return false };
        let target = property.get("$ref").and_then(|reference| target(self.root, reference));
        has_text(property)
            || property.contains_key("const")
            || target.is_some_and(|target| self.is_described(target, depth + 1))
            || choices(property).filter_map(Value::as_object).any(has_text)
    }

    /// Resolves a reference, unless its target was visited already. A recursive type occurs twice: inline and as a
    /// definition.
    fn follow(&mut self, reference: &Value) -> Option<&'s Value> {
        let target =
            target(self.root, reference).filter(|target| self.followed.insert(*target as *const Value))?;
        let is_enclosing =
            target.get("properties").is_some_and(|properties| self.enclosing.contains(&properties));
        (!is_enclosing).then_some(target)
    }
}

fn has_text(schema: &Map<String, Value>) -> bool {
    schema.get("description").and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty())
}

fn choices(schema: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"].into_iter().flat_map(|keyword| list(schema, keyword))
}

fn list<'s>(schema: &'s Map<String, Value>, keyword: &str) -> impl Iterator<Item = &'s Value> + use<'s> {
    schema.get(keyword).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::arguments::private::ParameterKind;
    use crate::arguments::schemas::parameters_schema;
    use crate::arguments::{Parameter, ToolParameter};

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Guest {
        /// The full name.
        name: String,
        age: u8,
        #[serde(default)]
        friends: Vec<Guest>,
    }

    /// A shape.
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Shape {
        /// Round.
        Circle {
            /// In metres.
            radius: f64,
        },
        /// Has corners.
        Square { side: f64 },
        /// Nothing.
        Dot,
    }

    /// A colour.
    #[derive(Deserialize, JsonSchema)]
    #[serde(tag = "kind")]
    #[expect(dead_code, reason = "only its schema is used")]
    enum Colour {
        Grey { level: u8 },
    }

    fn paths<T: ToolParameter>(description: Option<&'static str>) -> Vec<String> {
        undescribed_parameters(&parameters_schema(&[Parameter::new::<T>(
            "it",
            description,
            true,
            ParameterKind::Other,
        )]))
    }

    #[test]
    fn finds_parameters_and_fields() {
        assert_eq!(paths::<u8>(Some("how many")), [""; 0]);
        assert_eq!(paths::<u8>(None), ["it"]);
        assert_eq!(paths::<u8>(Some(" ")), ["it"]);
        assert_eq!(paths::<BTreeMap<String, (u8, Option<Shape>)>>(Some("shapes")), ["it.*[1].Square.side"]);
        assert_eq!(paths::<Option<Shape>>(None), ["it.Square.side"]);
        assert_eq!(paths::<Colour>(None), ["it.level"]);
        let guests = paths::<Vec<Guest>>(Some("the guests"));
        assert_eq!(guests, ["it[].age", "it[].friends"]);
    }

    #[test]
    fn hostile_schemas_are_searched_in_bounded_time() {
        let (mut wide, mut deep) = (json!({}), json!({}));
        for _ in 0..14 {
            wide = json!({ "properties": { "a": wide.clone(), "b": wide } });
        }
        for _ in 0..100 {
            deep = json!({ "properties": { "a": deep } });
        }
        assert!(undescribed_parameters(&wide).len() <= MAX_SCHEMAS);
        assert_eq!(undescribed_parameters(&deep).len(), MAX_SCHEMA_DEPTH);
        let many = (0..20_000).map(|number| (format!("p{number}"), json!({})));
        let below = json!({ "properties": Map::from_iter(many) });
        let found = undescribed_parameters(&json!({ "properties": { "é".repeat(100_000): below } }));
        assert!(found.len() <= MAX_SCHEMAS && found.iter().all(|path| path.chars().count() < 100));
        let endless = json!({
            "properties": { "a": { "$ref": "#/$defs/A" }, "b": { "$ref": "#/nowhere" } },
            "$defs": { "A": { "$ref": "#/$defs/A" } },
        });
        assert_eq!(undescribed_parameters(&endless), ["a", "b"]);
    }
}
