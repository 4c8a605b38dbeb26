//! The limits of values that their types have read.
//!
//! A schema does not list every name: a type can know a member or a variant by others (`#[serde(alias = "…")]`). A member under an
//! unlisted name must be within the limits of every absent member of its kind, and of the map beside it. It is refused if it has the
//! kind of none of them and one has limits. Under an unlisted name of a variant, values are refused if any variant has limits.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::walk::{Fit, Step, Walk};
use crate::arguments::matching::{has_type, is_in_range, is_one_of, is_tag};
use crate::arguments::members::{Members, items, offset_in};
use crate::arguments::wording::{quote, unexpected_value, unknown_member, unknown_name};
use crate::schema::{Kind, Node, NodeId, Shape};

/// The members of an object.
type Object<'t> = [(Cow<'t, str>, &'t str)];

/// The members that other schemas of the same object describe.
#[derive(Clone, Default)]
struct Beside<'w> {
    names: HashSet<&'w str>,
    /// The schemas of those that are absent.
    absent: Vec<NodeId>,
    /// The schemas of members with any name.
    maps: Vec<NodeId>,
}

impl<'w> Walk<'w> {
    /// Reports which limits of its schema a value exceeds.
    pub(super) fn limits(&mut self, id: NodeId, text: &str) {
        self.read_value(id, &Beside::default(), text, 0);
    }

    fn read_value(&mut self, id: NodeId, beside: &Beside<'w>, text: &str, depth: usize) -> Fit {
        // Another name can stand for several members, whose schemas have the same parts.
        let key = (id, offset_in(self.text, text));
        let is_remembered =
            self.is_unlisted && beside.names.is_empty() && Kind::of(text) == Some(Kind::Object);
        if !is_remembered {
            return self.read_new_value(id, beside, text, depth);
        }
        if let Some((fit, found)) = self.read.get(&key) {
            let (fit, found) = (*fit, found.clone());
            self.add_all(found);
            return fit;
        }
        let (fit, found) = self.tentatively(|walk| walk.read_new_value(id, beside, text, depth));
        self.add_all(found.clone());
        self.read.insert(key, (fit, found));
        fit
    }

    fn read_new_value(&mut self, id: NodeId, beside: &Beside<'w>, text: &str, depth: usize) -> Fit {
        let node = self.shape.node(id);
        if self.is_full() {
            return Fit::Possibly;
        }
        if self.budget.spend(text.len(), depth).is_none() {
            self.is_incomplete = true;
            return Fit::Possibly;
        }
        if node.is_never {
            return Fit::Not;
        }
        if !has_type(node, text) {
            return if is_positional(node, text) { self.read_fields(id, text, depth) } else { Fit::Not };
        }
        if node.is_limited && !node.limits.allow(text) {
            self.report_value(id, text);
        }
        let fit = match is_one_of(node, text) {
            _ if !is_in_range(node, text) => Fit::Not,
            true => Fit::Fully,
            false if is_tag(node) => Fit::Not,
            false => Fit::Possibly,
        };
        fit.min(match Kind::of(text) {
            Some(Kind::Object) => {
                let Members(mut members) = Members::of(text);
                members.retain(|(_, value)| !self.ignorance.contains(offset_in(self.text, value)));
                self.read_object(id, &members, beside, text, depth)
            }
            kind => {
                let parts = node.all.iter().map(|part| self.read_value(*part, beside, text, depth + 1));
                let fit = parts.min().unwrap_or(Fit::Fully).min(self.read_choice(id, text, depth));
                if kind == Some(Kind::Array) { fit.min(self.read_items(node, text, depth)) } else { fit }
            }
        })
    }

    fn read_items(&mut self, node: &'w Node, text: &str, depth: usize) -> Fit {
        let mut fit = Fit::Fully;
        for (index, value) in items(text).into_iter().enumerate() {
            let Some(item) = node.item(index) else { break };
            fit = fit.min(self.read_part(Step::Item(index), item, value, depth));
        }
        fit
    }

    fn read_part(&mut self, step: Step<'_>, id: NodeId, text: &str, depth: usize) -> Fit {
        self.step(step, |walk| walk.read_value(id, &Beside::default(), text, depth + 1))
    }

    /// Reads a struct whose fields are in a list. Its tag is the first of them.
    fn read_fields(&mut self, id: NodeId, text: &str, depth: usize) -> Fit {
        let (values, node) = (items(text), self.shape.node(id));
        let fields = node.names.iter().filter_map(|name| node.properties.get(name));
        let (tags, others): (Vec<_>, Vec<_>) =
            fields.map(|field| field.node).partition(|field| is_tag(self.shape.node(*field)));
        // With more values, the schema does not list all fields.
        if values.len() > node.names.len() {
            return Fit::Not;
        }
        let mut fit = Fit::Possibly;
        for (index, (value, field)) in values.iter().zip(tags.into_iter().chain(others)).enumerate() {
            fit = fit.min(self.read_part(Step::Item(index), field, value, depth));
        }
        fit
    }

    /// Reads a value that is not an object by the alternatives of its schema.
    fn read_choice(&mut self, id: NodeId, text: &str, depth: usize) -> Fit {
        let node = self.shape.node(id);
        if node.choices.is_empty() {
            return Fit::Fully;
        }
        let is_constant = |choice: &NodeId| {
            let choice = self.shape.node(*choice);
            choice.constants.is_some() && is_one_of(choice, text)
        };
        let constants: Vec<_> = node.choices.iter().copied().filter(is_constant).collect();
        let choices = if constants.is_empty() { &node.choices } else { &constants };
        let fit = self.read_first(choices, &Beside::default(), text, depth);
        let is_variant = |choice: &NodeId| {
            is_positional(self.shape.node(*choice), text) && tag_of(self.shape, *choice).is_some()
        };
        if fit == Fit::Not && node.choices.iter().any(|id| is_variant(id) && self.shape.is_limited(*id)) {
            self.report_value(id, text);
            return Fit::Possibly;
        }
        fit
    }

    /// Reads a value by the first of the alternatives that fits it. Those before it that possibly fit count too.
    fn read_first(&mut self, choices: &[NodeId], beside: &Beside<'w>, text: &str, depth: usize) -> Fit {
        let mut beside = beside.clone();
        let names: Vec<_> = choices.iter().map(|choice| self.names_of(*choice)).collect();
        // What one alternative lists is no other name of a member of the others.
        if names.iter().filter(|names| !names.is_empty()).count() > 1 {
            beside.names.extend(names.into_iter().flatten());
            self.is_incomplete |= self.budget.spend(beside.names.len(), depth).is_none();
        }
        let mut trials = Vec::new();
        for choice in choices {
            let was_incomplete = std::mem::take(&mut self.is_incomplete);
            let (fit, found) = self.tentatively(|walk| walk.read_value(*choice, &beside, text, depth + 1));
            trials.push((fit, found, std::mem::replace(&mut self.is_incomplete, was_incomplete)));
            if fit == Fit::Fully {
                break;
            }
        }
        let best = trials.iter().map(|(fit, ..)| *fit).max().unwrap_or(Fit::Not);
        for (fit, found, is_incomplete) in trials {
            if fit > Fit::Not || best == Fit::Not {
                self.add_all(found);
                self.is_incomplete |= is_incomplete;
            }
        }
        best
    }

    fn read_object(
        &mut self,
        id: NodeId,
        members: &Object<'_>,
        beside: &Beside<'w>,
        text: &str,
        depth: usize,
    ) -> Fit {
        let shape = self.shape;
        let mut layers = vec![id];
        let mut next = 0;
        while let Some(layer) = layers.get(next).copied() {
            next += 1;
            let parts = shape.node(layer).all.iter().filter(|part| !layers.contains(part)).copied();
            let parts: Vec<_> = parts.collect();
            layers.extend(parts);
        }
        let given: HashSet<&str> = members.iter().map(|(name, _)| &**name).collect();
        let others = &beside.names;
        let is_refused = |layer: &Node| {
            let is_closed = layer.additional.is_some_and(|additional| shape.node(additional).is_never);
            let is_other = |name: &&&str| others.contains(*name) && !layer.properties.contains_key(**name);
            is_closed && given.iter().any(|name| is_other(&name))
        };
        let mut fit =
            if layers.iter().any(|layer| is_refused(shape.node(*layer))) { Fit::Not } else { Fit::Fully };
        let mut beside = beside.clone();
        for layer in layers.iter().map(|layer| shape.node(*layer)) {
            beside.names.extend(layer.names.iter().map(String::as_str));
            let absent = layer.names.iter().filter(|name| !given.contains(name.as_str()));
            beside.absent.extend(absent.filter_map(|name| Some(layer.properties.get(name)?.node)));
            beside.maps.extend(layer.additional.filter(|additional| !shape.node(*additional).is_never));
        }
        let groups: Vec<_> =
            layers.iter().copied().filter(|layer| !shape.node(*layer).choices.is_empty()).collect();
        for layer in &layers {
            let node = shape.node(*layer);
            if *layer != id && node.is_limited && !node.limits.allow(text) {
                self.report_value(*layer, text);
            }
            for (name, value) in members {
                let Some(property) = node.properties.get(&**name) else { continue };
                fit = fit.min(self.read_part(Step::Member(name), property.node, value, depth));
            }
            for name in node.required.iter().filter(|name| !given.contains(name.as_str())) {
                let property = node.properties.get(name).map(|property| property.node);
                let can_be = |(other, value): &(Cow<'_, str>, &str)| {
                    !beside.names.contains(&**other)
                        && property.is_none_or(|property| has_kind(shape, property, value))
                };
                fit = fit.min(if members.iter().any(can_be) { Fit::Possibly } else { Fit::Not });
            }
        }
        if groups.is_empty() {
            return fit.min(self.read_unlisted(members, &beside, depth));
        }
        for (index, group) in groups.iter().enumerate() {
            let mut beside = beside.clone();
            for (other, id) in groups.iter().enumerate() {
                if other != index {
                    let names = shape.node(*id).choices.iter().flat_map(|choice| self.names_of(*choice));
                    beside.names.extend(names);
                }
            }
            fit = fit.min(self.read_variant(*group, members, &beside, text, depth));
        }
        fit
    }

    /// Reads an object by the alternatives of its schema.
    fn read_variant(
        &mut self,
        id: NodeId,
        members: &Object<'_>,
        beside: &Beside<'w>,
        text: &str,
        depth: usize,
    ) -> Fit {
        let (shape, group) = (self.shape, self.shape.node(id));
        let mut choices = group.choices.clone();
        choices.retain(|choice| !shape.node(*choice).is_never && has_type(shape.node(*choice), text));
        let is_limited = |choices: &[NodeId]| choices.iter().any(|choice| shape.is_limited(*choice));
        let is_unlisted =
            |(name, value): &&(Cow<'_, str>, &str)| !beside.names.contains(&**name) && *value != "null";
        let value_of = |name: &str| members.iter().find(|(other, _)| other == name).map(|(_, value)| *value);
        let mut beside = Cow::Borrowed(beside);
        // The variants that a tag names.
        if let Some(tag) = choices.iter().find_map(|choice| tag_of(shape, *choice)) {
            let has_tag = |choice: &NodeId| tag_of(shape, *choice) == Some(tag);
            let (tagged, others): (Vec<_>, Vec<_>) = choices.into_iter().partition(has_tag);
            if let Some(given) = value_of(tag) {
                let is_named = |choice: &&NodeId| {
                    let tag = shape.node(**choice).properties.get(tag);
                    tag.is_some_and(|tag| is_one_of(shape.node(tag.node), given))
                };
                if let Some(choice) = tagged.iter().find(is_named) {
                    return self.read_value(*choice, &beside, text, depth + 1);
                }
                let has_values = members.iter().filter(is_unlisted).any(|(name, _)| name != tag);
                if has_values && is_limited(&tagged) {
                    self.step(Step::Member(tag), |walk| walk.report_unlisted_tag(tag, &tagged, given));
                    return Fit::Possibly;
                }
            }
            choices = others;
        }
        // The variants that a member names.
        if group.has_variants {
            let (variants, others): (Vec<_>, Vec<_>) =
                choices.into_iter().partition(|choice| variant_of(shape.node(*choice)).is_some());
            let is_named = |choice: &&NodeId| {
                variant_of(shape.node(**choice)).is_some_and(|name| value_of(name).is_some())
            };
            if let Some(choice) = variants.iter().find(is_named) {
                return self.read_value(*choice, &beside, text, depth + 1);
            }
            if is_limited(&variants) {
                let is_member = |value: &str| {
                    beside.absent.iter().chain(&beside.maps).any(|id| has_kind(shape, *id, value))
                };
                if members.iter().filter(is_unlisted).any(|(_, value)| !is_member(value)) {
                    self.report_value(id, text);
                    return Fit::Possibly;
                }
                let absent = variants.iter().filter_map(|choice| {
                    let node = shape.node(*choice);
                    Some(node.properties.get(variant_of(node)?)?.node)
                });
                beside.to_mut().absent.extend(absent);
            }
            choices = others;
        }
        if choices.is_empty() {
            self.read_unlisted(members, &beside, depth);
            return Fit::Not;
        }
        let fit = self.read_first(&choices, &beside, text, depth);
        let known: HashSet<_> = choices.iter().flat_map(|choice| self.names_of(*choice)).collect();
        let is_unexplained = members.iter().filter(is_unlisted).any(|(name, _)| !known.contains(&**name));
        if fit == Fit::Not && is_unexplained && is_limited(&choices) {
            self.report_value(id, text);
        }
        fit
    }

    /// Checks the members that no schema lists.
    fn read_unlisted(&mut self, members: &Object<'_>, beside: &Beside<'w>, depth: usize) -> Fit {
        let shape = self.shape;
        let mut fit = Fit::Fully;
        for (name, value) in members.iter().filter(|(name, _)| !beside.names.contains(&**name)) {
            let text = *value;
            let step = || Step::Member(name);
            if beside.absent.is_empty() {
                for map in &beside.maps {
                    fit = fit.min(self.read_part(step(), *map, text, depth));
                }
            }
            if beside.maps.is_empty() {
                fit = fit.min(Fit::Possibly);
            }
            let was_unlisted = std::mem::replace(&mut self.is_unlisted, true);
            let mut has_place = false;
            for id in beside.absent.iter().chain(&beside.maps).filter(|id| has_kind(shape, **id, text)) {
                let (fit, found) = self.tentatively(|walk| walk.read_part(step(), *id, text, depth));
                // A list is only a struct if its items are the fields.
                if fit > Fit::Not || Kind::of(text) != Some(Kind::Array) {
                    has_place = true;
                    self.add_all(found);
                }
            }
            self.is_unlisted = was_unlisted;
            let is_limited = |id: &NodeId| shape.is_limited(*id);
            if !has_place && text != "null" && beside.absent.iter().any(is_limited) {
                let mut names: Vec<_> = beside.names.iter().copied().collect();
                names.sort_unstable();
                let path = self.path.clone();
                self.step(step(), |walk| {
                    let mistake = match &*path {
                        "" => unknown_name(name, &names),
                        path => unknown_member(path, name, &names),
                    };
                    walk.report(mistake, text);
                });
            }
        }
        fit
    }

    fn report_unlisted_tag(&mut self, tag: &str, variants: &[NodeId], given: &str) {
        let shape = self.shape;
        let tags = variants.iter().filter_map(|choice| {
            let tag = shape.node(*choice).properties.get(tag)?;
            shape.node(tag.node).constants.as_deref()
        });
        let names: Vec<_> = tags.flatten().map(Value::to_string).collect();
        let mistake = unexpected_value(&self.path, &format!("one of {}", names.join(", ")), &quote(given));
        self.report(mistake, given);
    }
}

/// Returns `true` if a value is of a kind that a schema describes, whatever its limits are.
fn has_kind(shape: &Shape, id: NodeId, text: &str) -> bool {
    let node = shape.node(id);
    let has_length = |text: &str| {
        node.prefix.is_empty()
            || Kind::of(text) != Some(Kind::Array)
            || items(text).len() == node.prefix.len()
    };
    !node.is_never
        && (has_type(node, text) || is_positional(node, text))
        && is_in_range(node, text)
        && has_length(text)
        && node.all.iter().all(|part| *part == id || has_type(shape.node(*part), text))
        && (node.choices.is_empty()
            || node.choices.iter().map(|choice| shape.node(*choice)).any(|choice| {
                !choice.is_never
                    && (has_type(choice, text) || is_positional(choice, text))
                    && is_in_range(choice, text)
            }))
}

/// Returns `true` if the value can be a struct whose fields are in a list.
fn is_positional(node: &Node, text: &str) -> bool {
    node.names_type("object") && Kind::of(text) == Some(Kind::Array)
}

/// Returns the name of the tag of a variant.
fn tag_of(shape: &Shape, id: NodeId) -> Option<&str> {
    let node = shape.node(id);
    let is_tag = |name: &&String| {
        node.is_required(name) && node.properties.get(*name).is_some_and(|tag| is_tag(shape.node(tag.node)))
    };
    node.names.iter().find(is_tag).map(String::as_str)
}

/// Returns the name of a variant that is the only member of its object.
fn variant_of(node: &Node) -> Option<&str> {
    match (&*node.names, &*node.required) {
        ([name], [required]) if name == required => Some(name),
        _ => None,
    }
}
