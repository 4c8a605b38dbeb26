//! Names in messages: lists of known names and suggestions for unknown ones.

/// The maximum number of characters of an unknown name in a message.
pub(crate) const MAX_NAME_CHARS: usize = 100;

/// The maximum number of names in a list.
const MAX_LISTED: usize = 64;

/// Lists names in backticks, separated by commas; of very many, the first ones and the number of the others. Returns `None` if
/// there are no names.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    let listed = names[..names.len().min(MAX_LISTED)].join(", ");
    match names.len() {
        0 => None,
        1..=MAX_LISTED => Some(listed),
        all => Some(format!("{listed} and {} more", all - MAX_LISTED)),
    }
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
