//! The types of values, and what can be said of plain ones.

use serde_json::{Value, json};

use super::Form;
use super::node::Node;
use super::words::{Words, between};

pub(super) const ANYTHING: &str = "a value of any kind cannot be said in strict mode; say of what type it is";

/// The formats that strict mode knows.
const FORMATS: [&str; 9] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"];

/// The words of numbers, all of which strict mode knows.
const NUMBER_WORDS: [&str; 5] = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"];

/// Words from which a type follows that is not named.
const TELLING: [(Kind, &[&str]); 4] = [
    (Kind::Object, &["properties", "required", "additionalProperties", "patternProperties"]),
    (Kind::List, &["items", "prefixItems", "minItems", "maxItems", "uniqueItems"]),
    (Kind::Text, &["pattern", "format", "minLength", "maxLength"]),
    (Kind::Number, &NUMBER_WORDS),
];

/// How many types of values there are.
const MOST_TYPES: usize = 7;

/// A type of values other than `null`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Object,
    List,
    Text,
    Number,
    Integer,
    Boolean,
}

impl Kind {
    const ALL: [Self; 6] = [Self::Object, Self::List, Self::Text, Self::Number, Self::Integer, Self::Boolean];

    #[inline]
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

    /// The schema of any value of this type.
    #[inline]
    pub(super) fn form(self) -> Form {
        Form::from_iter([("type".into(), self.name().into())])
    }

    #[inline]
    pub(super) fn is_of(self, value: &Value) -> bool {
        match self {
            Self::Object | Self::List => false,
            Self::Text => value.is_string(),
            Self::Number => value.is_number(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Boolean => value.is_boolean(),
        }
    }
}

/// The types that a value may be of, and whether it may be `null`.
#[inline]
pub(super) fn of(node: &Node<'_>) -> Result<(Vec<Kind>, bool), String> {
    let values = values(node)?;
    let has_null = |values: &[&Value]| values.contains(&&Value::Null);
    let mut kinds = Vec::new();
    let Some(names) = node.get("type") else {
        if let Some(values) = values {
            let is_of_some =
                |value: &&Value| value.is_null() || Kind::ALL.iter().any(|kind| kind.is_of(value));
            if !values.iter().all(is_of_some) {
                return Err("a list or an object in `enum` or `const` cannot be said in strict mode".into());
            }
            // Values that are all integers are said to be such.
            let mut left = values.clone();
            left.retain(|value| !value.is_null());
            for kind in [Kind::Text, Kind::Boolean, Kind::Integer, Kind::Number] {
                if left.iter().any(|value| kind.is_of(value)) {
                    kinds.push(kind);
                    left.retain(|value| !kind.is_of(value));
                }
            }
            return Ok((without_doubles(kinds), has_null(&values)));
        }
        let telling = TELLING.iter().find(|(_, words)| words.iter().any(|word| node.get(word).is_some()));
        let (kind, _) = telling.ok_or(ANYTHING)?;
        return Ok((vec![*kind], false));
    };
    let mut may_be_null = false;
    let names = names.as_array().map_or(std::slice::from_ref(names), Vec::as_slice);
    for name in names.iter().take(MOST_TYPES + 1) {
        match Kind::ALL.into_iter().find(|kind| name == kind.name()) {
            Some(kind) if kinds.contains(&kind) => {}
            Some(kind) => kinds.push(kind),
            None if name == "null" => may_be_null = true,
            None => return Err("`type` must name types of JSON".into()),
        }
    }
    if names.len() > MOST_TYPES {
        return Err("`type` must name each type once".into());
    }
    Ok((without_doubles(kinds), may_be_null && values.is_none_or(|values| has_null(&values))))
}

/// Integers are numbers.
#[inline]
fn without_doubles(mut kinds: Vec<Kind>) -> Vec<Kind> {
    if kinds.contains(&Kind::Number) {
        kinds.retain(|kind| *kind != Kind::Integer);
    }
    kinds
}

/// The values of `const` or `enum`.
#[inline]
pub(super) fn values<'s>(node: &Node<'s>) -> Result<Option<Vec<&'s Value>>, String> {
    match (node.get("const"), node.get("enum")) {
        (Some(value), _) => Ok(Some(vec![value])),
        (None, Some(Value::Array(values))) => Ok(Some(values.iter().collect())),
        (None, Some(_)) => Err("`enum` must be a list".into()),
        (None, None) => Ok(None),
    }
}

#[inline]
pub(super) fn text(node: &Node<'_>, words: &mut Words) -> Result<Form, String> {
    let mut form = Kind::Text.form();
    if let Some(pattern) = texts(node, "pattern")? {
        if looks_around(pattern) {
            words.add(&format!("Matches the regular expression `{pattern}`."));
        } else {
            form.insert("pattern".into(), pattern.into());
        }
    }
    match texts(node, "format")? {
        Some(format) if FORMATS.contains(&format) => {
            form.insert("format".into(), format.into());
        }
        Some(format) => words.add(&format!("Format: {format}.")),
        None => {}
    }
    words.add(&between(whole(node, "minLength")?, whole(node, "maxLength")?, "character"));
    if let Some(encoding) = texts(node, "contentEncoding")? {
        words.add(&format!("Encoded as {encoding}."));
    }
    if let Some(media_type) = texts(node, "contentMediaType")? {
        words.add(&format!("Media type: {media_type}."));
    }
    Ok(form)
}

/// Strict mode knows only patterns that are read from front to back.
#[inline]
fn looks_around(pattern: &str) -> bool {
    let refers_back =
        pattern.as_bytes().windows(2).any(|two| two[0] == b'\\' && matches!(two[1], b'1'..=b'9' | b'k'));
    refers_back || ["(?=", "(?!", "(?<=", "(?<!"].iter().any(|group| pattern.contains(group))
}

#[inline]
pub(super) fn number(kind: Kind, node: &Node<'_>) -> Result<Form, String> {
    let mut form = kind.form();
    for word in NUMBER_WORDS {
        match node.get(word) {
            Some(bound @ Value::Number(_)) => {
                form.insert(word.into(), bound.clone());
            }
            Some(_) => return Err(format!("`{word}` must be a number")),
            None => {}
        }
    }
    Ok(form)
}

#[inline]
fn texts<'s>(node: &Node<'s>, word: &str) -> Result<Option<&'s str>, String> {
    node.get(word).map(|value| value.as_str().ok_or_else(|| format!("`{word}` must be a text"))).transpose()
}

/// A length or a number of items.
#[inline]
pub(super) fn whole(node: &Node<'_>, word: &str) -> Result<Option<u64>, String> {
    let Some(value) = node.get(word) else { return Ok(None) };
    value.as_u64().map(Some).ok_or_else(|| format!("`{word}` must be a whole number"))
}

/// `not` in words, if it leaves out single values.
#[inline]
pub(super) fn left_out(not: &Value) -> Result<String, String> {
    let is_alone = not.as_object().is_some_and(|words| words.len() == 1);
    let values = match (not.get("const"), not.get("enum")) {
        (Some(value), _) if is_alone => json!([value]),
        (None, Some(values @ Value::Array(_))) if is_alone => values.clone(),
        _ => return Err("`not` cannot be said in strict mode; say what is right instead".into()),
    };
    Ok(format!("Not {}.", super::words::list(values.as_array().map_or(&[][..], Vec::as_slice))))
}
