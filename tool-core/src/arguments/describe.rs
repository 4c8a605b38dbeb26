//! Descriptions for the model of what a schema expects.

use serde_json::Value;

use super::matching::{has_type, is_infinite};
use crate::content::first_chars;
use crate::schema::{Bound, Kind, Length, Limits, NodeId, Shape, ShapeNode, integer};

/// The maximum length of a description, in characters.
const MAX_CHARS: usize = 1000;

/// The range of an `f32`.
const F32_RANGE: &str = "a number from -3.4028235e38 to 3.4028235e38";

/// The range of an `f64`.
const F64_RANGE: &str = "a number from -1.7976931348623157e308 to 1.7976931348623157e308";

/// Describes briefly what a schema expects: `an integer from 0 to 255`, `one of "a", "b"`, `a list`.
pub(crate) fn describe(shape: &Shape, node: NodeId) -> String {
    cut(describe_value(shape, node, ""))
}

/// Describes what a schema expects in place of a value, with all constraints if the value has the right type.
pub(crate) fn describe_instead_of(shape: &Shape, node: NodeId, found: &str) -> String {
    let mut text = describe_value(shape, node, found);
    if !has_type(shape.node(node), found) {
        return cut(text);
    }
    let ShapeNode { types, choices, others, .. } = shape.node(node);
    if let Some(factor) = others.get("multipleOf") {
        text.push_str(&format!(" that is a multiple of {factor}"));
    }
    if others.get("uniqueItems") == Some(&Value::Bool(true)) {
        text.push_str(" without repetitions");
    }
    if let Some(pattern) = others.get("pattern").and_then(Value::as_str) {
        text.push_str(&format!(" that matches `{pattern}`"));
    }
    let described = ["multipleOf", "uniqueItems", "pattern", "then", "else"];
    let others = others.keys().filter(|keyword| !described.contains(&keyword.as_str()));
    let mut others: Vec<_> = others.map(|keyword| format!("`{keyword}`")).collect();
    // Those without a type beside them are described themselves.
    if types.is_some() && !choices.is_empty() && others.is_empty() {
        others.push("`anyOf`".into());
    }
    if !others.is_empty() {
        text.push_str(&format!(" that satisfies {} of its schema", others.join(" and ")));
    }
    cut(text)
}

fn cut(mut text: String) -> String {
    text.truncate(first_chars(&text, MAX_CHARS).len());
    text
}

fn describe_value(shape: &Shape, node: NodeId, found: &str) -> String {
    let described = shape.node(node);
    if let Some(constants) = &described.constants {
        let values: Vec<_> = constants.iter().take(MAX_CHARS).map(Value::to_string).collect();
        return match &*values {
            [one] => one.clone(),
            values => format!("one of {}", values.join(", ")),
        };
    }
    // A variant with data.
    let is_closed = described.additional.is_some_and(|additional| shape.node(additional).is_never);
    if let ([name], true) = (&*described.required, is_closed) {
        return format!("an object with {}", Value::from(&**name));
    }
    let Some(types) = &described.types else {
        let parts = if described.choices.is_empty() { &described.all } else { &described.choices };
        let text = describe_parts(shape, parts, found)
            .unwrap_or_else(|| if is_infinite(found) { F64_RANGE } else { "a value" }.into());
        return text + &describe_limits(&described.limits);
    };
    let types: Vec<_> = types.iter().map(|name| describe_type(described, name, found)).collect();
    if types.is_empty() { "a value".into() } else { types.join(" or ") }
}

/// Describes schemas that only have types of their own, not nested alternatives.
fn describe_parts(shape: &Shape, parts: &[NodeId], found: &str) -> Option<String> {
    let mut descriptions: Vec<String> = Vec::new();
    for part in parts.iter().take(MAX_CHARS) {
        let is_nested = shape.node(*part).types.is_none() && shape.node(*part).constants.is_none();
        let description = if is_nested { "a value".into() } else { describe_value(shape, *part, found) };
        if !descriptions.contains(&description) {
            descriptions.push(description);
        }
    }
    (!descriptions.is_empty()).then(|| descriptions.join(" or "))
}

fn describe_type(node: &ShapeNode, name: &str, found: &str) -> String {
    let limits = &node.limits;
    match name {
        "integer" => format!("an integer{}", describe_range(limits, node.range, found)),
        "number" if limits.is_f32 && Kind::of(found) == Some(Kind::Number) && !has_range(limits) => {
            F32_RANGE.into()
        }
        "number" if is_infinite(found) && !has_range(limits) => F64_RANGE.into(),
        "number" => format!("a number{}", describe_range(limits, None, found)),
        "string" if limits.characters == (Length { shortest: Some(1), longest: Some(1) }) => {
            "a character".into()
        }
        "string" => format!(
            "a string{}{}",
            describe_length(limits.characters, "characters"),
            describe_pattern(limits)
        ),
        "boolean" => "true or false".into(),
        "array" => format!("a list{}", describe_length(limits.items, "items")),
        "object" => {
            let is_object = Kind::of(found) == Some(Kind::Object);
            let names =
                node.required.iter().filter(|_| is_object).map(|name| Value::from(&**name).to_string());
            let names = names.collect::<Vec<_>>().join(" and ");
            let with = if names.is_empty() { "" } else { " with " };
            format!("an object{with}{names}{}", describe_length(limits.entries, "entries"))
        }
        "null" => "null".into(),
        name => format!("a {name}"),
    }
}

/// Describes limits of a value of any kind.
fn describe_limits(limits: &Limits) -> String {
    let lengths = [(limits.characters, "characters"), (limits.items, "items"), (limits.entries, "entries")];
    let mut text: String = lengths.map(|(length, units)| describe_length(length, units)).concat();
    text.push_str(&describe_range(limits, None, ""));
    text.push_str(&describe_pattern(limits));
    text
}

fn has_range(limits: &Limits) -> bool {
    [limits.minimum, limits.maximum, limits.exclusive_minimum, limits.exclusive_maximum]
        .iter()
        .any(Option::is_some)
}

/// Describes the bounds of a number, such as ` from 1 to 100`. The bounds of a 64-bit integer type matter only for
/// numbers, the bounds of a 128-bit type only for integers beyond them.
fn describe_range(limits: &Limits, range: Option<(i128, i128)>, found: &str) -> String {
    let is_number = Kind::of(found) == Some(Kind::Number);
    let is_huge = is_number && integer(found).is_some_and(|found| found.parse::<i128>().is_err());
    let is_near = |bound: &i128| (i128::from(i32::MIN)..=i128::from(u32::MAX)).contains(bound);
    let is_relevant = |bound: &i128| match bound {
        &i128::MIN | &i128::MAX => is_huge,
        bound => is_near(bound) || is_number,
    };
    let (lowest, highest) = range.unzip();
    let implied = |bound: Option<i128>| bound.filter(is_relevant).map(Bound::Integer);
    let lowest = limits.minimum.or(implied(lowest)).filter(|_| limits.exclusive_minimum.is_none());
    let highest = limits.maximum.or(implied(highest)).filter(|_| limits.exclusive_maximum.is_none());
    let mut text = match (lowest, highest) {
        (None, None) => String::new(),
        (Some(lowest), None) => format!(" from {lowest}"),
        (None, Some(highest)) => format!(" up to {highest}"),
        (Some(lowest), Some(highest)) => format!(" from {lowest} to {highest}"),
    };
    for (phrase, bound) in [("above", limits.exclusive_minimum), ("below", limits.exclusive_maximum)] {
        if let Some(bound) = bound {
            text.push_str(&format!(" {phrase} {bound}"));
        }
    }
    text
}

/// Describes a pattern, such as ` that matches …`.
fn describe_pattern(limits: &Limits) -> String {
    limits.pattern.as_ref().map(|pattern| format!(" that matches `{}`", pattern.text)).unwrap_or_default()
}

/// Describes a length, such as ` of 1 to 64 characters`.
fn describe_length(length: Length, units: &str) -> String {
    match (length.shortest, length.longest) {
        (None, None) => String::new(),
        (Some(shortest), None) => format!(" of at least {shortest} {units}"),
        (None, Some(longest)) => format!(" of at most {longest} {units}"),
        (Some(shortest), Some(longest)) if shortest == longest => format!(" of {shortest} {units}"),
        (Some(shortest), Some(longest)) => format!(" of {shortest} to {longest} {units}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::SchemaOf;

    #[test]
    fn describes_types_and_limits() {
        let table = [
            (
                json!({ "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255 }),
                "an integer from 0 to 255",
            ),
            (json!({ "type": "integer", "format": "int64" }), "an integer"),
            (json!({ "type": "integer", "format": "uint64", "minimum": 0 }), "an integer from 0"),
            (
                json!({ "type": "number", "exclusiveMinimum": 0, "maximum": 1.5 }),
                "a number up to 1.5 above 0",
            ),
            (
                json!({ "type": ["string", "null"], "minLength": 1 }),
                "a string of at least 1 characters or null",
            ),
            (json!({ "enum": ["a", 2] }), r#"one of "a", 2"#),
            (json!({ "const": "a" }), r#""a""#),
            (
                json!({ "anyOf": [{ "type": "string" }, { "type": "string" }, { "type": "null" }] }),
                "a string or null",
            ),
            (json!({ "type": "array", "minItems": 2, "maxItems": 2 }), "a list of 2 items"),
            (
                json!({ "type": "object", "required": ["Circle"], "additionalProperties": false }),
                r#"an object with "Circle""#,
            ),
            (json!({ "maxLength": 3, "pattern": "^a" }), "a value of at most 3 characters that matches `^a`"),
            (json!({}), "a value"),
        ];
        for (schema, expected) in table {
            let shape = Shape::parse(&schema, SchemaOf::Type);
            assert_eq!(describe(&shape, shape.root()), expected, "{schema}");
        }
        let shape = Shape::parse(&json!({ "type": "integer", "format": "int64" }), SchemaOf::Type);
        let range = "an integer from -9223372036854775808 to 9223372036854775807";
        assert_eq!(describe_instead_of(&shape, shape.root(), "1e30"), range);
    }
}
