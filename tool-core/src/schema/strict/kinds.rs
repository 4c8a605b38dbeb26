//! The types of values and the forms of scalar values.

use serde_json::Value;

use super::Form;
use super::description::{Description, describe_bounds};
use super::node::Node;

pub(super) const ANYTHING: &str = "strict mode does not support values of any type; specify a `type`";

/// The formats that strict mode supports.
const FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// The keywords of numbers, all of which strict mode supports.
const NUMBER_KEYWORDS: [&str; 5] =
    ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];

/// The keywords that imply a type.
const IMPLYING: [(ValueKind, &[&str]); 4] = [
    (ValueKind::Object, &["properties", "required", "additionalProperties", "patternProperties"]),
    (ValueKind::List, &["items", "prefixItems", "minItems", "maxItems", "uniqueItems"]),
    (ValueKind::Text, &["pattern", "format", "minLength", "maxLength"]),
    (ValueKind::Number, &NUMBER_KEYWORDS),
];

/// The number of types of values.
const MAX_TYPES: usize = 7;

/// A type of values other than `null`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ValueKind {
    Object,
    List,
    Text,
    Number,
    Integer,
    Boolean,
}

impl ValueKind {
    const ALL: [Self; 6] = [Self::Object, Self::List, Self::Text, Self::Number, Self::Integer, Self::Boolean];

    fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::List => "array",
            Self::Text => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
        }
    }

    /// Returns the schema of all values of this type.
    pub(super) fn form(self) -> Form {
        Form::from_iter([("type".into(), self.name().into())])
    }

    pub(super) fn matches(self, value: &Value) -> bool {
        match self {
            Self::Object | Self::List => false,
            Self::Text => value.is_string(),
            Self::Number => value.is_number(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Boolean => value.is_boolean(),
        }
    }
}

/// Returns the types that a value can have, and whether it can be `null`.
pub(super) fn kinds(node: &Node<'_>) -> Result<(Vec<ValueKind>, bool), String> {
    let values = values(node)?;
    let has_null = |values: &[&Value]| values.contains(&&Value::Null);
    let mut kinds = Vec::new();
    let Some(names) = node.get("type") else {
        if let Some(values) = values {
            let has_kind =
                |value: &&Value| value.is_null() || ValueKind::ALL.iter().any(|kind| kind.matches(value));
            if !values.iter().all(has_kind) {
                return Err("strict mode does not support lists and objects in `enum` or `const`".into());
            }
            // Integers come before numbers, so that values that are all integers have the narrower type.
            let mut remaining = values.clone();
            remaining.retain(|value| !value.is_null());
            for kind in [ValueKind::Text, ValueKind::Boolean, ValueKind::Integer, ValueKind::Number] {
                if remaining.iter().any(|value| kind.matches(value)) {
                    kinds.push(kind);
                    remaining.retain(|value| !kind.matches(value));
                }
            }
            return Ok((without_redundant(kinds), has_null(&values)));
        }
        let implied =
            IMPLYING.iter().find(|(_, keywords)| keywords.iter().any(|keyword| node.get(keyword).is_some()));
        let (kind, _) = implied.ok_or(ANYTHING)?;
        return Ok((vec![*kind], false));
    };
    let mut allows_null = false;
    let names = names.as_array().map_or(std::slice::from_ref(names), Vec::as_slice);
    for name in names.iter().take(MAX_TYPES + 1) {
        match ValueKind::ALL.into_iter().find(|kind| name == kind.name()) {
            Some(kind) if kinds.contains(&kind) => {}
            Some(kind) => kinds.push(kind),
            None if name == "null" => allows_null = true,
            None => return Err("`type` must contain JSON types".into()),
        }
    }
    if names.len() > MAX_TYPES {
        return Err("`type` must contain each type only once".into());
    }
    Ok((without_redundant(kinds), allows_null && values.is_none_or(|values| has_null(&values))))
}

/// Removes the integer type if the number type is there, which includes it.
fn without_redundant(mut kinds: Vec<ValueKind>) -> Vec<ValueKind> {
    if kinds.contains(&ValueKind::Number) {
        kinds.retain(|kind| *kind != ValueKind::Integer);
    }
    kinds
}

/// Returns the values of `const` or `enum`.
pub(super) fn values<'s>(node: &Node<'s>) -> Result<Option<Vec<&'s Value>>, String> {
    match (node.get("const"), node.get("enum")) {
        (Some(value), _) => Ok(Some(vec![value])),
        (None, Some(Value::Array(values))) => Ok(Some(values.iter().collect())),
        (None, Some(_)) => Err("`enum` must be a list".into()),
        (None, None) => Ok(None),
    }
}

/// Returns the form of a string.
pub(super) fn text(node: &Node<'_>, description: &mut Description) -> Result<Form, String> {
    let mut form = ValueKind::Text.form();
    if let Some(pattern) = string(node, "pattern")? {
        if has_lookaround(pattern) {
            description.add(&format!("Matches the regular expression `{pattern}`."));
        } else {
            form.insert("pattern".into(), pattern.into());
        }
    }
    match string(node, "format")? {
        Some(format) if FORMATS.contains(&format) => {
            form.insert("format".into(), format.into());
        }
        Some(format) => description.add(&format!("Format: {format}.")),
        None => {}
    }
    description.add(&describe_bounds(length(node, "minLength")?, length(node, "maxLength")?, "character"));
    if let Some(encoding) = string(node, "contentEncoding")? {
        description.add(&format!("Encoded as {encoding}."));
    }
    if let Some(media_type) = string(node, "contentMediaType")? {
        description.add(&format!("Media type: {media_type}."));
    }
    Ok(form)
}

/// Returns `true` if a pattern has lookarounds or backreferences, which strict mode does not support.
fn has_lookaround(pattern: &str) -> bool {
    let has_backreference =
        pattern.as_bytes().windows(2).any(|two| two[0] == b'\\' && matches!(two[1], b'1'..=b'9' | b'k'));
    has_backreference || ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|group| pattern.contains(group))
}

/// Returns the form of a number.
pub(super) fn number(kind: ValueKind, node: &Node<'_>) -> Result<Form, String> {
    let mut form = kind.form();
    for keyword in NUMBER_KEYWORDS {
        match node.get(keyword) {
            Some(bound @ Value::Number(_)) => {
                form.insert(keyword.into(), bound.clone());
            }
            Some(_) => return Err(format!("`{keyword}` must be a number")),
            None => {}
        }
    }
    Ok(form)
}

fn string<'s>(node: &Node<'s>, keyword: &str) -> Result<Option<&'s str>, String> {
    let value = node.get(keyword);
    value.map(|value| value.as_str().ok_or_else(|| format!("`{keyword}` must be a string"))).transpose()
}

/// Returns a length or number of items.
pub(super) fn length(node: &Node<'_>, keyword: &str) -> Result<Option<u64>, String> {
    let Some(value) = node.get(keyword) else { return Ok(None) };
    value.as_u64().map(Some).ok_or_else(|| format!("`{keyword}` must be a non-negative integer"))
}
