//! The texts of contents, names and executions, as people see them.

use std::borrow::Cow;

use crate::content::{Content, Part, printable};
use crate::tool::ToolExecution;

/// The limit of characters per name.
pub(super) const MAX_NAME_CHARS: usize = 64;

/// Returns the duration and the number of repairs of a call, such as ` (1.2ms, 1 argument repaired)`, or an empty string.
pub(super) fn annotations(execution: &ToolExecution) -> String {
    let mut annotations = Vec::new();
    if !execution.duration().is_zero() {
        annotations.push(format!("{:.1?}", execution.duration()));
    }
    let ignored = execution.repairs().iter().filter(|repair| repair.is_ignored()).count();
    for (count, what) in [(execution.repairs().len() - ignored, "repaired"), (ignored, "ignored")] {
        match count {
            0 => {}
            1 => annotations.push(format!("1 argument {what}")),
            _ => annotations.push(format!("{count} arguments {what}")),
        }
    }
    if annotations.is_empty() { String::new() } else { format!(" ({})", annotations.join(", ")) }
}

/// Returns the text of a content, with a placeholder for each image and file.
pub(super) fn text_of(content: &Content) -> Cow<'_, str> {
    if content.parts().iter().all(|part| part.as_text().is_some()) {
        return content.text();
    }
    let texts = content.parts().iter().map(|part| match part {
        Part::Image(image) => match (image.media_type(), image.base64()) {
            (Some(media_type), _) => format!("[image: {media_type}]").into(),
            (None, Some(_)) => Cow::Borrowed("[image]"),
            (None, None) => format!("[image: {}]", image.url()).into(),
        },
        Part::File(file) => format!("[file: {}]", file.label()).into(),
        other => Cow::Borrowed(other.as_text().unwrap_or_default()),
    });
    texts.collect::<Vec<_>>().join("\n").into()
}

/// Truncates a text to `max_chars` characters and appends the number of omitted ones. Line breaks become `\n`, and
/// what a person does not see is escaped.
pub(super) fn sanitize(text: &str, max_chars: usize) -> String {
    let mut sanitized = String::with_capacity(text.len().min(max_chars));
    let mut characters = text.chars().peekable();
    let mut room = max_chars;
    while room > 0
        && let Some(character) = characters.next()
    {
        room -= 1;
        match character {
            '\r' if characters.peek() == Some(&'\n') => room += 1,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => sanitized.push('\n'),
            _ => sanitized.push(character),
        }
    }
    let mut sanitized = printable(&sanitized).into_owned();
    match characters.count() {
        0 => {}
        1 => sanitized.push_str(" [… 1 more character]"),
        more => sanitized.push_str(&format!(" [… {more} more characters]")),
    }
    sanitized
}

/// Returns an untrusted name as a single line.
pub(super) fn sanitize_name(name: &str, max_chars: usize) -> String {
    let name = sanitize(name.trim(), max_chars).replace(['\n', '\t'], " ");
    if name.is_empty() { "(no name)".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sanitizes_and_truncates_texts() {
        let table = [
            ("", 3, ""),
            ("abc", 3, "abc"),
            ("abcd", 3, "abc [… 1 more character]"),
            ("äöüßé", 3, "äöü [… 2 more characters]"),
            ("ab", 0, " [… 2 more characters]"),
            ("a\r\nb\rc\nd\u{2028}e\u{85}f", 99, "a\nb\nc\nd\ne\nf"),
            ("\r\n\r\n", 2, "\n\n"),
            ("\u{1b}[31m\0\u{9b}\u{ffff}\t", 99, "\\u{1b}[31m\\u{0}\\u{9b}\\u{ffff}\t"),
        ];
        for (text, max_chars, expected) in table {
            assert_eq!(sanitize(text, max_chars), expected, "{text:?}");
        }
    }

    #[test]
    fn sanitized_names_are_one_line() {
        let long = "a".repeat(70);
        let cut = "a".repeat(64) + " [… 6 more characters]";
        let table =
            [("sum", "sum"), ("", "(no name)"), (" \n", "(no name)"), ("a\nb\tc", "a b c"), (&long, &cut)];
        for (name, expected) in table {
            assert_eq!(sanitize_name(name, MAX_NAME_CHARS), expected);
        }
    }
}
