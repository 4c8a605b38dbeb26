//! Limits in the schemas of types that deserialization does not enforce: `#[schemars(range(…), length(…))]` on a field, and
//! the range of an `f32`.
//!
//! They are checked only for tools that have such limits; calls of other tools never reach this code.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::limits::{Bound, parse_number};
use crate::arguments::{Members, Parameter, explain, schemas};

/// The maximum depth of a checked value, which is the recursion limit of serde_json.
const MAX_DEPTH: usize = 128;

/// A value that violates a limit of its schema.
pub(crate) struct LimitViolation<'t> {
    /// The path of the value, such as `.stops[2].nights`, empty at the top level.
    pub(crate) path: String,
    pub(crate) expected: String,
    pub(crate) value: &'t str,
}

/// Returns the schemas of parameters if they contain such limits.
#[inline]
pub(crate) fn limited_schema(parameters: &[Parameter]) -> Option<Value> {
    Some(schemas::raw_parameters_schema(parameters)).filter(has_limits)
}

/// Returns `true` if the schema contains a limit that the type itself does not enforce.
#[inline]
pub(crate) fn has_limits(schema: &Value) -> bool {
    match schema {
        Value::Object(schema) => has_own_limit(schema) || schema.values().any(has_limits),
        Value::Array(list) => list.iter().any(has_limits),
        _ => false,
    }
}

/// Returns `true` if the schema itself, as schemars generates it, has such a limit.
#[inline]
fn has_own_limit(schema: &Map<String, Value>) -> bool {
    let number = |keyword: &str| schema.get(keyword).filter(|value| value.is_number());
    let format = schema.get("format").and_then(Value::as_str).unwrap_or_default();
    // The limits that integer types and `char` have themselves.
    let built_in: (&[i64], &[i64]) = match format {
        "uint8" => (&[0], &[255]),
        "uint16" => (&[0], &[65_535]),
        "int8" => (&[-128], &[127]),
        "int16" => (&[-32_768], &[32_767]),
        _ if format.starts_with("uint") => (&[0], &[]),
        _ if number("minLength").is_some() && number("minLength") == number("maxLength") => (&[1], &[1]),
        _ => (&[], &[]),
    };
    let is_built_in =
        |built_in: &[i64], value: &Value| value.as_i64().is_some_and(|value| built_in.contains(&value));
    let has_other = |built_in: &[i64], keywords: &[&str]| {
        keywords.iter().filter_map(|keyword| number(keyword)).any(|value| !is_built_in(built_in, value))
    };
    // The type of a tuple determines its length.
    let is_tuple = schema.contains_key("prefixItems");
    format == "float"
        || has_other(built_in.0, &["minimum", "minLength", "minProperties"])
        || has_other(built_in.1, &["maximum", "maxLength", "maxProperties"])
        || has_other(&[], &["exclusiveMinimum", "exclusiveMaximum"])
        || (!is_tuple && has_other(&[], &["minItems", "maxItems"]))
}

/// Returns the first value in the text that violates a limit. References are resolved in `root`.
#[inline]
pub(crate) fn find_violation<'t>(root: &Value, schema: &Value, text: &'t str) -> Option<LimitViolation<'t>> {
    Checker { root }.check(schema, text.trim_ascii(), 0)
}

struct Checker<'s> {
    root: &'s Value,
}

impl Checker<'_> {
    #[inline]
    fn check<'t>(&self, schema: &Value, text: &'t str, depth: usize) -> Option<LimitViolation<'t>> {
        let schema = schema.as_object().filter(|_| depth <= MAX_DEPTH)?;
        if let Some(target) = self.target(schema)
            && let Some(violation) = self.check(target, text, depth + 1)
        {
            return Some(violation);
        }
        let list =
            |keyword: &str| schema.get(keyword).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for choices in [list("anyOf"), list("oneOf")] {
            let candidates = choices.iter().filter(|choice| self.applies(choice, text, depth + 1));
            let mut results: Vec<_> = candidates.map(|choice| self.check(choice, text, depth + 1)).collect();
            // One alternative without violations is enough.
            if !results.is_empty() && results.iter().all(Option::is_some) {
                return results.swap_remove(0);
            }
        }
        let violation = list("allOf").iter().find_map(|part| self.check(part, text, depth + 1));
        violation.or_else(|| match text.as_bytes().first()? {
            b'{' => self.check_object(schema, text, depth),
            b'[' => self.check_list(schema, text, depth),
            _ if is_within_limits(schema, text) => None,
            _ => Some(violation_at_top(schema, text)),
        })
    }

    #[inline]
    fn check_object<'t>(
        &self,
        schema: &Map<String, Value>,
        text: &'t str,
        depth: usize,
    ) -> Option<LimitViolation<'t>> {
        let Members(members) = serde_json::from_str(text).ok()?;
        if !has_length(schema, members.len(), "minProperties", "maxProperties") {
            return Some(violation_at_top(schema, text));
        }
        members.into_iter().find_map(|(name, value)| {
            let property = schema.get("properties").and_then(|properties| properties.get(&*name));
            let schema = property.or_else(|| schema.get("additionalProperties"))?;
            let mut violation = self.check(schema, value.get(), depth + 1)?;
            violation.path.insert_str(0, &format!(".{name}"));
            Some(violation)
        })
    }

    #[inline]
    fn check_list<'t>(
        &self,
        schema: &Map<String, Value>,
        text: &'t str,
        depth: usize,
    ) -> Option<LimitViolation<'t>> {
        let values: Vec<&'t RawValue> = serde_json::from_str(text).ok()?;
        if !has_length(schema, values.len(), "minItems", "maxItems") {
            return Some(violation_at_top(schema, text));
        }
        let prefix = schema.get("prefixItems").and_then(Value::as_array);
        values.into_iter().enumerate().find_map(|(index, value)| {
            let schema = prefix.and_then(|prefix| prefix.get(index)).or_else(|| schema.get("items"))?;
            let mut violation = self.check(schema, value.get(), depth + 1)?;
            violation.path.insert_str(0, &format!("[{index}]"));
            Some(violation)
        })
    }

    /// Resolves the reference of a schema, if it has one.
    #[inline]
    fn target(&self, schema: &Map<String, Value>) -> Option<&Value> {
        self.root.pointer(schema.get("$ref")?.as_str()?.strip_prefix('#')?)
    }

    /// Returns `true` if the alternative describes values like this one, so that its limits apply.
    #[inline]
    fn applies(&self, choice: &Value, text: &str, depth: usize) -> bool {
        let Some(schema) = choice.as_object().filter(|_| depth <= MAX_DEPTH) else { return false };
        if let Some(target) = self.target(schema) {
            return self.applies(target, text, depth + 1);
        }
        if let Some(constant) = schema.get("const") {
            // Comparing the texts avoids parsing.
            let constant = constant.to_string();
            return constant == text;
        }
        let kinds: &[&str] = match text.as_bytes().first() {
            Some(b'{') => &["object"],
            Some(b'[') => &["array"],
            Some(b'"') => &["string"],
            Some(b't' | b'f') => &["boolean"],
            Some(b'n') => &["null"],
            _ => &["number", "integer"],
        };
        let has_kind = |name: &Value| kinds.iter().any(|kind| name == kind);
        let matches_type = match schema.get("type") {
            Some(Value::Array(names)) => names.iter().any(has_kind),
            Some(name) => has_kind(name),
            None => true,
        };
        if !matches_type || kinds != ["object"] {
            return matches_type;
        }
        let Ok(Members(members)) = serde_json::from_str(text) else { return false };
        let value_of =
            |name: &str| members.iter().find(|(other, _)| other == name).map(|(_, value)| value.get());
        let required = schema.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let has_all = required.iter().filter_map(Value::as_str).all(|name| value_of(name).is_some());
        // Constants are the tags of variants.
        let properties = schema.get("properties").and_then(Value::as_object);
        let has_tags = properties.into_iter().flatten().all(|(name, schema)| {
            match (schema.get("const"), value_of(name)) {
                (Some(_), Some(value)) => self.applies(schema, value, depth + 1),
                _ => true,
            }
        });
        has_all && has_tags
    }
}

#[inline]
fn violation_at_top<'t>(schema: &Map<String, Value>, value: &'t str) -> LimitViolation<'t> {
    let expected = match schema.get("format").and_then(Value::as_str) {
        Some("float") if !schema.contains_key("minimum") && !schema.contains_key("maximum") => {
            explain::F32_RANGE.into()
        }
        _ => explain::describe_schema(&Value::Object(schema.clone())),
    };
    LimitViolation { path: String::new(), expected, value }
}

/// Returns `true` if a number or string is within the limits of the schema itself.
#[inline]
fn is_within_limits(schema: &Map<String, Value>, text: &str) -> bool {
    if text.starts_with('"') {
        let has_limit = schema.contains_key("minLength") || schema.contains_key("maxLength");
        let length = || serde_json::from_str::<String>(text).map(|text| text.chars().count());
        return !has_limit
            || length().is_ok_and(|length| has_length(schema, length, "minLength", "maxLength"));
    }
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return true;
    }
    let is_float = schema.get("format").is_some_and(|format| format == "float");
    if is_float && parse_number(text).is_some_and(|number| (number as f32).is_infinite()) {
        return false;
    }
    let bound = |keyword: &str| schema.get(keyword).and_then(Bound::from_json);
    bound("minimum").is_none_or(|bound| bound.is_at_most(text))
        && bound("maximum").is_none_or(|bound| bound.is_at_least(text))
        && bound("exclusiveMinimum").is_none_or(|bound| !bound.is_at_least(text))
        && bound("exclusiveMaximum").is_none_or(|bound| !bound.is_at_most(text))
}

#[inline]
fn has_length(schema: &Map<String, Value>, length: usize, shortest: &str, longest: &str) -> bool {
    let limit = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
    let length = length as u64;
    limit(shortest).is_none_or(|shortest| shortest <= length)
        && limit(longest).is_none_or(|longest| length <= longest)
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
            json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
            json!({ "type": "array", "prefixItems": [{}, {}], "minItems": 2, "maxItems": 2 }),
            json!({ "type": "object", "properties": { "minimum": { "type": "string" } } }),
            json!({ "type": "number", "format": "double" }),
        ] {
            assert!(!has_limits(&built_in), "{built_in}");
        }
        for limited in [
            json!({ "type": "integer", "format": "uint8", "minimum": 1, "maximum": 255 }),
            json!({ "type": "integer", "format": "int32", "minimum": 0 }),
            json!({ "type": "array", "items": { "type": "number", "format": "float" } }),
            json!({ "properties": { "a": { "anyOf": [{ "type": "string", "maxLength": 3 }, { "type": "null" }] } } }),
        ] {
            assert!(has_limits(&limited), "{limited}");
        }
    }

    #[test]
    fn endless_references_are_bounded() {
        let schema = json!({ "$ref": "#/$defs/It", "$defs": { "It": { "$ref": "#/$defs/It" } } });
        assert!(find_violation(&schema, &schema, "1").is_none());
    }
}
