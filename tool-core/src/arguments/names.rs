//! Names in messages: lists of known names and suggestions for unknown ones.

/// The maximum number of characters of an unknown name in a message.
pub(crate) const MAX_NAME_CHARS: usize = 100;

/// The maximum number of names in a list.
pub(crate) const MAX_LISTED: usize = 64;

/// Lists names in backticks, separated by commas; of very many, the first ones and the number of the others. Returns `None` if
/// there are no names.
pub fn list_names<'a>(mut names: impl Iterator<Item = &'a str>) -> Option<String> {
    let listed: Vec<_> = names.by_ref().take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
    let listed = Some(listed.join(", ")).filter(|listed| !listed.is_empty())?;
    match names.count() {
        0 => Some(listed),
        others => Some(format!("{listed} and {others} more")),
    }
}

/// Returns the known name that was probably meant, if one is similar enough or differs by a single typing error.
pub fn nearest_name<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(name);
    let similarity = |other: &str| {
        let other = fold(other);
        // Comparing texts of very different lengths would only take time.
        let is_typing_error = other.chars().count() >= 3
            && folded.len().abs_diff(other.len()) <= char::MAX.len_utf8()
            && strsim::osa_distance(&folded, &other) == 1;
        let similarity = strsim::jaro_winkler(&folded, &other);
        (is_typing_error || similarity > 0.85).then_some(similarity)
    };
    known
        .filter_map(|other| similarity(other).map(|similarity| (similarity, other)))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, other)| other)
}

/// Normalizes a name, so that `squareRoot`, `square-root` and `square_root` are equal.
fn fold(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_names_that_are_similar_or_differ_by_a_typing_error() {
        let known = ["sum", "get_weather", "id", "x"];
        let table = [
            ("sun", Some("sum")),
            ("smu", Some("sum")),
            ("söm", Some("sum")),
            ("sums", Some("sum")),
            ("GetWether", Some("get_weather")),
            ("is", None),
            ("y", None),
            ("add", None),
        ];
        for (name, expected) in table {
            assert_eq!(nearest_name(name, known.into_iter()), expected, "{name}");
        }
    }
}
