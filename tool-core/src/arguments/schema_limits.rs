//! What the schema of a type promises and reading the type does not see to: the limits of
//! `#[schemars(range(…), length(…))]` on a field, and that a number fits into an `f32`.
//!
//! It is looked at only where there is such a promise, and never on the way of a call of another tool.

use serde_json::{Map, Value};

use super::limits::{Bound, number};
use crate::arguments::{Members, Parameter, expectation, schemas};
use serde_json::value::RawValue;

/// How deep a value is looked into: serde_json reads no deeper.
const DEEPEST: usize = 128;

/// A value that breaks a promise of its schema.
pub(crate) struct Broken<'t> {
    /// Where it stands, such as `.stops[2].nights`; empty at the top.
    pub(crate) path: String,
    pub(crate) expected: String,
    pub(crate) value: &'t str,
}

/// The schemas of parameters, if there is such a promise in them.
#[inline]
pub(crate) fn of(parameters: &[Parameter]) -> Option<Value> {
    Some(schemas::of_parameters_as_they_are(parameters)).filter(are_in)
}

/// Some schema in this one has a limit that its type does not keep by itself.
#[inline]
pub(crate) fn are_in(schema: &Value) -> bool {
    match schema {
        Value::Object(words) => has_limit(words) || words.values().any(are_in),
        Value::Array(list) => list.iter().any(are_in),
        _ => false,
    }
}

/// The schema itself, of a type as schemars describes it, has such a limit.
#[inline]
fn has_limit(words: &Map<String, Value>) -> bool {
    let number = |word: &str| words.get(word).filter(|value| value.is_number());
    let format = words.get("format").and_then(Value::as_str).unwrap_or_default();
    // What integers say of themselves, and characters.
    let own: (&[i64], &[i64]) = match format {
        "uint8" => (&[0], &[255]),
        "uint16" => (&[0], &[65_535]),
        "int8" => (&[-128], &[127]),
        "int16" => (&[-32_768], &[32_767]),
        _ if format.starts_with("uint") => (&[0], &[]),
        _ if number("minLength").is_some() && number("minLength") == number("maxLength") => (&[1], &[1]),
        _ => (&[], &[]),
    };
    let is_own = |own: &[i64], value: &Value| value.as_i64().is_some_and(|value| own.contains(&value));
    let is_more = |own: &[i64], limit: &[&str]| {
        limit.iter().filter_map(|word| number(word)).any(|value| !is_own(own, value))
    };
    // A tuple's length is that of its type.
    let is_tuple = words.contains_key("prefixItems");
    format == "float"
        || is_more(own.0, &["minimum", "minLength", "minProperties"])
        || is_more(own.1, &["maximum", "maxLength", "maxProperties"])
        || is_more(&[], &["exclusiveMinimum", "exclusiveMaximum"])
        || (!is_tuple && is_more(&[], &["minItems", "maxItems"]))
}

/// The first value in the text that breaks a promise; `root` is what `$ref` refers to.
#[inline]
pub(crate) fn broken<'t>(root: &Value, schema: &Value, text: &'t str) -> Option<Broken<'t>> {
    Keeper { root }.broken(schema, text.trim_ascii(), 0)
}

struct Keeper<'s> {
    root: &'s Value,
}

impl Keeper<'_> {
    #[inline]
    fn broken<'t>(&self, schema: &Value, text: &'t str, depth: usize) -> Option<Broken<'t>> {
        let words = schema.as_object().filter(|_| depth <= DEEPEST)?;
        if let Some(referred) = self.referred(words)
            && let Some(broken) = self.broken(referred, text, depth + 1)
        {
            return Some(broken);
        }
        let list = |word: &str| words.get(word).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for choices in [list("anyOf"), list("oneOf")] {
            let meant = choices.iter().filter(|choice| self.is_meant(choice, text, depth + 1));
            let mut broken: Vec<_> = meant.map(|choice| self.broken(choice, text, depth + 1)).collect();
            // One that is kept is enough.
            if !broken.is_empty() && broken.iter().all(Option::is_some) {
                return broken.swap_remove(0);
            }
        }
        let both = list("allOf").iter().find_map(|schema| self.broken(schema, text, depth + 1));
        both.or_else(|| match text.as_bytes().first()? {
            b'{' => self.broken_in_object(words, text, depth),
            b'[' => self.broken_in_list(words, text, depth),
            _ if keeps(words, text) => None,
            _ => Some(here(words, text)),
        })
    }

    #[inline]
    fn broken_in_object<'t>(
        &self,
        words: &Map<String, Value>,
        text: &'t str,
        depth: usize,
    ) -> Option<Broken<'t>> {
        let Members(members) = serde_json::from_str(text).ok()?;
        if !has_length(words, members.len(), "minProperties", "maxProperties") {
            return Some(here(words, text));
        }
        members.into_iter().find_map(|(name, value)| {
            let property = words.get("properties").and_then(|properties| properties.get(&*name));
            let schema = property.or_else(|| words.get("additionalProperties"))?;
            let mut broken = self.broken(schema, value.get(), depth + 1)?;
            broken.path.insert_str(0, &format!(".{name}"));
            Some(broken)
        })
    }

    #[inline]
    fn broken_in_list<'t>(
        &self,
        words: &Map<String, Value>,
        text: &'t str,
        depth: usize,
    ) -> Option<Broken<'t>> {
        let values: Vec<&'t RawValue> = serde_json::from_str(text).ok()?;
        if !has_length(words, values.len(), "minItems", "maxItems") {
            return Some(here(words, text));
        }
        let prefix = words.get("prefixItems").and_then(Value::as_array);
        values.into_iter().enumerate().find_map(|(index, value)| {
            let schema = prefix.and_then(|prefix| prefix.get(index)).or_else(|| words.get("items"))?;
            let mut broken = self.broken(schema, value.get(), depth + 1)?;
            broken.path.insert_str(0, &format!("[{index}]"));
            Some(broken)
        })
    }

    #[inline]
    fn referred(&self, words: &Map<String, Value>) -> Option<&Value> {
        self.root.pointer(words.get("$ref")?.as_str()?.strip_prefix('#')?)
    }

    /// The value is of the kind that the choice is about: so its limits go for the value.
    #[inline]
    fn is_meant(&self, choice: &Value, text: &str, depth: usize) -> bool {
        let Some(words) = choice.as_object().filter(|_| depth <= DEEPEST) else { return false };
        if let Some(referred) = self.referred(words) {
            return self.is_meant(referred, text, depth + 1);
        }
        if let Some(constant) = words.get("const") {
            // As text, for whose reading there is no need.
            let written = constant.to_string();
            return written == text;
        }
        let kinds: &[&str] = match text.as_bytes().first() {
            Some(b'{') => &["object"],
            Some(b'[') => &["array"],
            Some(b'"') => &["string"],
            Some(b't' | b'f') => &["boolean"],
            Some(b'n') => &["null"],
            _ => &["number", "integer"],
        };
        let is_of = |name: &Value| kinds.iter().any(|kind| name == kind);
        let is_of_kind = match words.get("type") {
            Some(Value::Array(names)) => names.iter().any(is_of),
            Some(name) => is_of(name),
            None => true,
        };
        if !is_of_kind || kinds != ["object"] {
            return is_of_kind;
        }
        let Ok(Members(members)) = serde_json::from_str(text) else { return false };
        let value_of =
            |name: &str| members.iter().find(|(other, _)| other == name).map(|(_, value)| value.get());
        let required = words.get("required").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let has_all = required.iter().filter_map(Value::as_str).all(|name| value_of(name).is_some());
        // The tag of a variant.
        let properties = words.get("properties").and_then(Value::as_object);
        let is_tagged_so = properties.into_iter().flatten().all(|(name, schema)| {
            match (schema.get("const"), value_of(name)) {
                (Some(_), Some(value)) => self.is_meant(schema, value, depth + 1),
                _ => true,
            }
        });
        has_all && is_tagged_so
    }
}

#[inline]
fn here<'t>(words: &Map<String, Value>, value: &'t str) -> Broken<'t> {
    let expected = match words.get("format").and_then(Value::as_str) {
        Some("float") if !words.contains_key("minimum") && !words.contains_key("maximum") => {
            expectation::RANGE_OF_F32.into()
        }
        _ => expectation::of_schema(&Value::Object(words.clone())),
    };
    Broken { path: String::new(), expected, value }
}

/// A number or a text keeps to the limits of the schema itself.
#[inline]
fn keeps(words: &Map<String, Value>, text: &str) -> bool {
    if text.starts_with('"') {
        let has_limit = words.contains_key("minLength") || words.contains_key("maxLength");
        let length = || serde_json::from_str::<String>(text).map(|text| text.chars().count());
        return !has_limit
            || length().is_ok_and(|length| has_length(words, length, "minLength", "maxLength"));
    }
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return true;
    }
    let is_float = words.get("format").is_some_and(|format| format == "float");
    if is_float && number(text).is_some_and(|number| (number as f32).is_infinite()) {
        return false;
    }
    let bound = |word: &str| words.get(word).and_then(Bound::of);
    bound("minimum").is_none_or(|bound| bound.is_at_most(text))
        && bound("maximum").is_none_or(|bound| bound.is_at_least(text))
        && bound("exclusiveMinimum").is_none_or(|bound| !bound.is_at_least(text))
        && bound("exclusiveMaximum").is_none_or(|bound| !bound.is_at_most(text))
}

#[inline]
fn has_length(words: &Map<String, Value>, length: usize, shortest: &str, longest: &str) -> bool {
    let limit = |word: &str| words.get(word).and_then(Value::as_u64);
    let length = length as u64;
    limit(shortest).is_none_or(|shortest| shortest <= length)
        && limit(longest).is_none_or(|longest| length <= longest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_types_keep_by_themselves_is_no_promise() {
        for own in [
            json!({ "type": "integer", "format": "uint8", "minimum": 0, "maximum": 255 }),
            json!({ "type": "integer", "format": "uint", "minimum": 0 }),
            json!({ "type": "integer", "format": "int16", "minimum": -32768, "maximum": 32767 }),
            json!({ "type": "string", "minLength": 1, "maxLength": 1 }),
            json!({ "type": "array", "prefixItems": [{}, {}], "minItems": 2, "maxItems": 2 }),
            json!({ "type": "object", "properties": { "minimum": { "type": "string" } } }),
            json!({ "type": "number", "format": "double" }),
        ] {
            assert!(!are_in(&own), "{own}");
        }
        for limited in [
            json!({ "type": "integer", "format": "uint8", "minimum": 1, "maximum": 255 }),
            json!({ "type": "integer", "format": "int32", "minimum": 0 }),
            json!({ "type": "array", "items": { "type": "number", "format": "float" } }),
            json!({ "properties": { "a": { "anyOf": [{ "type": "string", "maxLength": 3 }, { "type": "null" }] } } }),
        ] {
            assert!(are_in(&limited), "{limited}");
        }
    }

    #[test]
    fn references_without_an_end_are_followed_so_far() {
        let schema = json!({ "$ref": "#/$defs/It", "$defs": { "It": { "$ref": "#/$defs/It" } } });
        assert!(broken(&schema, &schema, "1").is_none());
    }
}
