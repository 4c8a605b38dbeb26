//! Helpers for text that is shown in messages.

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
    printable(&truncate(name, MAX_QUOTED_NAME_CHARS)).replace(['\n', '\t'], " ")
}

/// Replaces characters that control a terminal, or make a text appear other than it is. Line breaks and tabs remain.
pub(super) fn printable(text: &str) -> String {
    let is_deceptive = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
            || matches!(c, '\u{e0000}'..='\u{e007f}')
    };
    text.replace(is_deceptive, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_what_deceives_a_reader() {
        let table = [
            ("größe 東京 🚪\n\ta", "größe 東京 🚪\n\ta"),
            ("a\u{1b}[2Jb\r\0", "a [2Jb  "),
            ("a\u{202e}b\u{2066}c\u{200b}d\u{feff}\u{e0041}", "a b c d  "),
        ];
        for (text, expected) in table {
            assert_eq!(printable(text), expected);
        }
        assert_eq!(truncate_name("a\nb\tc\u{85}d"), "a b c d");
    }
}
