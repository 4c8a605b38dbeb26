//! The limits of values that their types have read.
//!
//! A type can know a member or a variant by a name that its schema does not list (`#[serde(alias = "…")]`), and nothing shows which
//! limits hold there. So an object that has limits, at it or below it, has only members that its schema admits, and only the variants
//! that it lists. Beside a map, whose members can have any name, a member must be within the limits of the listed members that it fits
//! and that are absent.

use super::walk::{Step, Walk};
use crate::arguments::matching::{has_type, is_in_range, is_one_of, is_tag, probable_choices};
use crate::arguments::members::{Members, items, offset_in};
use crate::arguments::wording::unknown_member;
use crate::schema::{Kind, NodeId, ShapeNode};

impl Walk<'_> {
    /// Reports which limits of its schema a value exceeds.
    pub(super) fn limits(&mut self, id: NodeId, text: &str, depth: usize) {
        let shape = self.shape;
        if self.is_full() || !shape.node(id).has_limits {
            return;
        }
        if self.budget.spend(text.len(), depth).is_none() {
            self.is_incomplete = true;
            return;
        }
        if shape.node(id).only_has_choices() {
            if let Some(choice) = self.choice(id, text, depth) {
                self.limits(choice, text, depth + 1);
            }
            return;
        }
        let Some(schemas) = self.schemas_of(id, text, depth) else { return };
        for schema in &schemas {
            let node = shape.node(*schema);
            if node.is_limited && !node.limits.allow(text) {
                self.report_value(*schema, text);
            }
        }
        let nodes: Vec<_> = schemas.into_iter().map(|schema| shape.node(schema)).collect();
        match Kind::of(text) {
            Some(Kind::Object) => self.limits_of_members(&nodes, text, depth),
            Some(Kind::Array) => self.limits_of_items(&nodes, text, depth),
            _ => {}
        }
    }

    fn limits_of_items(&mut self, nodes: &[&ShapeNode], text: &str, depth: usize) {
        for (index, value) in items(text).into_iter().enumerate() {
            for item in nodes.iter().filter_map(|node| self.item(node, index)).collect::<Vec<_>>() {
                self.step(Step::Item(index), |walk| walk.limits(item, value, depth + 1));
            }
        }
    }

    fn limits_of_members(&mut self, nodes: &[&ShapeNode], text: &str, depth: usize) {
        let shape = self.shape;
        let Members(members) = Members::of(text);
        let path = self.path.clone();
        for (name, value) in &members {
            if self.ignorance.contains(offset_in(self.text, value)) {
                continue;
            }
            let mut schemas: Vec<_> = nodes
                .iter()
                .filter_map(|node| node.properties.get(&**name))
                .map(|listed| listed.node)
                .collect();
            if schemas.is_empty() {
                schemas.extend(nodes.iter().filter_map(|node| node.additional));
                schemas.retain(|schema| !shape.node(*schema).is_never);
                if schemas.is_empty() {
                    let known: Vec<_> = nodes.iter().flat_map(|node| &node.names).collect();
                    let mistake = unknown_member(&path, name, &known);
                    self.step(Step::Member(name), |walk| walk.report(mistake, value));
                    continue;
                }
                let is_absent = |name: &str| members.iter().all(|(other, _)| other != name);
                let absent =
                    nodes.iter().flat_map(|node| &node.properties).filter(|(name, _)| is_absent(name));
                let fitting = absent.map(|(_, listed)| listed.node).filter(|id| {
                    self.listed_members(*id, value) == Members::of(value).0.len()
                        && self.fits(*id, value, depth + 1)
                });
                schemas.extend(fitting.collect::<Vec<_>>());
            }
            for schema in schemas {
                self.step(Step::Member(name), |walk| walk.limits(schema, value, depth + 1));
            }
        }
    }

    /// Returns the schemas that describe a value together: the given one, its parts, and of their alternatives those that the value
    /// has. Returns `None` after it reported that the value has none of the alternatives.
    fn schemas_of(&mut self, id: NodeId, text: &str, depth: usize) -> Option<Vec<NodeId>> {
        let mut schemas = vec![id];
        let mut next = 0;
        while let Some(schema) = schemas.get(next).copied() {
            next += 1;
            let node = self.shape.node(schema);
            let found_before = self.mistakes.len();
            let choice = self.choice(schema, text, depth);
            if self.mistakes.len() > found_before {
                return None;
            }
            for part in node.all.iter().copied().chain(choice) {
                if !schemas.contains(&part) {
                    schemas.push(part);
                }
            }
        }
        Some(schemas)
    }

    /// Returns the alternative of a schema that a value has. An object that has none of them is reported.
    fn choice(&mut self, id: NodeId, text: &str, depth: usize) -> Option<NodeId> {
        let (shape, node) = (self.shape, self.shape.node(id));
        let has_kind = |choice: &ShapeNode| has_type(choice, text) || is_positional(choice, text);
        let choices = probable_choices(shape, node, text, has_kind);
        if let [choice] = *choices {
            return Some(choice);
        }
        let mut fitting = choices.clone();
        fitting.retain(|choice| self.fits(*choice, text, depth + 1));
        let is_object = |choice: &NodeId| {
            Kind::of(text) == Some(Kind::Object) || is_positional(shape.node(*choice), text)
        };
        if fitting.is_empty() && choices.iter().any(is_object) {
            if !self.report_tag(node, text) {
                self.report_value(id, text);
            }
            return None;
        }
        // The first that lists the most members is the one that the type has read, unless it ignores some of them.
        fitting.into_iter().rev().max_by_key(|choice| self.listed_members(*choice, text))
    }

    /// Returns the number of members of an object that a schema or one of its parts lists, or that are in its map.
    fn listed_members(&self, id: NodeId, text: &str) -> usize {
        let nodes: Vec<_> = self.parts_of(id).collect();
        let is_listed = |name: &str| nodes.iter().any(|node| node.member(name).is_some());
        Members::of(text).0.iter().filter(|(name, _)| is_listed(name)).count()
    }

    /// Returns `true` if a schema describes a value, whatever its limits are and whatever further members its objects have.
    fn fits(&mut self, id: NodeId, text: &str, depth: usize) -> bool {
        let key = (id, offset_in(self.text, text));
        if let Some(fits) = self.fitting.get(&key) {
            return *fits;
        }
        if self.budget.spend(text.len(), depth).is_none() {
            self.is_incomplete = true;
            return false;
        }
        let node = self.shape.node(id);
        let has_kind = has_type(node, text) || is_positional(node, text);
        let fits = (!node.is_never && has_kind && is_in_range(node, text) && is_one_of(node, text))
            && node.all.iter().all(|part| self.fits(*part, text, depth + 1))
            && (node.choices.is_empty()
                || node.choices.iter().any(|choice| self.fits(*choice, text, depth + 1)))
            && self.parts_fit(node, text, depth);
        self.fitting.insert(key, fits);
        fits
    }

    /// Returns the schema of an item of a list, which can contain the fields of a struct: its tag and then the others.
    fn item(&self, node: &ShapeNode, index: usize) -> Option<NodeId> {
        if !node.names_type("object") || node.names_type("array") {
            return node.item(index);
        }
        let fields = node.names.iter().filter_map(|name| node.properties.get(name));
        let (tags, others): (Vec<_>, Vec<_>) =
            fields.map(|field| field.node).partition(|field| is_tag(self.shape.node(*field)));
        tags.into_iter().chain(others).nth(index)
    }

    fn parts_fit(&mut self, node: &ShapeNode, text: &str, depth: usize) -> bool {
        match Kind::of(text) {
            Some(Kind::Object) => {
                let Members(members) = Members::of(text);
                let is_given = |name: &String| members.iter().any(|(given, _)| given == name);
                node.required.iter().all(is_given)
                    && members.iter().all(|(name, value)| {
                        node.member(name).is_none_or(|member| self.fits(member, value, depth + 1))
                    })
            }
            Some(Kind::Array) => {
                let items = items(text);
                (node.prefix.is_empty() || node.prefix.len() == items.len())
                    && (!is_positional(node, text) || items.len() <= node.names.len())
                    && items.into_iter().enumerate().all(|(index, value)| {
                        self.item(node, index).is_none_or(|item| self.fits(item, value, depth + 1))
                    })
            }
            _ => true,
        }
    }
}

/// Returns `true` if a value is a list where a schema describes an object: a type can read its fields by their positions.
fn is_positional(node: &ShapeNode, text: &str) -> bool {
    node.names_type("object") && !node.names_type("array") && Kind::of(text) == Some(Kind::Array)
}
