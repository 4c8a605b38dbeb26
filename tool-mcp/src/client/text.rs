//! Helpers for text that is shown in messages.

use tool_core::provider::printable;

/// The longest tool name that is quoted in a message, in characters. A server can choose names of any length.
const MAX_QUOTED_NAME_CHARS: usize = 100;

/// Formats bytes as lowercase hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns at most `max_chars` characters of the text, followed by `…` if it was longer.
pub(super) fn truncate(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Shortens the name of a tool for a message, on one line.
pub(super) fn truncate_name(name: &str) -> String {
    one_line(name, MAX_QUOTED_NAME_CHARS)
}

/// Shortens a text of a server, on one line.
pub(super) fn one_line(text: &str, max_chars: usize) -> String {
    printable(&truncate(text, max_chars).replace(['\n', '\t'], " ")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_on_one_line() {
        assert_eq!(truncate_name("a\nb\tc\u{85}d"), "a b c\\u{85}d");
    }
}
