//! The alternatives of a schema (`anyOf` and `oneOf`). One of them was probably meant.

use serde_json::Value;

use super::mistake::{Mistake, MistakeKind};
use super::walk::{Step, Walk};
use crate::arguments::matching::{has_type, is_one_of, is_tag, narrowed, probable_choices};
use crate::arguments::members::Members;
use crate::arguments::wording::{missing_value, quote, unexpected_value};
use crate::schema::{NodeId, ShapeNode};

/// The maximum number of members of an alternative that can be its tag.
const MAX_TAGS: usize = 4;

/// The maximum number of alternatives that a mistake lists.
const MAX_CHOICES: usize = 100;

impl Walk<'_> {
    /// Walks through the alternatives that can describe the value. One of them must hold.
    pub(super) fn choices(&mut self, id: NodeId, text: &str, depth: usize) {
        let node = self.shape.node(id);
        if node.choices.is_empty() {
            return;
        }
        let choices = probable_choices(self.shape, node, text, |choice| has_type(choice, text));
        if self.report_tag(node, text) {
            return;
        }
        // Of several objects, the one that has all of the names was probably meant.
        let Members(members) = Members::of(text);
        let choices = narrowed(self.shape, choices, |choice| {
            members.iter().all(|(name, _)| choice.properties.contains_key(&**name))
        });
        // The value is a name that none of the alternatives has.
        if choices.iter().all(|choice| !is_one_of(self.shape.node(*choice), text)) {
            self.report_value(id, text);
            return;
        }
        match *choices {
            [] => return,
            [choice] => {
                let found_before = self.mistakes.len();
                self.value(choice, text, depth + 1);
                if self.mistakes[found_before..].iter().all(Mistake::is_uncertain) {
                    self.mark_possible(found_before);
                }
                return;
            }
            _ => {}
        }
        let mut trials = Vec::new();
        for choice in choices {
            let was_incomplete = self.is_incomplete;
            let ((), found) = self.tentatively(|walk| walk.value(choice, text, depth + 1));
            if found.is_empty() {
                return;
            }
            // The alternative is refused, so what is unknown about it does not matter.
            self.is_incomplete = was_incomplete;
            trials.push(found);
        }
        // The alternative with the fewest mistakes was probably meant.
        trials.sort_by_key(Vec::len);
        let is_possible = trials.iter().any(|found| found.iter().all(Mistake::is_uncertain));
        let is_tie = matches!(&*trials, [first, second, ..] if first.len() == second.len());
        if !is_possible && !is_tie {
            return self.mistakes.extend(trials.swap_remove(0));
        }
        let found_before = self.mistakes.len();
        self.report_value(id, text);
        if is_possible {
            self.mark_possible(found_before);
        }
    }

    /// Marks the mistakes from an index on as possible ones.
    fn mark_possible(&mut self, from: usize) {
        self.mistakes[from..].iter_mut().for_each(|mistake| mistake.kind = MistakeKind::Possible);
    }

    /// Reports that an object lacks the tag which all alternatives require, or has a value there that none of them has.
    pub(super) fn report_tag(&mut self, node: &ShapeNode, text: &str) -> bool {
        let Members(members) = Members::of(text);
        let choices = node.choices.iter().map(|choice| self.shape.node(*choice));
        let choices: Vec<_> = choices.filter(|choice| !choice.is_never && has_type(choice, text)).collect();
        let [first, _, ..] = &*choices else { return false };
        let tag_of = |choice: &ShapeNode, name: &String| {
            let tag = choice.properties.get(name).map(|property| self.shape.node(property.node))?;
            (is_tag(tag) && choice.is_required(name)).then(|| tag.constants.clone()).flatten()
        };
        let names = first.names.iter().filter(|name| tag_of(first, name).is_some()).take(MAX_TAGS);
        let mut tags = names.filter_map(|name| {
            let constants: Option<Vec<_>> = choices.iter().map(|choice| tag_of(choice, name)).collect();
            Some((name, ShapeNode { constants: Some(constants?.concat()), ..ShapeNode::default() }))
        });
        let Some((name, tag)) = tags.next() else { return false };
        let given = members.iter().find(|(other, _)| other == name).map(|(_, value)| *value);
        if given.is_some_and(|value| is_one_of(&tag, value)) {
            return false;
        }
        let names = tag.constants.iter().flatten().take(MAX_CHOICES).map(Value::to_string);
        let expected = format!("one of {}", names.collect::<Vec<_>>().join(", "));
        self.step(Step::Member(name), |walk| match given {
            Some(value) => walk.report(unexpected_value(&walk.path, &expected, &quote(value)), value),
            None => walk.report_as(MistakeKind::Missing, missing_value(&walk.path, &expected, None), text),
        });
        true
    }
}
