//! The limits that a schema sets on values: ranges, lengths and patterns.

use std::borrow::Cow;

use regex_lite::Regex;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::kind::Kind;
use super::number::{Bound, integer, integer_range, parse_number};

/// The limits of one value. Each applies only to values of its kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Limits {
    pub(crate) minimum: Option<Bound>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) exclusive_minimum: Option<Bound>,
    pub(crate) exclusive_maximum: Option<Bound>,
    /// A number must be finite as an `f32`.
    pub(crate) is_f32: bool,
    /// The length of a string.
    pub(crate) characters: Length,
    /// The length of a list.
    pub(crate) items: Length,
    /// The length of a map.
    pub(crate) entries: Length,
    pub(crate) pattern: Option<Pattern>,
}

/// The bounds of a length.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Length {
    pub(crate) shortest: Option<usize>,
    pub(crate) longest: Option<usize>,
}

impl Length {
    fn from_json(schema: &Map<String, Value>, shortest: &str, longest: &str) -> Self {
        let length = |keyword: &str| usize::try_from(schema.get(keyword)?.as_u64()?).ok();
        Self { shortest: length(shortest), longest: length(longest) }
    }

    pub(crate) fn allows(self, length: usize) -> bool {
        self.shortest.is_none_or(|shortest| shortest <= length)
            && self.longest.is_none_or(|longest| length <= longest)
    }
}

/// A regular expression that must match in a string.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    regex: Option<Regex>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.to_owned(), regex: Regex::new(text).ok() }
    }

    /// Returns `true` if the expression matches in the text, or `None` if its syntax is not supported.
    pub(crate) fn matches(&self, text: &str) -> Option<bool> {
        Some(self.regex.as_ref()?.is_match(text))
    }
}

impl Limits {
    /// Reads the limits of a schema itself.
    pub(crate) fn from_json(schema: &Map<String, Value>) -> Self {
        let bound = |keyword: &str| schema.get(keyword).and_then(Bound::from_json);
        Self {
            minimum: bound("minimum"),
            maximum: bound("maximum"),
            exclusive_minimum: bound("exclusiveMinimum"),
            exclusive_maximum: bound("exclusiveMaximum"),
            is_f32: schema.get("format").is_some_and(|format| format == "float"),
            characters: Length::from_json(schema, "minLength", "maxLength"),
            items: Length::from_json(schema, "minItems", "maxItems"),
            entries: Length::from_json(schema, "minProperties", "maxProperties"),
            pattern: schema.get("pattern").and_then(Value::as_str).map(Pattern::new),
        }
    }

    /// Returns `true` if the value, a JSON text, is within the limits.
    pub(crate) fn allow(&self, text: &str) -> bool {
        match Kind::of(text) {
            Some(Kind::Number) => self.allow_number(text),
            Some(Kind::String) => self.allow_string(text),
            Some(Kind::Array) if self.items != Length::default() => {
                serde_json::from_str::<Vec<IgnoredAny>>(text)
                    .is_ok_and(|items| self.items.allows(items.len()))
            }
            Some(Kind::Object) if self.entries != Length::default() => {
                serde_json::from_str::<std::collections::BTreeMap<String, &RawValue>>(text)
                    .is_ok_and(|entries| self.entries.allows(entries.len()))
            }
            _ => true,
        }
    }

    fn allow_number(&self, text: &str) -> bool {
        let is_finite = |number: f64| (number as f32).is_finite();
        let bounds = [self.minimum, self.maximum, self.exclusive_minimum, self.exclusive_maximum];
        // A number that no `f64` can hold.
        if bounds.iter().any(Option::is_some) && integer(text).is_none() && parse_number(text).is_none() {
            return false;
        }
        self.minimum.is_none_or(|bound| bound.is_at_most(text))
            && self.maximum.is_none_or(|bound| bound.is_at_least(text))
            && self.exclusive_minimum.is_none_or(|bound| !bound.is_at_least(text))
            && self.exclusive_maximum.is_none_or(|bound| !bound.is_at_most(text))
            && (!self.is_f32 || parse_number(text).is_some_and(is_finite))
    }

    fn allow_string(&self, text: &str) -> bool {
        if self.characters == Length::default() && self.pattern.is_none() {
            return true;
        }
        let Ok(text) = serde_json::from_str::<Cow<'_, str>>(text) else { return true };
        self.characters.allows(text.chars().count())
            && self.pattern.as_ref().is_none_or(|pattern| pattern.matches(&text) != Some(false))
    }
}

/// Returns `true` if the schema of a type contains a limit that the type itself does not enforce.
pub(crate) fn has_limits(schema: &Value) -> bool {
    match schema {
        Value::Object(schema) => has_own_limit(schema) || schema.values().any(has_limits),
        Value::Array(list) => list.iter().any(has_limits),
        _ => false,
    }
}

/// Returns `true` if the schema itself, as schemars generates it, has such a limit.
pub(super) fn has_own_limit(schema: &Map<String, Value>) -> bool {
    let number = |keyword: &str| schema.get(keyword).filter(|value| value.is_number());
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
    // The limits that integer types have themselves. A `char` has the limits that a string can have, too.
    let (lowest, highest) = integer_range(format).unzip();
    let lowest = if format == "uint128" { Some(0) } else { lowest };
    let has_other = |built_in: Option<i128>, keywords: &[&str]| {
        let mut limits = keywords.iter().filter_map(|keyword| number(keyword));
        limits.any(|limit| built_in.is_none() || limit.as_i64().map(i128::from) != built_in)
    };
    // The type of a tuple determines its length.
    let is_tuple = schema.contains_key("prefixItems");
    format == "float"
        || schema.get("pattern").is_some_and(Value::is_string)
        || has_other(lowest, &["minimum", "minLength", "minProperties"])
        || has_other(highest, &["maximum", "maxLength", "maxProperties"])
        || has_other(None, &["exclusiveMinimum", "exclusiveMaximum"])
        || (!is_tuple && has_other(None, &["minItems", "maxItems"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_of_the_type_itself_are_not_counted() {
        for built_in in [
            json!({ "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255 }),
            json!({ "type": "integer", "format": "uint", "minimum": 0 }),
            json!({ "type": "integer", "format": "int16", "minimum": -32768, "maximum": 32767 }),
            json!({ "type": "array", "prefixItems": [{}, {}], "minItems": 2, "maxItems": 2 }),
            json!({ "type": "object", "properties": { "minimum": { "type": "string" } } }),
            json!({ "type": "number", "format": "double" }),
        ] {
            assert!(!has_limits(&built_in), "{built_in}");
        }
        for limited in [
            json!({ "type": "integer", "format": "uint8", "minimum": 1, "maximum": 255 }),
            json!({ "type": "integer", "format": "int32", "minimum": 0 }),
            json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
            json!({ "type": "array", "items": { "type": "number", "format": "float" } }),
            json!({ "properties": { "a": { "anyOf": [{ "type": "string", "maxLength": 3 }, { "type": "null" }] } } }),
        ] {
            assert!(has_limits(&limited), "{limited}");
        }
    }
}
