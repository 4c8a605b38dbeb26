//! The sentences about mistakes that do not depend on a schema.

use crate::arguments::{MAX_NAME_CHARS, list, nearest};
use crate::schema::Kind;

/// The maximum number of characters of an invalid value in a message.
const MAX_QUOTE_CHARS: usize = 60;

/// The maximum number of known names in a message about an unknown one.
const MAX_NAMES: usize = 100;

/// Explains that a required value is missing.
pub(crate) fn missing_value(path: &str, expected: &str, description: Option<&str>) -> String {
    let mut mistake = format!("`{path}` is missing, expected {expected}");
    if let Some(description) = description {
        mistake.extend([" (", description, ")"]);
    }
    mistake
}

/// Explains that an object contains a member twice. The path is that of [`duplicate_members`](tokens::duplicate_members).
pub(crate) fn duplicate_member(path: &str) -> String {
    let path = path.strip_prefix('.').unwrap_or(path);
    let end = path.char_indices().nth(MAX_NAME_CHARS).map_or(path.len(), |(end, _)| end);
    format!("`{}` is given twice", &path[..end])
}

/// Explains that an object does not have a member. Of very many names, some are listed, among them the most similar.
pub(crate) fn unknown_name<N: AsRef<str>>(name: &str, known: &[N]) -> String {
    let end = name.char_indices().nth(MAX_NAME_CHARS).map_or(name.len(), |(end, _)| end);
    let name = &name[..end];
    let known = known.iter().map(AsRef::as_ref);
    let nearest = nearest(name, known.clone());
    let others = known.clone().filter(|other| Some(*other) != nearest);
    let listed: Vec<_> = match known.clone().nth(MAX_NAMES) {
        Some(_) => nearest.into_iter().chain(others).take(MAX_NAMES).collect(),
        None => known.collect(),
    };
    let mut mistake = format!("there is no argument `{name}`");
    match list(listed.into_iter()) {
        Some(known) => mistake.extend([", the arguments are ", &known]),
        None => mistake.push_str(", the tool takes no arguments"),
    }
    if let Some(nearest) = nearest {
        mistake.extend([", did you mean `", nearest, "`?"]);
    }
    mistake
}

/// Explains that a nested object does not have a member.
pub(crate) fn unknown_member<N: AsRef<str>>(path: &str, name: &str, known: &[N]) -> String {
    format!("`{path}`: {}", unknown_name(name, known))
}

/// Explains that the text is not a JSON object.
pub(crate) fn not_an_object(text: &str, error: &serde_json::Error) -> String {
    if error.is_data() {
        format!("expected a JSON object, got {}", quote(text))
    } else {
        format!("not valid JSON: {error}")
    }
}

/// Quotes a value as the model wrote it, truncated; objects and lists are only named.
pub(super) fn quote(value: &str) -> String {
    let value = value.trim_ascii();
    match Kind::of(value) {
        Some(Kind::Object) => "an object".into(),
        Some(Kind::Array) => "a list".into(),
        _ if value.chars().count() <= MAX_QUOTE_CHARS => value.into(),
        _ => value.chars().take(MAX_QUOTE_CHARS).chain(['…']).collect(),
    }
}
