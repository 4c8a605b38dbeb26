//! The walk through a value and its schema.
//!
//! A [`Walk`] reads the text of a value and its [`Shape`] side by side. With [`Rules::Limits`], it looks only for the limits that a
//! type does not enforce itself; this is the check of values that the type accepted. With [`Rules::All`], it looks for
//! everything that the schema refuses, because something did.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::wording::{missing_value, quote, unexpected_value, unknown_member};
use super::{IsValid, Mistake, SchemaValidator, offset_in};
use crate::arguments::budget::Budget;
use crate::arguments::describe::{describe, describe_instead_of};
use crate::arguments::matching::{
    has_type, is_in_range, is_infinite, is_one_of, is_tag, narrowed, probable_choices,
};
use crate::arguments::{MAX_REPORT_BYTES, Members, Target};
use crate::schema::{Kind, Length, Node, NodeId, Shape, integer};

/// The maximum number of schemas, and of arguments, that the validator decides about. Each of their schemas must be compiled.
const MAX_VALIDATORS: usize = 64;

/// The maximum number of members of an alternative that can be its tag.
const MAX_TAGS: usize = 4;

/// The maximum number of alternatives that a mistake lists.
const MAX_CHOICES: usize = 100;

/// The mistakes that a [`Walk`] looks for.
#[derive(Clone, Copy)]
pub(super) enum Rules<'d> {
    Limits,
    All(&'d dyn Target),
}

/// A walk through a value and the schemas that describe it.
pub(super) struct Walk<'w> {
    shape: &'w Shape,
    rules: Rules<'w>,
    /// The text of the whole value.
    text: &'w str,
    path: String,
    /// The steps from the whole value to the current one.
    steps: Vec<Step>,
    pub(super) mistakes: Vec<Mistake>,
    /// Some parts of the value were not reached.
    pub(super) is_incomplete: bool,
    /// The current schema describes only a part of an object: others describe the same object.
    is_part: bool,
    /// The current value is in a part of a struct that its type has flattened, so it is read after the other members.
    is_flattened: bool,
    /// Some part of the value is not of the type that its schema describes, so the value belongs to another alternative.
    is_mismatched: bool,
    budget: Budget,
    /// The validators of the validator about the members by pattern, or else about the other keywords, of a schema.
    validators: HashMap<(NodeId, bool), Option<IsValid>>,
    /// The number of validators about whole arguments.
    argument_validations: usize,
}

/// A step into a value.
enum Step {
    Member(String),
    /// An item of a list whose items have the same type.
    Item(usize),
    /// An item of a tuple.
    Field(usize),
}

impl<'w> Walk<'w> {
    pub(super) fn new(shape: &'w Shape, rules: Rules<'w>, path: &str, text: &'w str) -> Self {
        Self {
            shape,
            rules,
            text,
            path: path.into(),
            steps: Vec::new(),
            mistakes: Vec::new(),
            is_incomplete: false,
            is_part: false,
            is_flattened: false,
            is_mismatched: false,
            budget: Budget::for_text(text),
            validators: HashMap::new(),
            argument_validations: 0,
        }
    }

    fn finds_all(&self) -> bool {
        matches!(self.rules, Rules::All(_))
    }

    fn validator(&self) -> Option<&'w dyn SchemaValidator> {
        match self.rules {
            Rules::All(target) => target.validator(),
            Rules::Limits => None,
        }
    }

    fn is_full(&self) -> bool {
        self.mistakes.iter().map(|mistake| mistake.text.len()).sum::<usize>() > MAX_REPORT_BYTES
    }

    /// Reports a mistake at the current path and returns it, unless there is one already.
    fn report(&mut self, text: String, value: &str) -> Option<&mut Mistake> {
        if self.mistakes.iter().any(|mistake| mistake.path == self.path) {
            return None;
        }
        let (path, start) = (self.path.clone(), offset_in(self.text, value));
        let span = start..start + value.len();
        self.mistakes.push(Mistake { is_flattened: self.is_flattened, ..Mistake::new(path, text, span) });
        self.mistakes.last_mut()
    }

    /// Reports that a value is not what its schema describes.
    fn report_value(&mut self, node: NodeId, value: &str) -> Option<&mut Mistake> {
        let described = self.shape.node(node);
        let expected = if self.is_too_large(described, value) {
            format!("an integer from {} to {}", i64::MIN, u64::MAX)
        } else {
            describe_instead_of(self.shape, node, value)
        };
        let has_limit = described.limits.items != Length::default() || !described.others.is_empty();
        let found = match serde_json::from_str::<Vec<&RawValue>>(value) {
            Ok(items) if has_limit => format!("a list of {}", items.len()),
            _ => quote(value),
        };
        let mistake = unexpected_value(&self.path, &expected, &found);
        self.report(mistake, value)
    }

    /// Reports that the limits of a value are not enforced in all of its parts.
    pub(super) fn report_undecided(&mut self, value: &str) {
        let text = match &*self.path {
            "" => "they are nested too deeply to check their limits".into(),
            path => format!("`{path}` is nested too deeply to check its limits"),
        };
        self.report(text, value);
    }

    /// Takes a step to a part of the value.
    fn step(&mut self, step: Step, walk: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        match &step {
            Step::Member(name) if length == 0 => self.path.push_str(name),
            Step::Member(name) => self.path.extend([".", name]),
            Step::Item(index) | Step::Field(index) => self.path.push_str(&format!("[{index}]")),
        }
        self.steps.push(step);
        let was_part = std::mem::take(&mut self.is_part);
        walk(self);
        self.is_part = was_part;
        self.steps.pop();
        self.path.truncate(length);
    }

    pub(super) fn value(&mut self, id: NodeId, text: &str, depth: usize) {
        if self.is_full() {
            return;
        }
        if self.budget.spend(text.len(), depth).is_none() {
            self.is_incomplete = true;
            return;
        }
        let node = self.shape.node(id);
        if node.is_never {
            if self.finds_all() {
                self.report(format!("`{}` must be left out", self.path), text);
            }
            return;
        }
        let was_part = self.is_part;
        self.is_part |= !node.all.is_empty() || !(node.choices.is_empty() || node.only_has_choices());
        self.described_value(id, text, depth);
        self.is_part = was_part;
    }

    fn described_value(&mut self, id: NodeId, text: &str, depth: usize) {
        let node = self.shape.node(id);
        let found_before = self.mistakes.len();
        for part in &node.all {
            self.value(*part, text, depth + 1);
        }
        if !has_type(node, text) {
            if self.finds_all() {
                self.report_value(id, text);
            }
            match self.is_positional(node, text) {
                true => self.fields(node, text, depth),
                false => self.is_mismatched = true,
            }
            return;
        }
        self.beside_properties(node, |walk| walk.choices(id, text, depth));
        if self.mistakes.len() > found_before && node.properties.is_empty() {
            return;
        }
        let is_known = is_one_of(node, text);
        self.is_mismatched |= !is_known;
        let is_readable = !self.is_too_large(node, text) && !is_infinite(text);
        let is_valid = is_known && is_in_range(node, text) && is_readable;
        if self.finds_all() && !is_valid {
            self.report_value(id, text);
        } else if !node.limits.allow(text)
            && let Some(mistake) = self.report_value(id, text)
        {
            mistake.is_limit = true;
        }
        match Kind::of(text) {
            Some(Kind::Object) => self.members(id, text, depth),
            Some(Kind::Array) => self.items(id, text, depth),
            _ => {}
        }
        if self.mistakes.len() == found_before && !self.schema_accepts((id, false), &node.others, text) {
            self.report_value(id, text);
        }
    }

    /// Walks through what a struct has flattened, which its schema describes beside its properties.
    fn beside_properties(&mut self, node: &Node, walk: impl FnOnce(&mut Self)) {
        let was_flattened = self.is_flattened;
        self.is_flattened |= !node.properties.is_empty();
        walk(self);
        self.is_flattened = was_flattened;
    }

    /// Returns `true` if the validator cannot read an integer, because it has more than 64 bits. Without a type, or as a `number`, it
    /// can be any number.
    fn is_too_large(&self, node: &Node, text: &str) -> bool {
        let is_integer =
            Kind::of(text) == Some(Kind::Number) && node.types.is_some() && !node.names_type("number");
        let too_large = |integer: &str| integer.parse::<i64>().is_err() && integer.parse::<u64>().is_err();
        self.validator().is_some() && is_integer && integer(text).is_some_and(|integer| too_large(&integer))
    }

    /// Walks through the alternatives that can describe the value, of which one must hold.
    fn choices(&mut self, id: NodeId, text: &str, depth: usize) {
        let node = self.shape.node(id);
        if node.choices.is_empty() {
            return;
        }
        let may_hold = |choice: &Node| has_type(choice, text) || self.is_positional(choice, text);
        let choices = probable_choices(self.shape, node, text, may_hold);
        if self.finds_all() && self.report_tag(node, text) {
            return;
        }
        // Of several objects, the one that has all of the names was probably meant.
        let choices = match serde_json::from_str(text) {
            Ok(Members(members)) if self.finds_all() => narrowed(self.shape, choices, |choice| {
                members.iter().all(|(name, _)| choice.properties.contains_key(&**name))
            }),
            _ => choices,
        };
        // The value is a name that none of the alternatives has.
        if self.finds_all() && choices.iter().all(|choice| !is_one_of(self.shape.node(*choice), text)) {
            self.report_value(id, text);
            return;
        }
        match *choices {
            [] => {
                self.is_mismatched = true;
                return;
            }
            [choice] => {
                let found_before = self.mistakes.len();
                self.value(choice, text, depth + 1);
                let found = self.mistakes.split_off(found_before);
                return self.add_or_report(found, choice, text);
            }
            _ => {}
        }
        let mut trials = Vec::new();
        for choice in choices {
            let was_incomplete = self.is_incomplete;
            let (found, is_mismatched) = self.attempt(|walk| walk.value(choice, text, depth + 1));
            if found.is_empty() && !is_mismatched {
                return;
            }
            // It does not hold in any case.
            self.is_incomplete = was_incomplete;
            trials.push((is_mismatched && !self.finds_all(), found));
        }
        // The alternative with the fewest mistakes was probably meant.
        trials.sort_by_key(|(is_mismatched, found)| (*is_mismatched, found.len()));
        match &*trials {
            [(_, first), (_, second), ..] if first.len() == second.len() && self.finds_all() => {
                self.report_value(id, text);
            }
            _ => self.add_or_report(trials.swap_remove(0).1, id, text),
        }
    }

    /// Walks without keeping what is found. Returns the mistakes, and whether the value is of another type.
    fn attempt(&mut self, walk: impl FnOnce(&mut Self)) -> (Vec<Mistake>, bool) {
        let before = std::mem::take(&mut self.mistakes);
        let was_mismatched = std::mem::take(&mut self.is_mismatched);
        walk(self);
        let found = std::mem::replace(&mut self.mistakes, before);
        (found, std::mem::replace(&mut self.is_mismatched, was_mismatched))
    }

    /// Adds the mistakes in an alternative, or reports the value if all of them are uncertain.
    fn add_or_report(&mut self, found: Vec<Mistake>, id: NodeId, text: &str) {
        if !found.is_empty() && found.iter().all(|mistake| mistake.is_uncertain) {
            self.report_value(id, text);
        } else {
            self.mistakes.extend(found);
        }
    }

    /// Reports that an object lacks the tag which all alternatives require, or has a value there that none of them has.
    fn report_tag(&mut self, node: &Node, text: &str) -> bool {
        let Ok(Members(members)) = serde_json::from_str(text) else { return false };
        let choices = node.choices.iter().map(|choice| self.shape.node(*choice));
        let choices: Vec<_> = choices.filter(|choice| !choice.is_never && has_type(choice, text)).collect();
        let [first, _, ..] = &*choices else { return false };
        let tag_of = |choice: &Node, name: &String| {
            let tag = choice.properties.get(name).map(|property| self.shape.node(property.node))?;
            (is_tag(tag) && choice.is_required(name)).then(|| tag.constants.clone()).flatten()
        };
        let names = first.names.iter().filter(|name| tag_of(first, name).is_some()).take(MAX_TAGS);
        let mut tags = names.filter_map(|name| {
            let constants: Option<Vec<_>> = choices.iter().map(|choice| tag_of(choice, name)).collect();
            Some((name, Node { constants: Some(constants?.concat()), ..Node::default() }))
        });
        let Some((name, tag)) = tags.next() else { return false };
        let given = members.iter().find(|(other, _)| other == name).map(|(_, value)| value.get());
        if given.is_some_and(|value| is_one_of(&tag, value)) {
            return false;
        }
        let names = tag.constants.iter().flatten().take(MAX_CHOICES).map(Value::to_string);
        let expected = format!("one of {}", names.collect::<Vec<_>>().join(", "));
        self.step(Step::Member(name.clone()), |walk| {
            let mistake = match given {
                Some(value) => unexpected_value(&walk.path, &expected, &quote(value)),
                None => missing_value(&walk.path, &expected, None),
            };
            walk.report(mistake, given.unwrap_or(text));
        });
        true
    }

    /// Returns `true` if the value can be a struct whose fields are in a list, which its type accepted.
    fn is_positional(&self, node: &Node, text: &str) -> bool {
        !self.finds_all() && node.names_type("object") && Kind::of(text) == Some(Kind::Array)
    }

    /// Walks through the fields of a struct that are in a list.
    fn fields(&mut self, node: &Node, text: &str, depth: usize) {
        let Ok(values) = serde_json::from_str::<Vec<&RawValue>>(text) else { return };
        // With more values, the schema does not list all fields.
        if values.len() > node.names.len() {
            self.is_mismatched = true;
            return;
        }
        let fields = node.names.iter().filter_map(|name| node.properties.get(name));
        let (tags, others): (Vec<_>, Vec<_>) =
            fields.map(|field| field.node).partition(|field| is_tag(self.shape.node(*field)));
        for (index, (value, field)) in values.iter().zip(tags.into_iter().chain(others)).enumerate() {
            self.step(Step::Field(index), |walk| walk.value(field, value.get(), depth + 1));
        }
    }

    fn members(&mut self, id: NodeId, text: &str, depth: usize) {
        let Ok(Members(members)) = serde_json::from_str(text) else { return };
        let node = self.shape.node(id);
        if self.finds_all() {
            self.missing_members(node, &members, text);
        }
        for (name, value) in &members {
            if self.is_full() {
                return;
            }
            let (found_before, enclosing) = (self.mistakes.len(), self.path.len());
            self.step(Step::Member(name.to_string()), |walk| {
                walk.member(id, name, value.get(), (depth, enclosing));
            });
            // An argument that the validator accepts has no mistakes.
            let is_argument = self.path.is_empty() && self.mistakes.len() > found_before;
            if is_argument && self.is_valid_argument(name, value.get()) == Some(true) {
                self.mistakes.truncate(found_before);
            }
        }
        if !self.finds_all() && !self.is_part {
            self.unlisted_members(node, &members, depth);
        }
    }

    /// Checks the members that the type has read under names which the schema does not list, such as those of
    /// `#[serde(alias)]`. Each stands for one of the properties that are absent, and must be within the limits of one of them.
    fn unlisted_members(&mut self, node: &Node, members: &[(Cow<'_, str>, &RawValue)], depth: usize) {
        let is_open = node.additional.is_some_and(|additional| !self.shape.node(additional).is_never);
        if is_open || node.by_pattern.is_some() {
            return;
        }
        let given: HashSet<&str> = members.iter().map(|(name, _)| &**name).collect();
        let absent = node.names.iter().filter(|name| !given.contains(name.as_str()));
        let absent: Vec<_> = absent.filter_map(|name| node.properties.get(name)).collect();
        let is_unlisted = |(name, _): &&(Cow<'_, str>, &RawValue)| !node.properties.contains_key(&**name);
        for (name, value) in members.iter().filter(is_unlisted) {
            if self.is_full() || self.is_incomplete {
                return;
            }
            let mut exceeded = Vec::new();
            for property in &absent {
                let (found, is_mismatched) = self.attempt(|walk| {
                    walk.step(Step::Member(name.to_string()), |walk| {
                        walk.value(property.node, value.get(), depth + 1);
                    });
                });
                if found.is_empty() && !is_mismatched {
                    exceeded.clear();
                    break;
                }
                exceeded = if exceeded.is_empty() { found } else { exceeded };
            }
            self.mistakes.extend(exceeded);
        }
    }

    /// Reports the arguments that the validator refuses, without their parts: they are too deep or too large for the walk.
    pub(super) fn whole_arguments(&mut self, id: NodeId, text: &str) {
        let Ok(Members(members)) = serde_json::from_str(text) else { return };
        let node = self.shape.node(id);
        for (name, value) in &members {
            let Some(property) = node.properties.get(&**name) else { continue };
            if self.is_valid_argument(name, value.get()) == Some(false) {
                self.step(Step::Member(name.to_string()), |walk| {
                    walk.report_value(property.node, value.get());
                });
            }
        }
    }

    /// Returns the validator of the validator about an argument, if there is one.
    fn is_valid_argument(&mut self, name: &str, value: &str) -> Option<bool> {
        let validator = self.validator().filter(|_| self.argument_validations < MAX_VALIDATORS)?;
        self.argument_validations += 1;
        let accepts = validator.validator_of_argument(name)?;
        Some(accepts(value))
    }

    fn missing_members(&mut self, node: &Node, members: &[(Cow<'_, str>, &RawValue)], text: &str) {
        let names: HashSet<&str> = members.iter().map(|(name, _)| &**name).collect();
        let missing: Vec<_> = node.required.iter().filter(|name| !names.contains(name.as_str())).collect();
        // A name that the schema does not list can be another name of one that it requires.
        let is_other_name = |(name, value): &(Cow<'_, str>, &RawValue)| {
            node.member(name).is_none() && self.has_member(&self.steps, name, value.get())
        };
        // In a part of an object, it is probably one of the others.
        let is_uncertain = !missing.is_empty() && !self.is_part && members.iter().any(is_other_name);
        for name in missing {
            if self.is_full() {
                return;
            }
            self.step(Step::Member(name.clone()), |walk| {
                let property = node.properties.get(name);
                let expected =
                    property.map_or("a value".into(), |property| describe(walk.shape, property.node));
                let description = property.and_then(|property| property.description.as_deref());
                if let Some(mistake) = walk.report(missing_value(&walk.path, &expected, description), text) {
                    mistake.is_uncertain = is_uncertain;
                }
            });
        }
    }

    /// Returns `true` if the type has a member of this name in the object that the steps lead to, whatever the schema says.
    fn has_member(&self, steps: &[Step], name: &str, value: &str) -> bool {
        let Rules::All(target) = self.rules else { return true };
        // Nothing but this member and what encloses it, so that no other mistake is in its way.
        let (mut start, mut end) = (String::new(), String::new());
        for step in steps {
            match step {
                Step::Member(name) => start.extend(["{", &Value::from(&**name).to_string(), ":"]),
                Step::Item(_) => start.push('['),
                // The text would need the fields before it.
                Step::Field(_) => return true,
            }
            end.insert(0, if matches!(step, Step::Member(_)) { '}' } else { ']' });
        }
        start.push('{');
        let quoted = Value::from(name).to_string();
        let name = start.len()..start.len() + quoted.len();
        target.has_member(&format!("{start}{quoted}:{value}}}{end}"), name)
    }

    /// Walks through a member. The first `enclosing` bytes of its path are those of its object.
    fn member(&mut self, id: NodeId, name: &str, value: &str, (depth, enclosing): (usize, usize)) {
        let node = self.shape.node(id);
        if let Some(property) = node.properties.get(name) {
            return self.value(property.node, value, depth + 1);
        }
        if let Some(by_pattern) = &node.by_pattern {
            let member = format!("{{{}:{value}}}", Value::from(name));
            if !self.schema_accepts((id, true), by_pattern, &member) {
                let found_before = self.mistakes.len();
                if let Some(of_values) = node.additional {
                    self.value(of_values, value, depth + 1);
                }
                if self.mistakes.len() == found_before {
                    let expected = "what `patternProperties` of the schema allows";
                    self.report(unexpected_value(&self.path, expected, &quote(value)), value);
                }
            }
            return;
        }
        let additional = node.additional.filter(|additional| !self.shape.node(*additional).is_never);
        if let Some(additional) = additional {
            return self.beside_properties(node, |walk| walk.value(additional, value, depth + 1));
        }
        let enclosing = self.path.get(..enclosing).unwrap_or_default();
        // Unknown arguments of the tool are reported by the caller.
        if !self.finds_all() || enclosing.is_empty() {
            return;
        }
        let is_unknown = node.additional.is_none();
        let steps = self.steps.split_last().map_or(&[][..], |(_, steps)| steps);
        let may_be_known = || node.properties.is_empty() || self.validator().is_some();
        if is_unknown && (may_be_known() || self.has_member(steps, name, value)) {
            return;
        }
        let mistake = unknown_member(enclosing, name, &node.names);
        if let Some(mistake) = self.report(mistake, value) {
            mistake.is_unknown = is_unknown;
        }
    }

    fn items(&mut self, id: NodeId, text: &str, depth: usize) {
        let Ok(values) = serde_json::from_str::<Vec<&RawValue>>(text) else { return };
        let node = self.shape.node(id);
        for (index, value) in values.iter().enumerate() {
            let Some(item) = node.item(index).filter(|_| !self.is_full()) else { return };
            let step = if node.prefix.is_empty() { Step::Item(index) } else { Step::Field(index) };
            self.step(step, |walk| walk.value(item, value.get(), depth + 1));
        }
    }

    /// Returns the validator of the validator about a part of a schema, or `true` if there is none.
    fn schema_accepts(&mut self, id: (NodeId, bool), part: &Map<String, Value>, text: &str) -> bool {
        let Some(validator) = self.validator().filter(|_| !part.is_empty()) else { return true };
        if self.validators.len() == MAX_VALIDATORS && !self.validators.contains_key(&id) {
            return true;
        }
        let validator =
            self.validators.entry(id).or_insert_with(|| validator.validator_of_part(part.clone()));
        validator.as_ref().is_none_or(|is_valid| is_valid(text))
    }
}
