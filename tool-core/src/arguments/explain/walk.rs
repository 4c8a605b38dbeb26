//! The walk through a value and its schema, which finds the mistakes.
//!
//! Of a value that was refused, everything is reported that its schema refuses. The limits of a value that was read are in `limits`.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::limits::Fit;
use super::validators::{Part, Validators};
use super::wording::{missing_value, quote, unexpected_value, unknown_member, unmatched_member};
use super::{Mistake, offset_in};
use crate::arguments::budget::Budget;
use crate::arguments::describe::{describe, describe_instead_of};
use crate::arguments::matching::{has_type, is_in_range, is_infinite, is_one_of, is_tag};
use crate::arguments::{MAX_REPORT_BYTES, Members, Target};
use crate::schema::{Kind, Length, Node, NodeId, Shape, integer};

/// The length of a member for which it is found out whether a type has flattened it. That reads it once per level.
const MAX_FLATTENED_BYTES: usize = 1 << 12;

/// A walk through a value and the schemas that describe it.
pub(super) struct Walk<'w> {
    pub(super) shape: &'w Shape,
    /// What refused the value. `None` for a value that was read.
    target: Option<&'w dyn Target>,
    /// The text of the whole value.
    pub(super) text: &'w str,
    pub(super) path: String,
    /// The steps from the whole value to the current one.
    steps: Vec<Step>,
    pub(super) mistakes: Vec<Mistake>,
    /// The positions of lists whose items have one type.
    pub(super) lists: HashSet<usize>,
    /// Some parts of the value were not reached.
    pub(super) is_incomplete: bool,
    /// The current schema describes only a part of an object: others describe the same object.
    is_part: bool,
    /// The end of the outermost struct that has flattened the current value, whose type reads it after the other members.
    flattened_until: Option<usize>,
    pub(super) budget: Budget,
    /// The current value has a name that its schema does not list.
    pub(super) is_unlisted: bool,
    /// The values that were read under such names, by their schemas and positions, with their mistakes.
    pub(super) read: HashMap<(NodeId, usize), (Fit, Vec<Mistake>)>,
    /// The validators of the schema. `None` if a type decides.
    validators: Option<Validators<'w>>,
}

/// An object whose members are walked through.
struct Object<'t> {
    node: NodeId,
    text: &'t str,
    depth: usize,
    /// The length of its path.
    path: usize,
    /// The value that decides how its type reads the members in front of it.
    tag: Option<&'t str>,
}

/// A step into a value.
pub(super) enum Step {
    Member(String),
    /// An item of a list whose items have the same type.
    Item(usize),
    /// An item of a tuple.
    Field(usize),
}

impl<'w> Walk<'w> {
    pub(super) fn new(shape: &'w Shape, target: Option<&'w dyn Target>, path: &str, text: &'w str) -> Self {
        let validators = target.and_then(Target::validator).map(Validators::new);
        Self {
            shape,
            target,
            text,
            path: path.into(),
            steps: Vec::new(),
            mistakes: Vec::new(),
            lists: HashSet::new(),
            is_incomplete: false,
            is_part: false,
            flattened_until: None,
            budget: Budget::for_text(text),
            is_unlisted: false,
            read: HashMap::new(),
            validators,
        }
    }

    /// Returns `true` if the validator accepts a part of a schema, or if there is none.
    fn schema_accepts(&mut self, id: NodeId, part: Part, schema: &Map<String, Value>, text: &str) -> bool {
        let validators = self.validators.as_mut().filter(|_| !schema.is_empty());
        validators.is_none_or(|validators| validators.accepts(id, part, schema, text))
    }

    /// Returns whether the validator accepts an argument as a whole, if that is known.
    fn is_valid_argument(&mut self, name: &str, value: &str) -> Option<bool> {
        self.validators.as_mut()?.accepts_argument(name, value)
    }

    pub(super) fn is_full(&self) -> bool {
        self.mistakes.iter().map(|mistake| mistake.text.len()).sum::<usize>() > MAX_REPORT_BYTES
    }

    /// Reports a mistake at the current path and returns it, unless there is one already.
    pub(super) fn report(&mut self, text: String, value: &str) -> Option<&mut Mistake> {
        if self.mistakes.iter().any(|mistake| mistake.path == self.path) {
            return None;
        }
        let (path, start) = (self.path.clone(), offset_in(self.text, value));
        let span = start..start + value.len();
        let read_until = self.flattened_until.unwrap_or(span.end);
        self.mistakes.push(Mistake { read_until, ..Mistake::new(path, text, span) });
        self.mistakes.last_mut()
    }

    /// Reports that a value is not what its schema describes.
    pub(super) fn report_value(&mut self, node: NodeId, value: &str) -> Option<&mut Mistake> {
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

    /// Reports a value that cannot be accepted, because the limits of some of its parts were not checked.
    pub(super) fn report_undecided(&mut self, value: &str) {
        let text = match &*self.path {
            "" => "they are nested too deeply to check their limits".into(),
            path => format!("`{path}` is nested too deeply to check its limits"),
        };
        self.report(text, value);
    }

    /// Takes a step to a part of the value.
    pub(super) fn step(&mut self, step: Step, walk: impl FnOnce(&mut Self)) {
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
            self.report(format!("`{}` must be left out", self.path), text);
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
            self.report_value(id, text);
            return;
        }
        self.beside_properties(node, text, |walk| walk.choices(id, text, depth));
        if self.mistakes.len() > found_before && node.properties.is_empty() {
            return;
        }
        self.value_without_parts(id, text);
        match Kind::of(text) {
            Some(Kind::Object) => self.members(id, text, depth),
            Some(Kind::Array) => self.items(id, text, depth),
            _ => {}
        }
        if self.mistakes.len() == found_before
            && !self.schema_accepts(id, Part::OtherKeywords, &node.others, text)
        {
            self.report_value(id, text);
        }
    }

    /// Reports a value that is not one of the `enum`, out of range, or exceeds a limit.
    fn value_without_parts(&mut self, id: NodeId, text: &str) {
        let node = self.shape.node(id);
        let is_readable = !self.is_too_large(node, text) && !is_infinite(text);
        let is_valid = is_one_of(node, text) && is_in_range(node, text) && is_readable;
        if !is_valid {
            self.report_value(id, text);
        } else if !node.limits.allow(text)
            && let Some(mistake) = self.report_value(id, text)
        {
            mistake.is_limit = true;
        }
    }

    /// Walks through what a struct has flattened, which its schema describes beside its properties.
    fn beside_properties(&mut self, node: &Node, object: &str, walk: impl FnOnce(&mut Self)) {
        let before = self.flattened_until;
        if !node.properties.is_empty() {
            let end = self.end_of(object);
            self.flattened_until.get_or_insert(end);
        }
        walk(self);
        self.flattened_until = before;
    }

    /// Returns `true` if an integer has more than 64 bits, which validators cannot read. Without a type, or as a `number`, it can be
    /// any number.
    fn is_too_large(&self, node: &Node, text: &str) -> bool {
        let is_integer =
            Kind::of(text) == Some(Kind::Number) && node.types.is_some() && !node.names_type("number");
        let too_large = |integer: &str| integer.parse::<i64>().is_err() && integer.parse::<u64>().is_err();
        self.validators.is_some() && is_integer && integer(text).is_some_and(|integer| too_large(&integer))
    }

    fn members(&mut self, id: NodeId, text: &str, depth: usize) {
        let Ok(Members(members)) = serde_json::from_str(text) else { return };
        let node = self.shape.node(id);
        self.missing_members(node, &members, text);
        let is_tag = |name: &str| {
            node.properties.get(name).is_some_and(|property| is_tag(self.shape.node(property.node)))
        };
        let tag = members.iter().find(|(name, _)| is_tag(name)).map(|(_, value)| value.get());
        let object = Object { node: id, text, depth, path: self.path.len(), tag };
        for (name, value) in &members {
            if self.is_full() {
                return;
            }
            let found_before = self.mistakes.len();
            self.step(Step::Member(name.to_string()), |walk| walk.member(&object, name, value.get()));
            // Where the walk and the validator differ, the validator decides.
            let is_argument = self.path.is_empty() && self.mistakes.len() > found_before;
            if is_argument && self.is_valid_argument(name, value.get()) == Some(true) {
                self.mistakes.truncate(found_before);
            }
        }
    }

    /// Reports which arguments the validator refuses, after a walk that did not reach the mistake because the arguments are too deep or
    /// too large.
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

    fn missing_members(&mut self, node: &Node, members: &[(Cow<'_, str>, &RawValue)], text: &str) {
        let names: HashSet<&str> = members.iter().map(|(name, _)| &**name).collect();
        let missing: Vec<_> = node.required.iter().filter(|name| !names.contains(name.as_str())).collect();
        // A name that the schema does not list can be another name of one that it requires.
        let is_other_name = |(name, value): &(Cow<'_, str>, &RawValue)| {
            node.member(name).is_none()
                && !(self.is_part && self.is_flattened(&self.steps, name, value.get()))
                && self.has_member(&self.steps, name, value.get())
        };
        // In a flattened part of an object, it is probably one of the others.
        let is_certain = self.is_part && (self.flattened_until.is_some() || node.properties.is_empty());
        let is_uncertain = !missing.is_empty() && !is_certain && members.iter().any(is_other_name);
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
                    (mistake.is_missing, mistake.is_uncertain) = (true, is_uncertain);
                }
            });
        }
    }

    /// Returns `true` if the type has a member of this name in the object that the steps lead to, whatever the schema says.
    fn has_member(&self, steps: &[Step], name: &str, value: &str) -> bool {
        let Some(target) = self.target else { return true };
        // Nothing but this member and what encloses it, so that no other mistake is in its way.
        let Some((start, end)) = enclosing_texts(steps) else { return true };
        let quoted = Value::from(name).to_string();
        let name = start.len()..start.len() + quoted.len();
        target.has_member(&format!("{start}{quoted}:{value}}}{end}"), name)
    }

    /// Returns `true` if the type of the object that the steps lead to has flattened a member, which it then reads after all others.
    fn is_flattened(&self, steps: &[Step], name: &str, value: &str) -> bool {
        let Some(target) = self.target else { return false };
        let Some((start, _)) = enclosing_texts(steps).filter(|_| value.len() <= MAX_FLATTENED_BYTES) else {
            return false;
        };
        // A type refuses a member of its own that is given twice, before it finds that the text ends.
        let member = format!("{}:{value}", Value::from(name));
        target.error(&format!("{start}{member},{member}")).is_some_and(|error| error.is_eof())
    }

    fn member(&mut self, object: &Object<'_>, name: &str, value: &str) {
        let Object { node: id, text, depth, path: enclosing, tag } = *object;
        let node = self.shape.node(id);
        if let Some(property) = node.properties.get(name) {
            let found_before = self.mistakes.len();
            self.value(property.node, value, depth + 1);
            if self.mistakes.len() > found_before {
                let read_until = match self.is_flattened(self.enclosing_steps(), name, value) {
                    true => self.end_of(text),
                    false => tag.map_or(0, |tag| self.end_of(tag)),
                };
                for mistake in self.mistakes.iter_mut().skip(found_before) {
                    mistake.read_until = mistake.read_until.max(read_until);
                }
            }
            return;
        }
        // Unknown arguments of the tool are reported by the caller.
        let reports_unknown = enclosing > 0;
        if reports_unknown && let Some(pattern) = node.unmatched_pattern(name) {
            let mistake = unmatched_member(self.part_of_path(enclosing), name, pattern);
            self.report(mistake, value);
            return;
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
                let mistake = match node.pattern_of_names() {
                    // The value is right, so the name is not.
                    Some(pattern) if reports_unknown => {
                        unmatched_member(self.part_of_path(enclosing), name, pattern)
                    }
                    _ => {
                        let expected = "what `patternProperties` of the schema allows";
                        unexpected_value(&self.path, expected, &quote(value))
                    }
                };
                self.report(mistake, value);
            }
            return;
        }
        let additional = node.additional.filter(|additional| !self.shape.node(*additional).is_never);
        if let Some(additional) = additional {
            return self.beside_properties(node, text, |walk| walk.value(additional, value, depth + 1));
        }
        if !reports_unknown {
            return;
        }
        let is_unknown = node.additional.is_none();
        let may_be_known = || node.properties.is_empty() || self.validators.is_some();
        if is_unknown && (may_be_known() || self.has_member(self.enclosing_steps(), name, value)) {
            return;
        }
        let mistake = unknown_member(self.part_of_path(enclosing), name, &node.names);
        if let Some(mistake) = self.report(mistake, value) {
            mistake.is_unknown = is_unknown;
        }
    }

    /// Returns the steps to the object that has the current value.
    fn enclosing_steps(&self) -> &[Step] {
        self.steps.split_last().map_or(&[], |(_, steps)| steps)
    }

    /// Returns the offset behind a part of the text.
    fn end_of(&self, part: &str) -> usize {
        offset_in(self.text, part) + part.len()
    }

    /// Returns the first bytes of the path, which lead to an enclosing value.
    fn part_of_path(&self, length: usize) -> &str {
        self.path.get(..length).unwrap_or_default()
    }

    fn items(&mut self, id: NodeId, text: &str, depth: usize) {
        let Ok(values) = serde_json::from_str::<Vec<&RawValue>>(text) else { return };
        let node = self.shape.node(id);
        if node.prefix.is_empty() && self.validators.is_none() {
            self.lists.insert(offset_in(self.text, text));
        }
        for (index, value) in values.iter().enumerate() {
            let Some(item) = node.item(index).filter(|_| !self.is_full()) else { return };
            let step = if node.prefix.is_empty() { Step::Item(index) } else { Step::Field(index) };
            self.step(step, |walk| walk.value(item, value.get(), depth + 1));
        }
    }
}

/// Returns the texts around the members of an object that the steps lead to: the first ends with its brace. Returns `None` for one
/// in a tuple, whose text would need the fields before it.
fn enclosing_texts(steps: &[Step]) -> Option<(String, String)> {
    let (mut start, mut end) = (String::new(), String::new());
    for step in steps {
        match step {
            Step::Member(name) => start.extend(["{", &Value::from(&**name).to_string(), ":"]),
            Step::Item(_) => start.push('['),
            Step::Field(_) => return None,
        }
        end.insert(0, if matches!(step, Step::Member(_)) { '}' } else { ']' });
    }
    start.push('{');
    Some((start, end))
}
