//! The types of values and the forms of scalar values.

use serde_json::{Value, json};

use super::description::{Words, describe_bounds};
use super::node::{ANYTHING, StrictNode};

/// All types but `null`.
const TYPES: [&str; 6] = ["object", "array", "string", "number", "integer", "boolean"];

/// The formats that strict mode supports.
const FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// The keywords of numbers. Strict mode supports all of them.
const OF_NUMBERS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];

/// The values that a schema describes.
pub(super) struct Types<'s> {
    /// The types other than `null`.
    pub(super) names: Vec<&'static str>,
    pub(super) has_null: bool,
    /// The values of `const` or `enum`.
    pub(super) values: Option<Vec<&'s Value>>,
}

impl<'s> Types<'s> {
    pub(super) fn new(node: &StrictNode<'s>) -> Result<Self, String> {
        let values: Option<Vec<_>> = match (node.get("const"), node.get("enum")) {
            (Some(value), _) => Some(vec![value]),
            (None, Some(Value::Array(values))) => Some(values.iter().collect()),
            (None, Some(_)) => return Err("`enum` must be a list".into()),
            (None, None) => None,
        };
        let listed: Vec<&str> = match (node.get("type"), &values) {
            (Some(Value::Array(names)), _) if names.len() <= TYPES.len() + 1 => {
                names.iter().map(|name| name.as_str().unwrap_or_default()).collect()
            }
            (Some(name), _) => vec![name.as_str().unwrap_or_default()],
            (None, Some(values)) => values.iter().map(|value| type_of(value)).collect(),
            _ if node.get("properties").is_some() => vec!["object"],
            _ if node.get("items").or(node.get("prefixItems")).is_some() => vec!["array"],
            (None, None) => return Err(ANYTHING.into()),
        };
        if listed.iter().any(|name| *name != "null" && !TYPES.contains(name)) {
            return Err("`type` must contain JSON types".into());
        }
        // Numbers include integers.
        let is_redundant = |name: &str| name == "integer" && listed.contains(&"number");
        let has_values = |name: &str| {
            values.as_ref().is_none_or(|values| values.iter().any(|value| has_type(value, name)))
        };
        let mut names = TYPES.to_vec();
        names.retain(|name| listed.contains(name) && !is_redundant(name) && has_values(name));
        if values.is_some() && names.iter().any(|name| matches!(*name, "object" | "array")) {
            return Err("strict mode does not support lists and objects in `enum` or `const`".into());
        }
        let has_null =
            listed.contains(&"null") && values.as_ref().is_none_or(|values| values.contains(&&Value::Null));
        Ok(Self { names, has_null, values })
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns `true` if a value has a type.
pub(super) fn has_type(value: &Value, name: &str) -> bool {
    type_of(value) == name || name == "number" && value.is_number()
}

/// Returns the form of a string.
pub(super) fn string(node: &StrictNode<'_>, words: &mut Words) -> Result<Value, String> {
    let mut form = json!({ "type": "string" });
    match node.text("pattern")? {
        Some(pattern) if has_lookaround(pattern) => {
            words.add(&format!("Matches the regular expression `{pattern}`."));
        }
        Some(pattern) => form["pattern"] = pattern.into(),
        None => {}
    }
    match node.text("format")? {
        Some(format) if FORMATS.contains(&format) => form["format"] = format.into(),
        Some(format) => words.add(&format!("Format: {format}.")),
        None => {}
    }
    words.add(&describe_bounds(node.length("minLength")?, node.length("maxLength")?, "character"));
    for (keyword, name) in [("contentEncoding", "Encoded as"), ("contentMediaType", "Media type:")] {
        if let Some(value) = node.text(keyword)? {
            words.add(&format!("{name} {value}."));
        }
    }
    Ok(form)
}

/// Returns `true` if a pattern has lookarounds or backreferences, which strict mode does not support.
fn has_lookaround(pattern: &str) -> bool {
    let is_backreference = |two: &[u8]| two[0] == b'\\' && matches!(two[1], b'1'..=b'9' | b'k');
    pattern.as_bytes().windows(2).any(is_backreference)
        || ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|group| pattern.contains(group))
}

/// Returns the form of a number.
pub(super) fn number(name: &str, node: &StrictNode<'_>) -> Result<Value, String> {
    let mut form = json!({ "type": name });
    for keyword in OF_NUMBERS {
        if let Some(bound) = node.get_as(keyword, "a number", Value::as_number)? {
            form[keyword] = bound.clone().into();
        }
    }
    Ok(form)
}
