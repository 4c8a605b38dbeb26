//! Writes JSON where serde takes too long: the texts of a whole conversation, turn after turn.

use std::io::Write;

/// So many bytes are looked at and copied together, if none of them is written in another way.
const STEP: usize = 16;

/// Writes a text in quotes.
pub(crate) fn write_text(json: &mut Vec<u8>, text: &str) {
    json.reserve(text.len() + text.len() / 4 + 2);
    json.push(b'"');
    let (steps, rest) = text.as_bytes().as_chunks::<STEP>();
    for step in steps {
        if step.iter().fold(true, |are_plain, byte| are_plain & is_plain(*byte)) {
            json.extend_from_slice(step);
        } else {
            step.iter().for_each(|byte| write_byte(json, *byte));
        }
    }
    rest.iter().for_each(|byte| write_byte(json, *byte));
    json.push(b'"');
}

#[inline]
fn is_plain(byte: u8) -> bool {
    byte >= b' ' && byte != b'"' && byte != b'\\'
}

#[inline]
fn write_byte(json: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' | b'\\' => json.extend_from_slice(&[b'\\', byte]),
        b' '.. => json.push(byte),
        b'\n' => json.extend_from_slice(b"\\n"),
        b'\r' => json.extend_from_slice(b"\\r"),
        b'\t' => json.extend_from_slice(b"\\t"),
        _ => {
            // To write into a list of bytes does not fail.
            let _ = write!(json, "\\u{byte:04x}");
        }
    }
}

/// Writes a list, each entry as it is told.
pub(crate) fn write_list<T>(
    json: &mut Vec<u8>,
    entries: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    json.push(b'[');
    for (index, entry) in entries.into_iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        write(json, entry);
    }
    json.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each character at each place of a step, and behind the last.
    #[test]
    fn a_text_is_what_is_read_again() {
        let written = |text: &str| {
            let mut json = Vec::new();
            write_text(&mut json, text);
            json
        };
        let characters = (0..0x100).chain([0x2028, 0x1_f600]).filter_map(char::from_u32);
        for character in characters {
            for before in 0..=STEP + 1 {
                let text =
                    format!("{}{character}{}", "a".repeat(before), "b".repeat(STEP - before.min(STEP)));
                let read: String = serde_json::from_slice(&written(&text)).expect("it is JSON");
                assert_eq!(read, text);
            }
        }
        assert_eq!(written(""), b"\"\"");
        assert_eq!(
            written("a\n\r\t\u{1}\"\\\u{7f}"),
            br#""a\n\r\t\u0001\"\\"#.iter().copied().chain([0x7f, b'"']).collect::<Vec<_>>()
        );
    }

    #[test]
    fn lists() {
        let table: [(&[&str], &[u8]); 3] =
            [(&[], b"[]"), (&["a"], br#"["a"]"#), (&["a", "b"], br#"["a","b"]"#)];
        for (entries, expected) in table {
            let mut json = Vec::new();
            write_list(&mut json, entries, |json, text| write_text(json, text));
            assert_eq!(json, expected);
        }
    }
}
