//! A walk through a value and its schema side by side, which collects mistakes with their paths.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::mistake::{Mistake, MistakeKind};
use crate::arguments::budget::Budget;
use crate::arguments::describe::describe_instead_of;
use crate::arguments::members::{items, offset_in};
use crate::arguments::report::MAX_REPORT_BYTES;
use crate::arguments::target::Ignorance;
use crate::arguments::validators::{Part, SchemaValidator, Validators};
use crate::arguments::wording::{quote, unexpected_value};
use crate::schema::{Kind, Length, NodeId, Shape, ShapeNode, integer};

/// The maximum number of schemas that are visited for the names of one object.
const MAX_PARTS: usize = 1000;

/// A walk through a value and the schemas that describe it.
pub(super) struct Walk<'w> {
    pub(super) shape: &'w Shape,
    /// The text of the whole value.
    pub(super) text: &'w str,
    pub(super) path: String,
    pub(super) mistakes: Vec<Mistake>,
    /// Some parts of the value were not reached.
    pub(super) is_incomplete: bool,
    pub(super) budget: Budget,
    /// What the type ignores.
    pub(super) ignorance: Ignorance,
    /// The validators of the schema. `None` if a type decides.
    pub(super) validators: Option<Validators<'w>>,
    /// The schema that describes the current object as a whole: others can describe parts of it.
    pub(super) object: Option<NodeId>,
    /// Whether schemas describe the values at positions of the text.
    pub(super) fitting: HashMap<(NodeId, usize), bool>,
}

/// A step into a value.
pub(super) enum Step<'n> {
    Member(&'n str),
    Item(usize),
}

impl<'w> Walk<'w> {
    pub(super) fn new(
        shape: &'w Shape,
        path: &str,
        text: &'w str,
        ignorance: Ignorance,
        validator: Option<&'w dyn SchemaValidator>,
    ) -> Self {
        Self {
            shape,
            text,
            path: path.into(),
            mistakes: Vec::new(),
            is_incomplete: false,
            budget: Budget::for_text(text),
            ignorance,
            validators: validator.map(Validators::new),
            object: None,
            fitting: HashMap::new(),
        }
    }

    /// Returns `true` if the validator accepts a part of a schema, or if there is none.
    pub(super) fn schema_accepts(
        &mut self,
        id: NodeId,
        part: Part,
        schema: &Map<String, Value>,
        text: &str,
    ) -> bool {
        let validators = self.validators.as_mut().filter(|_| !schema.is_empty());
        validators.is_none_or(|validators| validators.accepts(id, part, schema, text))
    }

    pub(super) fn is_full(&self) -> bool {
        self.mistakes.iter().map(|mistake| mistake.text.len()).sum::<usize>() > MAX_REPORT_BYTES
    }

    /// Reports a mistake in a value at the current path, unless there is one already.
    pub(super) fn report(&mut self, text: String, value: &str) {
        self.report_as(MistakeKind::Wrong, text, value);
    }

    pub(super) fn report_as(&mut self, kind: MistakeKind, text: String, value: &str) {
        if self.mistakes.iter().all(|mistake| mistake.path != self.path) {
            let start = offset_in(self.text, value);
            let span = start..start + value.len();
            self.mistakes.push(Mistake { path: self.path.clone(), text, span, kind });
        }
    }

    /// Reports that a value is not what its schema describes.
    pub(super) fn report_value(&mut self, node: NodeId, value: &str) {
        let described = self.shape.node(node);
        let expected = if self.is_too_large(described, value) {
            format!("an integer from {} to {}", i64::MIN, u64::MAX)
        } else {
            describe_instead_of(self.shape, node, value)
        };
        let has_limit = described.limits.items != Length::default() || !described.others.is_empty();
        let found = match Kind::of(value) {
            Some(Kind::Array) if has_limit => format!("a list of {}", items(value).len()),
            _ => quote(value),
        };
        self.report(unexpected_value(&self.path, &expected, &found), value);
    }

    /// Returns `true` if an integer has more than 64 bits, which validators cannot read. Without a type, or as a `number`, it can be
    /// any number.
    pub(super) fn is_too_large(&self, node: &ShapeNode, text: &str) -> bool {
        let is_integer =
            Kind::of(text) == Some(Kind::Number) && node.types.is_some() && !node.names_type("number");
        let too_large = |integer: &str| integer.parse::<i64>().is_err() && integer.parse::<u64>().is_err();
        self.validators.is_some() && is_integer && integer(text).is_some_and(|integer| too_large(&integer))
    }

    /// Takes a step to a part of the value.
    pub(super) fn step<R>(&mut self, step: Step<'_>, walk: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.path.len();
        match step {
            Step::Member(name) if length == 0 => self.path.push_str(name),
            Step::Member(name) => self.path.extend([".", name]),
            Step::Item(index) => self.path.push_str(&format!("[{index}]")),
        }
        let object = self.object.take();
        let result = walk(self);
        self.object = object;
        self.path.truncate(length);
        result
    }

    /// Walks without adding the mistakes that are found, which are returned.
    pub(super) fn tentatively<R>(&mut self, walk: impl FnOnce(&mut Self) -> R) -> (R, Vec<Mistake>) {
        let before = std::mem::take(&mut self.mistakes);
        let result = walk(self);
        (result, std::mem::replace(&mut self.mistakes, before))
    }

    /// Returns the schemas of an object that a schema consists of: itself, those that hold at the same time, and its alternatives.
    pub(super) fn parts_of(&self, id: NodeId) -> impl Iterator<Item = &'w ShapeNode> + use<'w> {
        let (mut seen, mut waiting, mut parts) = (HashSet::new(), vec![id], Vec::new());
        while let Some(id) = waiting.pop().filter(|_| seen.len() < MAX_PARTS) {
            if seen.insert(id) {
                let node = self.shape.node(id);
                parts.push(node);
                waiting.extend(node.all.iter().chain(&node.choices));
            }
        }
        parts.into_iter()
    }
}
