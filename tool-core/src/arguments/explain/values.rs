//! The mistakes in a value that was refused: everything that its schema does not allow.
//!
//! A missing member is not reported while another one can stand for it: one that the schema does not list and that the type did not ignore,
//! so it can be an alias.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;

use super::mistake::MistakeKind;
use super::walk::{Step, Walk};
use crate::arguments::describe::describe;
use crate::arguments::matching::{has_type, is_in_range, is_infinite, is_one_of};
use crate::arguments::members::{Members, items, offset_in};
use crate::arguments::validators::Part;
use crate::arguments::wording::{missing_value, quote, unexpected_value, unknown_member, unmatched_member};
use crate::schema::{Kind, NodeId, ShapeNode};

impl Walk<'_> {
    /// Reports the mistakes in a value.
    pub(super) fn value(&mut self, id: NodeId, text: &str, depth: usize) {
        if self.is_full() {
            return;
        }
        if self.budget.spend(text.len(), depth).is_none() {
            self.is_incomplete = true;
            return;
        }
        if self.shape.node(id).is_never {
            self.report(format!("`{}` must be left out", self.path), text);
            return;
        }
        let object = self.object;
        self.object.get_or_insert(id);
        self.described_value(id, text, depth);
        self.object = object;
    }

    fn described_value(&mut self, id: NodeId, text: &str, depth: usize) {
        let node = self.shape.node(id);
        let found_before = self.mistakes.len();
        for part in &node.all {
            self.value(*part, text, depth + 1);
        }
        if !has_type(node, text) {
            self.report_value(id, text);
            return;
        }
        self.choices(id, text, depth);
        if self.mistakes.len() > found_before && node.properties.is_empty() {
            return;
        }
        let is_readable = !self.is_too_large(node, text) && !is_infinite(text);
        if !is_one_of(node, text) || !is_in_range(node, text) || !is_readable || !node.limits.allow(text) {
            self.report_value(id, text);
        }
        match Kind::of(text) {
            Some(Kind::Object) => self.members(id, text, depth),
            Some(Kind::Array) => self.items(node, text, depth),
            _ => {}
        }
        if self.mistakes.len() == found_before
            && !self.schema_accepts(id, Part::OtherKeywords, &node.others, text)
        {
            self.report_value(id, text);
        }
    }

    fn items(&mut self, node: &ShapeNode, text: &str, depth: usize) {
        for (index, value) in items(text).into_iter().enumerate() {
            let Some(item) = node.item(index).filter(|_| !self.is_full()) else { return };
            self.step(Step::Item(index), |walk| walk.value(item, value, depth + 1));
        }
    }

    fn members(&mut self, id: NodeId, text: &str, depth: usize) {
        let Members(members) = Members::of(text);
        self.missing_members(id, &members, text);
        for (name, value) in &members {
            if self.is_full() {
                return;
            }
            let (found_before, object) = (self.mistakes.len(), self.path.len());
            self.step(Step::Member(name), |walk| walk.member(id, (text, object), (name, value), depth));
            // Where the walk and the validator differ, the validator decides.
            let is_argument = self.path.is_empty() && self.mistakes.len() > found_before;
            if is_argument && self.is_valid_argument(name, value) == Some(true) {
                self.mistakes.truncate(found_before);
            }
        }
    }

    /// Returns whether the validator accepts an argument as a whole, if that is known.
    fn is_valid_argument(&mut self, name: &str, value: &str) -> Option<bool> {
        self.validators.as_mut()?.accepts_argument(name, value)
    }

    /// Reports which arguments the validator refuses, after a walk that did not reach the mistake because the arguments are too deep or
    /// too large.
    pub(super) fn whole_arguments(&mut self, id: NodeId, text: &str) {
        let node = self.shape.node(id);
        for (name, value) in Members::of(text).0 {
            let Some(property) = node.properties.get(&*name) else { continue };
            if self.is_valid_argument(&name, value) == Some(false) {
                self.step(Step::Member(&name), |walk| walk.report_value(property.node, value));
            }
        }
    }

    fn missing_members(&mut self, id: NodeId, members: &[(Cow<'_, str>, &str)], text: &str) {
        let node = self.shape.node(id);
        let given: HashSet<&str> = members.iter().map(|(name, _)| &**name).collect();
        let missing: Vec<_> = node.required.iter().filter(|name| !given.contains(name.as_str())).collect();
        let is_certain =
            missing.is_empty() || self.validators.is_some() || !self.has_other_name(members, text);
        let kind = if is_certain { MistakeKind::Missing } else { MistakeKind::PossiblyMissing };
        for name in missing {
            if self.is_full() {
                return;
            }
            self.step(Step::Member(name), |walk| {
                let property = node.properties.get(name);
                let expected =
                    property.map_or("a value".into(), |property| describe(walk.shape, property.node));
                let description = property.and_then(|property| property.description.as_deref());
                walk.report_as(kind, missing_value(&walk.path, &expected, description), text);
            });
        }
    }

    /// Returns `true` if an object has a member that no schema of the object lists and that the type does not ignore: the type can know
    /// a listed member by that name.
    fn has_other_name(&self, members: &[(Cow<'_, str>, &str)], text: &str) -> bool {
        let parts: Vec<_> = self.object.into_iter().flat_map(|object| self.parts_of(object)).collect();
        let lists = |node: &ShapeNode, name: &str| {
            node.member(name).is_some_and(|member| !self.shape.node(member).is_never)
        };
        let is_listed = |name: &str| parts.iter().any(|node| lists(node, name));
        members.iter().any(|(name, value)| !is_listed(name) && !self.is_ignored(text, name, value))
    }

    fn is_ignored(&self, object: &str, name: &str, value: &str) -> bool {
        self.names_instead_of(object, name, value).is_some()
    }

    /// Returns the names of a struct, whose text is given, if its type ignores this member.
    fn names_instead_of(&self, object: &str, name: &str, value: &str) -> Option<&'static [&'static str]> {
        self.ignorance.names_instead_of(offset_in(self.text, object), name, offset_in(self.text, value))
    }

    /// Reports the mistakes in a member of an object, which is given by its text and the length of its path.
    fn member(
        &mut self,
        id: NodeId,
        (object, path): (&str, usize),
        (name, value): (&str, &str),
        depth: usize,
    ) {
        let node = self.shape.node(id);
        if let Some(property) = node.properties.get(name) {
            return self.value(property.node, value, depth + 1);
        }
        if let Some(pattern) = node.unmatched_pattern(name).filter(|_| path > 0) {
            return self.report(unmatched_member(&self.path[..path], name, pattern), value);
        }
        if let Some(by_pattern) = &node.by_pattern {
            let member = format!("{{{}:{value}}}", Value::from(name));
            if self.schema_accepts(id, Part::MembersByPattern, by_pattern, &member) {
                return;
            }
            let found_before = self.mistakes.len();
            if let Some(of_values) = node.additional {
                self.value(of_values, value, depth + 1);
            }
            if self.mistakes.len() == found_before {
                let mistake = match node.pattern_of_names().filter(|_| path > 0) {
                    // The value is right, so the name is not.
                    Some(pattern) => unmatched_member(&self.path[..path], name, pattern),
                    None => {
                        let expected = "what `patternProperties` of the schema allows";
                        unexpected_value(&self.path, expected, &quote(value))
                    }
                };
                self.report(mistake, value);
            }
            return;
        }
        match node.additional {
            Some(additional) if !self.shape.node(additional).is_never => {
                self.value(additional, value, depth + 1)
            }
            Some(_) => {
                let known: Vec<_> = node.names.iter().map(String::as_str).collect();
                self.report(unknown_member(&self.path[..path], name, &known), value);
            }
            None => {
                if let Some(known) = self.names_instead_of(object, name, value) {
                    let mistake = unknown_member(&self.path[..path], name, known);
                    self.report_as(MistakeKind::Ignored, mistake, value);
                }
            }
        }
    }
}
