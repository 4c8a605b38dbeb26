//! Names in messages: lists of known names and suggestions for unknown ones.

/// The maximum number of characters of an unknown name in a message.
pub(crate) const MAX_NAME_CHARS: usize = 100;

/// Lists names in backticks, separated by commas. Returns `None` if there are no names.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns the known name that was probably meant, if one is similar enough.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(name);
    known
        .map(|other| (strsim::jaro_winkler(&folded, &fold(other)), other))
        .filter(|(similarity, _)| *similarity > 0.85)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, other)| other)
}

/// Normalizes a name, so that `squareRoot`, `square-root` and `square_root` are equal.
fn fold(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
