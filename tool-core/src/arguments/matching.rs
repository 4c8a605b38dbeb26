//! Comparisons of a value with a single schema, and the choice among its alternatives.

use std::borrow::Cow;

use serde_json::Value;

use super::members::Members;
use crate::schema::{Kind, NodeId, Shape, ShapeNode, integer};

/// Returns the alternatives of a schema that probably describe a value, among those that may hold: by its tags, or else by its
/// names.
pub(super) fn probable_choices(
    shape: &Shape,
    node: &ShapeNode,
    text: &str,
    may_hold: impl Fn(&ShapeNode) -> bool,
) -> Vec<NodeId> {
    let Members(members) = Members::of(text);
    let has_tags =
        |choice: &ShapeNode| is_one_of(choice, text) && has_tags(shape, choice, &members, is_one_of);
    let has_similar_tags =
        |choice: &ShapeNode| has_tags(choice) || self::has_tags(shape, choice, &members, is_similar);
    let has_required = |choice: &ShapeNode| {
        choice.required.iter().all(|name| members.iter().any(|(other, _)| other == name))
    };
    let choices = node.choices.iter().copied();
    let choices = choices.filter(|choice| !shape.node(*choice).is_never && may_hold(shape.node(*choice)));
    let tagged = narrowed(shape, narrowed(shape, choices.collect(), has_tags), has_similar_tags);
    narrowed(shape, tagged, has_required)
}

/// Returns the alternatives that satisfy the predicate, or all of them if none does.
pub(super) fn narrowed(
    shape: &Shape,
    choices: Vec<NodeId>,
    predicate: impl Fn(&ShapeNode) -> bool,
) -> Vec<NodeId> {
    let narrowed: Vec<_> = choices.iter().copied().filter(|choice| predicate(shape.node(*choice))).collect();
    if narrowed.is_empty() { choices } else { narrowed }
}

/// Returns `true` if the members that have a constant value in the schema, the tags of a variant, have this value.
fn has_tags(
    shape: &Shape,
    node: &ShapeNode,
    members: &[(Cow<'_, str>, &str)],
    is_one_of: fn(&ShapeNode, &str) -> bool,
) -> bool {
    members.iter().all(|(name, value)| match node.properties.get(&**name) {
        Some(property) if is_tag(shape.node(property.node)) => is_one_of(shape.node(property.node), value),
        _ => true,
    })
}

/// Returns `true` if only one value is valid.
pub(super) fn is_tag(node: &ShapeNode) -> bool {
    node.constants.as_ref().is_some_and(|constants| constants.len() == 1)
}

/// Returns `true` if the value has the `type`, if there is one.
pub(super) fn has_type(node: &ShapeNode, text: &str) -> bool {
    let matches = |name: &str| match (name, Kind::of(text)) {
        ("integer", Some(Kind::Number)) => {
            integer(text).is_some_and(|integer| !node.is_plain_integer || integer == text)
        }
        (name, kind) => kind.is_some_and(|kind| kind.name() == name),
    };
    node.types.as_ref().is_none_or(|types| types.iter().any(|name| matches(name)))
}

/// Returns `true` if a number is too large to be read.
pub(super) fn is_infinite(text: &str) -> bool {
    Kind::of(text) == Some(Kind::Number) && serde_json::from_str::<f64>(text).is_err()
}

/// Returns `true` if an integer is in the range of its type.
pub(super) fn is_in_range(node: &ShapeNode, text: &str) -> bool {
    let Some((lowest, highest)) = node.range.filter(|_| Kind::of(text) == Some(Kind::Number)) else {
        return true;
    };
    let in_range =
        |integer: &str| integer.parse::<i128>().is_ok_and(|integer| (lowest..=highest).contains(&integer));
    integer(text).is_some_and(|integer| in_range(&integer))
}

/// Returns `true` if `enum` and `const` allow the value, if they are present.
pub(super) fn is_one_of(node: &ShapeNode, text: &str) -> bool {
    let Some(constants) = &node.constants else { return true };
    let Ok(value) = serde_json::from_str::<Value>(text) else { return true };
    let is_equal = |other: &Value| *other == value || (other.is_number() && other.as_f64() == value.as_f64());
    constants.iter().any(is_equal)
}

/// Returns `true` if `enum` or `const` allows the value in another case.
fn is_similar(node: &ShapeNode, text: &str) -> bool {
    let Ok(value) = serde_json::from_str::<String>(text) else { return false };
    let names = node.constants.iter().flatten().filter_map(Value::as_str);
    names.map(str::to_lowercase).any(|name| name == value.to_lowercase())
}
