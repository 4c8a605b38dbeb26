//! Names in messages: lists of known names, and the nearest to an unknown one.

/// How much of an unknown name is repeated to the model that wrote it, in characters.
pub(crate) const LONGEST_NAME: usize = 100;

/// `a`, `b` and `c` in back-ticks; nothing for no names.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The name that was likely meant, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(name);
    known
        .map(|other| (strsim::jaro_winkler(&folded, &fold(other)), other))
        .filter(|(similarity, _)| *similarity > 0.85)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, other)| other)
}

/// `squareRoot`, `square-root` and `square_root` are near to each other.
fn fold(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
