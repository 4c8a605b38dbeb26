//! A JSON Schema, parsed once, for the walks that read a value and its schema side by side.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::keywords::{Keywords, is_annotation, is_closed_object, target};
use super::limits::{Limits, Pattern, has_own_limit};
use super::number::integer_range;

/// The maximum number of references that are followed one after another.
const MAX_REFERENCES: usize = 128;

/// The maximum number of alternatives that are visited to resolve nested ones. Those beyond it remain nested.
const MAX_VISITS: usize = 1_000_000;

/// The maximum number of schemas. Those beyond it allow everything.
const MAX_NODES: usize = 200_000;

/// The keywords that a [`ShapeNode`] represents. All others are in [`ShapeNode::others`].
const REPRESENTED: Keywords = Keywords(
    "$ref type enum const allOf anyOf properties patternProperties additionalProperties required prefixItems items \
     minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems minProperties maxProperties \
     pattern format",
);

/// The keywords that depend on others of the same schema.
const DEPENDENT: Keywords = Keywords("unevaluatedProperties unevaluatedItems additionalItems");

/// The origin of a schema, which decides about the meaning of `format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaOf {
    /// A Rust type, whose integer formats name their range.
    Type,
    /// Another program.
    Document,
}

/// A parsed schema. References are resolved: a [`NodeId`] leads directly to the schema that describes a value.
#[derive(Debug)]
pub(crate) struct Shape {
    nodes: Vec<ShapeNode>,
    root: NodeId,
}

/// The position of a [`ShapeNode`] in its [`Shape`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeId(usize);

/// The node that allows every value.
const ANYTHING: NodeId = NodeId(0);

/// One schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShapeNode {
    /// No value is valid.
    pub(crate) is_never: bool,
    /// The names under `type`, or `None` without the keyword.
    pub(crate) types: Option<Vec<String>>,
    /// The values of `enum`, or the value of `const`.
    pub(crate) constants: Option<Vec<Value>>,
    pub(crate) limits: Limits,
    /// There are limits that the type does not enforce by itself.
    pub(crate) is_limited: bool,
    /// The values, or parts of them, have such limits.
    pub(crate) has_limits: bool,
    /// The range of the Rust integer that `format` names.
    pub(crate) range: Option<(i128, i128)>,
    /// `format` names a Rust integer, which is read only in its plain notation: not from `1.0`.
    pub(crate) is_plain_integer: bool,
    /// The schemas that hold at the same time: `allOf`, and a `$ref` that has constraints beside it.
    pub(crate) all: Vec<NodeId>,
    /// The alternatives: `anyOf` and `oneOf`, without nested alternatives.
    pub(crate) choices: Vec<NodeId>,
    pub(crate) properties: HashMap<String, Property>,
    /// The names of the properties in order.
    pub(crate) names: Vec<String>,
    pub(crate) required: Vec<String>,
    /// `patternProperties` and `additionalProperties`, if there are patterns, for a validator of single schemas.
    pub(crate) by_pattern: Option<Map<String, Value>>,
    /// An object can have only the members that are listed under `properties`.
    pub(crate) is_closed: bool,
    /// The schema of further members.
    pub(crate) additional: Option<NodeId>,
    /// The pattern of the names in a map whose names have a type, such as numbers.
    pub(crate) name_pattern: Option<Pattern>,
    pub(crate) prefix: Vec<NodeId>,
    pub(crate) items: Option<NodeId>,
    /// The constraints that are not represented, for a validator of single schemas.
    pub(crate) others: Map<String, Value>,
}

/// A property of an object.
#[derive(Clone, Debug)]
pub(crate) struct Property {
    pub(crate) node: NodeId,
    pub(crate) description: Option<String>,
}

impl ShapeNode {
    /// Returns `true` if the schema has a `type` that allows the name.
    pub(crate) fn names_type(&self, name: &str) -> bool {
        self.types.iter().flatten().any(|one| one == name)
    }

    /// Returns `true` if the schema has no `type` or one that allows the name.
    pub(crate) fn allows_type(&self, name: &str) -> bool {
        self.types.is_none() || self.names_type(name)
    }

    pub(crate) fn is_required(&self, name: &str) -> bool {
        self.required.iter().any(|one| one == name)
    }

    /// Returns `true` if the schema only has alternatives.
    pub(crate) fn only_has_choices(&self) -> bool {
        !self.choices.is_empty()
            && self.types.is_none()
            && self.constants.is_none()
            && self.all.is_empty()
            && self.properties.is_empty()
            && self.required.is_empty()
            && self.limits == Limits::default()
            && self.others.is_empty()
    }

    /// Returns the schemas of the same value and of its parts.
    fn parts(&self) -> impl Iterator<Item = NodeId> {
        let listed = [&self.all, &self.choices, &self.prefix].into_iter().flatten().copied();
        let members = self.properties.values().map(|property| property.node);
        listed.chain(members).chain(self.items).chain(self.additional)
    }

    /// Returns the schema of the item at an index.
    pub(crate) fn item(&self, index: usize) -> Option<NodeId> {
        self.prefix.get(index).copied().or(self.items)
    }

    /// Returns the schema of a member that is listed under `properties`, or else the schema of further members.
    pub(crate) fn member(&self, name: &str) -> Option<NodeId> {
        self.properties.get(name).map(|property| property.node).or(self.additional)
    }

    /// Returns the pattern of the names in a map if this is not one of them.
    pub(crate) fn unmatched_pattern(&self, name: &str) -> Option<&str> {
        let pattern = self.name_pattern.as_ref().filter(|pattern| pattern.matches(name) == Some(false))?;
        Some(&pattern.text)
    }

    /// Returns the pattern of the names in a map of a document, if all names have one pattern.
    pub(crate) fn pattern_of_names(&self) -> Option<&str> {
        let by_pattern =
            self.by_pattern.as_ref().filter(|_| self.properties.is_empty() && self.additional.is_some())?;
        let patterns = by_pattern.get("patternProperties")?.as_object()?;
        patterns.keys().next().filter(|_| patterns.len() == 1).map(String::as_str)
    }
}

impl Shape {
    /// Parses a schema. The work is linear in its size, whatever its references are; a reference that leads nowhere allows
    /// everything.
    pub(crate) fn parse(schema: &Value, origin: SchemaOf) -> Self {
        let draft = schema.get("$schema").and_then(Value::as_str);
        let mut parser = Parser {
            root: schema,
            origin,
            ignores_siblings: draft.is_some_and(|draft| draft.contains("draft-0")),
            nodes: vec![ShapeNode::default()],
            ids: HashMap::new(),
            waiting: Vec::new(),
        };
        let root = parser.id(schema);
        while let Some((NodeId(index), schema)) = parser.waiting.pop() {
            parser.nodes[index] = parser.node(schema);
        }
        let mut shape = Self { nodes: parser.nodes, root };
        shape.flatten_choices();
        shape.mark_limits();
        shape
    }

    pub(crate) fn root(&self) -> NodeId {
        self.root
    }

    /// Returns the schema of a property of the root.
    pub(crate) fn property(&self, name: &str) -> NodeId {
        self.node(self.root).properties.get(name).map_or(ANYTHING, |property| property.node)
    }

    pub(crate) fn node(&self, NodeId(index): NodeId) -> &ShapeNode {
        &self.nodes[index]
    }

    /// Replaces alternatives that only have alternatives themselves, which also ends their cycles.
    fn flatten_choices(&mut self) {
        let is_nested = |index: &usize| {
            self.nodes[*index].choices.iter().any(|choice| self.node(*choice).only_has_choices())
        };
        let mut visits = MAX_VISITS;
        let nested = (0..self.nodes.len()).filter(is_nested);
        let flattened: Vec<_> =
            nested.map_while(|index| Some((index, self.alternatives(NodeId(index), &mut visits)?))).collect();
        for (index, choices) in flattened {
            self.nodes[index].choices = choices;
        }
    }

    /// Returns the alternatives of a node in order, each once. Returns `None` if there are no visits left.
    fn alternatives(&self, node: NodeId, visits: &mut usize) -> Option<Vec<NodeId>> {
        let (mut found, mut seen) = (Vec::new(), HashSet::from([node]));
        let mut waiting: Vec<_> = self.node(node).choices.iter().rev().copied().collect();
        while let Some(id) = waiting.pop() {
            *visits = visits.checked_sub(1)?;
            if !seen.insert(id) {
                continue;
            }
            if self.node(id).only_has_choices() {
                waiting.extend(self.node(id).choices.iter().rev());
            } else {
                found.push(id);
            }
        }
        Some(found)
    }

    /// Marks the nodes that have limits, at them or below them. References can form cycles.
    fn mark_limits(&mut self) {
        let mut has_changed = true;
        while has_changed {
            has_changed = false;
            for index in (0..self.nodes.len()).rev() {
                let node = &self.nodes[index];
                let has_limits = node.is_limited || node.parts().any(|part| self.node(part).has_limits);
                has_changed |= has_limits != node.has_limits;
                self.nodes[index].has_limits = has_limits;
            }
        }
    }
}

struct Parser<'s> {
    /// The schema that `$ref` refers to.
    root: &'s Value,
    origin: SchemaOf,
    /// Drafts up to draft-07 ignore the keywords beside a reference.
    ignores_siblings: bool,
    nodes: Vec<ShapeNode>,
    /// The ids by the addresses of the schemas. Each schema is parsed once.
    ids: HashMap<*const Value, NodeId>,
    /// The schemas that are still to be parsed.
    waiting: Vec<(NodeId, &'s Value)>,
}

impl<'s> Parser<'s> {
    /// Returns the id of a schema, or of the one that it only refers to.
    fn id(&mut self, schema: &'s Value) -> NodeId {
        let Some(schema) = self.follow(schema).filter(|_| self.nodes.len() < MAX_NODES) else {
            return ANYTHING;
        };
        let next = NodeId(self.nodes.len());
        let id = *self.ids.entry(std::ptr::from_ref(schema)).or_insert(next);
        if id == next {
            self.nodes.push(ShapeNode::default());
            self.waiting.push((id, schema));
        }
        id
    }

    /// Follows references without constraints beside them.
    fn follow(&self, schema: &'s Value) -> Option<&'s Value> {
        let is_constraint = |keyword: &String| keyword != "$ref" && !is_annotation(keyword);
        let mut current = schema;
        for _ in 0..MAX_REFERENCES {
            let Some(schema) = current.as_object().filter(|schema| schema.contains_key("$ref")) else {
                return Some(current);
            };
            if !self.ignores_siblings && schema.keys().any(is_constraint) {
                return Some(current);
            }
            current = self.target(schema)?;
        }
        None
    }

    /// Returns the schema that a `$ref` refers to.
    fn target(&self, schema: &Map<String, Value>) -> Option<&'s Value> {
        target(self.root, schema.get("$ref")?)
    }

    fn ids(&mut self, schemas: Option<&'s Value>) -> Vec<NodeId> {
        schemas.and_then(Value::as_array).into_iter().flatten().map(|schema| self.id(schema)).collect()
    }

    fn node(&mut self, schema: &'s Value) -> ShapeNode {
        let Value::Object(schema) = schema else {
            return ShapeNode { is_never: *schema == Value::Bool(false), ..ShapeNode::default() };
        };
        let get = |keyword: &str| schema.get(keyword);
        let object = |keyword: &str| schema.get(keyword).and_then(Value::as_object).into_iter().flatten();
        let texts = |value: &Value| match value {
            Value::Array(values) => values.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            value => value.as_str().map(str::to_owned).into_iter().collect::<Vec<_>>(),
        };
        let constants = get("enum").and_then(Value::as_array).cloned();
        let mut all = self.ids(get("allOf"));
        if let Some(target) = self.target(schema) {
            let target = self.id(target);
            all.insert(0, target);
        }
        let (mut choices, variants) = (self.ids(get("anyOf")), self.ids(get("oneOf")));
        if choices.is_empty() {
            choices = variants;
        } else if !variants.is_empty() {
            // Each of the two holds.
            all.push(NodeId(self.nodes.len()));
            self.nodes.push(ShapeNode { choices: variants, ..ShapeNode::default() });
        }
        let description =
            |schema: &Value| schema.get("description").and_then(Value::as_str).map(str::to_owned);
        let properties: HashMap<_, _> = object("properties")
            .map(|(name, schema)| {
                (name.clone(), Property { node: self.id(schema), description: description(schema) })
            })
            .collect();
        let part = |is_part: &dyn Fn(&str) -> bool| -> Map<String, Value> {
            let part = schema.iter().filter(|(keyword, _)| is_part(keyword));
            part.map(|(keyword, value)| (keyword.clone(), value.clone())).collect()
        };
        let is_type = self.origin == SchemaOf::Type;
        let by_pattern = get("patternProperties")
            .filter(|_| !is_type)
            .map(|_| part(&|keyword| matches!(keyword, "patternProperties" | "additionalProperties")));
        // Before draft 2020-12, `prefixItems` was written as a list under `items`.
        let prefix = self.ids(get("prefixItems").or(get("items").filter(|items| items.is_array())));
        let items = get("items").filter(|items| !items.is_array()).map(|schema| self.id(schema));
        let is_closed = get("additionalProperties") == Some(&Value::Bool(false));
        // All values of a map have one schema. Its type, or else a validator, decides about the names, such as numbers.
        let is_map = is_type || is_closed;
        let mut of_values = object("patternProperties").map(|(_, schema)| schema).filter(|_| is_map);
        let of_values = of_values.next().filter(|first| of_values.all(|other| other == *first));
        // Beside the alternatives of an enum, the members of a map are those that nothing else has evaluated.
        let others = get("additionalProperties").or(get("unevaluatedProperties").filter(|_| is_type));
        let additional = of_values.or(others.filter(|_| by_pattern.is_none()));
        let additional = additional.map(|schema| self.id(schema));
        let mut patterns =
            object("patternProperties").filter(|_| is_type && is_closed && properties.is_empty());
        let name_pattern = match (patterns.next(), patterns.next()) {
            (Some((pattern, _)), None) => Some(Pattern::new(pattern)),
            _ => None,
        };
        let depends = DEPENDENT.iter().any(|keyword| schema.contains_key(keyword));
        let is_other = |keyword: &str| {
            let is_represented = REPRESENTED.contains(keyword) || is_annotation(keyword);
            self.origin == SchemaOf::Document && (depends || keyword == "pattern" || !is_represented)
        };
        let mut limits = Limits::from_json(schema);
        // In other documents, the name of a format promises nothing, and a validator matches patterns.
        let format = get("format").and_then(Value::as_str).filter(|_| is_type);
        limits.is_f32 &= is_type;
        limits.pattern = limits.pattern.filter(|_| is_type);
        ShapeNode {
            is_never: false,
            types: get("type").map(texts),
            constants: constants.or_else(|| get("const").map(|constant| vec![constant.clone()])),
            limits,
            is_limited: is_type && has_own_limit(schema),
            has_limits: false,
            range: format.and_then(integer_range),
            is_plain_integer: format
                .is_some_and(|format| format.starts_with("int") || format.starts_with("uint")),
            all,
            choices,
            names: object("properties").map(|(name, _)| name.clone()).collect(),
            properties,
            required: get("required").map(texts).unwrap_or_default(),
            by_pattern,
            is_closed: is_closed_object(schema),
            additional,
            name_pattern,
            prefix,
            items,
            others: part(&is_other),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn types(shape: &Shape, node: NodeId) -> Vec<&str> {
        shape.node(node).types.iter().flatten().map(String::as_str).collect()
    }

    #[test]
    fn references_lead_to_the_schema_behind_them() {
        let schema = json!({
            "properties": {
                "a": { "$ref": "#/$defs/A", "description": "of the property" },
                "nowhere": { "$ref": "#/$defs/nowhere" },
                "circle": { "$ref": "#/$defs/Circle" },
                "tree": { "$ref": "#/$defs/Tree" },
                "beside": { "$ref": "#/$defs/B", "maxLength": 3 },
            },
            "$defs": {
                "A": { "$ref": "#/$defs/B" },
                "B": { "type": "string" },
                "Circle": { "$ref": "#/$defs/Circle" },
                "Tree": { "type": "array", "items": { "$ref": "#/$defs/Tree" } },
            },
        });
        let shape = Shape::parse(&schema, SchemaOf::Document);
        assert_eq!(types(&shape, shape.property("a")), ["string"]);
        let property = &shape.node(shape.root()).properties["a"];
        assert_eq!(property.description.as_deref(), Some("of the property"));
        assert_eq!((shape.property("nowhere"), shape.property("circle")), (ANYTHING, ANYTHING));
        let tree = shape.property("tree");
        assert_eq!(shape.node(tree).items, Some(tree));
        let beside = shape.node(shape.property("beside"));
        assert_eq!((beside.all.len(), beside.limits.characters.longest), (1, Some(3)));
        assert_eq!(types(&shape, beside.all[0]), ["string"]);
        // Until draft-07, keywords beside a reference were ignored.
        let mut earlier = schema;
        earlier["$schema"] = "http://json-schema.org/draft-07/schema#".into();
        let shape = Shape::parse(&earlier, SchemaOf::Document);
        assert_eq!(types(&shape, shape.property("beside")), ["string"]);
    }

    #[test]
    fn nested_alternatives_are_flat() {
        let schema = json!({
            "anyOf": [{ "$ref": "#" }, { "oneOf": [{ "type": "string" }, { "type": "null" }] }, { "type": "string" }],
        });
        let shape = Shape::parse(&schema, SchemaOf::Type);
        let choices = &shape.node(shape.root()).choices;
        let types: Vec<_> = choices.iter().map(|choice| types(&shape, *choice)).collect();
        assert_eq!(types, [["string"], ["null"], ["string"]]);
    }

    #[test]
    fn hostile_schemas_take_bounded_work() {
        let deep =
            (0..100).fold(json!({}), |inner, _| json!({ "items": inner, "$defs": { "A": { "$ref": "#" } } }));
        assert!(Shape::parse(&deep, SchemaOf::Document).nodes.len() < 300);
        let reference = json!({ "$ref": "#/$defs/A" });
        let many =
            json!({ "anyOf": vec![reference; 50_000], "$defs": { "A": { "anyOf": [{ "$ref": "#" }] } } });
        assert_eq!(Shape::parse(&many, SchemaOf::Document).nodes.len(), 3);
    }
}
