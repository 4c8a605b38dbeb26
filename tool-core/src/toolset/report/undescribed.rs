//! The parameters that a model is told nothing of.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// How deep a schema is looked into.
const DEEPEST: usize = 64;

/// How many schemas are looked at in one definition: it may come from anywhere.
const MOST_SCHEMAS: usize = 10_000;

/// The paths of the parameters, and of their fields, that have no description.
pub(super) fn undescribed(parameters: &Value) -> Vec<String> {
    let mut search = Search {
        root: parameters,
        found: Vec::new(),
        entered: BTreeSet::new(),
        around: Vec::new(),
        left: MOST_SCHEMAS,
    };
    search.look_into(parameters, "", false, 0);
    search.found
}

/// How many characters of a name are shown in a path.
const LONGEST_NAME: usize = 64;

struct Search<'s> {
    /// What `$ref` refers to.
    root: &'s Value,
    found: Vec<String>,
    /// The references that were followed: what they refer to is told of once.
    entered: BTreeSet<&'s str>,
    /// The properties of the objects around the one that is looked at.
    around: Vec<&'s Value>,
    left: usize,
}

impl<'s> Search<'s> {
    fn look_into(&mut self, schema: &'s Value, path: &str, is_choice: bool, depth: usize) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        let Some(schema) = schema.as_object().filter(|_| depth < DEEPEST) else { return };
        if let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|name| self.enter(name)) {
            self.look_into(target, path, is_choice, depth + 1);
        }
        if let Some(all @ Value::Object(properties)) = schema.get("properties") {
            self.around.push(all);
            // A variant that holds data: the description is that of the variant.
            let is_variant = is_choice && properties.len() == 1 && has_text(schema);
            for (name, property) in properties {
                if self.left == 0 {
                    break;
                }
                let name: String = name.chars().take(LONGEST_NAME).collect();
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                if !is_variant && !self.is_described(property, 0) {
                    self.found.push(path.clone());
                }
                self.look_into(property, &path, false, depth + 1);
            }
            self.around.pop();
        }
        // The items of a tuple are those in front of it once more.
        let items = schema.get("items").filter(|_| !schema.contains_key("prefixItems"));
        for (inner, below) in [(items, "[]"), (schema.get("additionalProperties"), ".*")] {
            if let Some(inner) = inner {
                self.look_into(inner, &format!("{path}{below}"), false, depth + 1);
            }
        }
        for (position, inner) in list(schema, "prefixItems").enumerate() {
            self.look_into(inner, &format!("{path}[{position}]"), false, depth + 1);
        }
        for inner in choices(schema) {
            self.look_into(inner, path, true, depth + 1);
        }
    }

    /// The property, or what it refers to, or what it is a choice of, has a description; or there is only one
    /// value for it.
    fn is_described(&self, property: &Value, depth: usize) -> bool {
        let Some(property) = property.as_object().filter(|_| depth < DEEPEST) else { return false };
        let target = property.get("$ref").and_then(Value::as_str).and_then(|name| self.target(name));
        has_text(property)
            || property.contains_key("const")
            || target.is_some_and(|target| self.is_described(target, depth + 1))
            || choices(property).filter_map(Value::as_object).any(has_text)
    }

    /// What a reference refers to, unless it was looked at already. A type that holds itself is there twice:
    /// as it is, and under its name.
    fn enter(&mut self, reference: &'s str) -> Option<&'s Value> {
        let target = self.target(reference).filter(|_| self.entered.insert(reference))?;
        let is_around = target.get("properties").is_some_and(|properties| self.around.contains(&properties));
        (!is_around).then_some(target)
    }

    fn target(&self, reference: &str) -> Option<&'s Value> {
        self.root.pointer(reference.strip_prefix('#')?)
    }
}

fn has_text(schema: &Map<String, Value>) -> bool {
    schema.get("description").and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty())
}

fn choices(schema: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    ["anyOf", "oneOf", "allOf"].into_iter().flat_map(|word| list(schema, word))
}

fn list<'s>(schema: &'s Map<String, Value>, word: &str) -> impl Iterator<Item = &'s Value> + use<'s> {
    schema.get(word).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::arguments::schemas::of_parameters;
    use crate::arguments::{Parameter, ToolParameter};

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Guest {
        /// The full name.
        name: String,
        age: u8,
        #[serde(default)]
        friends: Vec<Guest>,
    }

    /// A shape.
    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
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
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Colour {
        Grey { level: u8 },
    }

    fn paths<T: ToolParameter>(description: Option<&'static str>) -> Vec<String> {
        undescribed(&of_parameters(&[Parameter::new::<T>("it", description, true)]))
    }

    #[test]
    fn parameters_and_their_fields() {
        assert_eq!(paths::<u8>(Some("how many")), [""; 0]);
        assert_eq!(paths::<u8>(None), ["it"]);
        assert_eq!(paths::<u8>(Some(" ")), ["it"]);
        assert_eq!(paths::<BTreeMap<String, (u8, Option<Shape>)>>(Some("shapes")), ["it.*[1].Square.side"]);
        assert_eq!(paths::<Option<Shape>>(None), ["it.Square.side"]);
        assert_eq!(paths::<Colour>(None), ["it.level"]);
        let guests = paths::<Vec<Guest>>(Some("who comes"));
        assert_eq!(guests, ["it[].age", "it[].friends"]);
    }

    #[test]
    fn hostile_schemas_are_looked_at_in_bounded_time() {
        let (mut wide, mut deep) = (json!({}), json!({}));
        for _ in 0..14 {
            wide = json!({ "properties": { "a": wide.clone(), "b": wide } });
        }
        for _ in 0..100 {
            deep = json!({ "properties": { "a": deep } });
        }
        assert!(undescribed(&wide).len() <= MOST_SCHEMAS);
        assert_eq!(undescribed(&deep).len(), DEEPEST);
        let many = (0..100_000).map(|number| (format!("p{number}"), json!({})));
        let below = json!({ "properties": Map::from_iter(many) });
        let found = undescribed(&json!({ "properties": { "é".repeat(100_000): below } }));
        assert!(found.len() <= MOST_SCHEMAS && found.iter().all(|path| path.chars().count() < 100));
        let endless = json!({
            "properties": { "a": { "$ref": "#/$defs/A" }, "b": { "$ref": "#/nowhere" } },
            "$defs": { "A": { "$ref": "#/$defs/A" } },
        });
        assert_eq!(undescribed(&endless), ["a", "b"]);
    }
}
