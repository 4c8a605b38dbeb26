//! Text of servers that is shown in messages.

/// Replaces characters that control a terminal, or make a text appear other than it is. Line breaks and tabs remain.
#[must_use]
pub fn printable(text: &str) -> String {
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
    }
}
