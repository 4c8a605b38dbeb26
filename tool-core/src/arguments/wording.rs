//! The sentences about mistakes. `describe` words what a schema expects.

use super::names::{MAX_LISTED, MAX_NAME_CHARS, list_names, nearest_name};
use crate::content::{abbreviate, first_chars};
use crate::schema::Kind;

/// The maximum number of characters of an invalid value in a message.
const MAX_QUOTE_CHARS: usize = 60;

/// Explains that a value is not what is expected. The arguments as a whole have no path.
pub(super) fn unexpected_value(path: &str, expected: &str, found: &str) -> String {
    match path {
        "" => format!("expected {expected}"),
        path => format!("`{path}`: expected {expected}, got {found}"),
    }
}

/// Explains that a required value is missing.
pub(super) fn missing_value(path: &str, expected: &str, description: Option<&str>) -> String {
    let mut mistake = format!("`{path}` is missing, expected {expected}");
    if let Some(description) = description {
        mistake.extend([" (", description, ")"]);
    }
    mistake
}

/// Explains that an object contains a member twice. The path comes from [`duplicate_members`](super::tokens::duplicate_members).
pub(crate) fn duplicate_member(path: &str) -> String {
    format!("`{}` is given twice", first_chars(path.strip_prefix('.').unwrap_or(path), MAX_NAME_CHARS))
}

/// Explains that an object does not have a member, or a tool an argument if the path is empty. In a long list of the known names, the
/// closest match comes first.
pub(super) fn unknown_member<N: AsRef<str>>(path: &str, name: &str, known: &[N]) -> String {
    let name = first_chars(name, MAX_NAME_CHARS);
    let (mut mistake, introduction, none) = match path {
        "" => {
            let mistake = format!("there is no argument `{name}`");
            (mistake, "the arguments are", "the tool takes no arguments")
        }
        path => (format!("`{path}` has no member `{name}`"), "its members are", "it takes none"),
    };
    let known = known.iter().map(AsRef::as_ref);
    let nearest = nearest_name(name, known.clone());
    let first = nearest.filter(|_| known.len() > MAX_LISTED);
    let others = known.filter(|other| Some(*other) != first);
    match list_names(first.into_iter().chain(others)) {
        Some(known) => mistake.extend([", ", introduction, " ", &known]),
        None => mistake.extend([", ", none]),
    }
    if let Some(nearest) = nearest {
        mistake.extend([", did you mean `", nearest, "`?"]);
    }
    mistake
}

/// Explains that a map does not have members of such a name.
pub(super) fn unmatched_member(path: &str, name: &str, pattern: &str) -> String {
    let name = first_chars(name, MAX_NAME_CHARS);
    format!("`{path}` has no member `{name}`, the names of its members match `{pattern}`")
}

/// Explains that the text is not a JSON object.
pub(super) fn not_an_object(text: &str, error: &serde_json::Error) -> String {
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
        _ => abbreviate(value, MAX_QUOTE_CHARS).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_explained_with_the_known_ones() {
        let none: [&str; 0] = [];
        assert_eq!(unknown_member("", "x", &none), "there is no argument `x`, the tool takes no arguments");
        assert_eq!(unknown_member("it", "x", &none), "`it` has no member `x`, it takes none");
        let many: Vec<_> = (0..1000).map(|number| format!("name_{number}")).collect();
        let mistake = unknown_member("it", "name_999x", &many);
        let start = "`it` has no member `name_999x`, its members are `name_999`, `name_0`, `name_1`, ";
        assert!(mistake.starts_with(start), "{mistake}");
        assert!(mistake.ends_with("`name_62` and 936 more, did you mean `name_999`?"), "{mistake}");
    }
}
