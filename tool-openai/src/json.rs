//! Writes JSON where serde is too slow: the texts of a whole conversation, in every turn.

use std::io::Write;

/// The number of bytes that are copied at once if none of them needs an escape.
const STEP: usize = 16;

/// Writes a JSON string.
pub(crate) fn write_string(json: &mut Vec<u8>, text: &str) {
    json.reserve(text.len() + text.len() / 4 + 2);
    json.push(b'"');
    let (steps, rest) = text.as_bytes().as_chunks::<STEP>();
    for step in steps {
        if step.iter().fold(true, |all_plain, byte| all_plain & is_plain(*byte)) {
            json.extend_from_slice(step);
        } else {
            step.iter().for_each(|byte| write_byte(json, *byte));
        }
    }
    rest.iter().for_each(|byte| write_byte(json, *byte));
    json.push(b'"');
}

fn is_plain(byte: u8) -> bool {
    byte >= b' ' && byte != b'"' && byte != b'\\'
}

fn write_byte(json: &mut Vec<u8>, byte: u8) {
    match byte {
        b'"' | b'\\' => json.extend_from_slice(&[b'\\', byte]),
        b' '.. => json.push(byte),
        b'\n' => json.extend_from_slice(b"\\n"),
        b'\r' => json.extend_from_slice(b"\\r"),
        b'\t' => json.extend_from_slice(b"\\t"),
        _ => {
            // Writing to a `Vec` does not fail.
            let _ = write!(json, "\\u{byte:04x}");
        }
    }
}

/// Writes a JSON array; `write` writes each element.
pub(crate) fn write_array<T>(
    json: &mut Vec<u8>,
    elements: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    json.push(b'[');
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            json.push(b',');
        }
        write(json, element);
    }
    json.push(b']');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests each character at each offset of a step and after the last.
    #[test]
    fn strings_round_trip() {
        let written = |text: &str| {
            let mut json = Vec::new();
            write_string(&mut json, text);
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
    fn arrays() {
        let table: [(&[&str], &[u8]); 3] =
            [(&[], b"[]"), (&["a"], br#"["a"]"#), (&["a", "b"], br#"["a","b"]"#)];
        for (elements, expected) in table {
            let mut json = Vec::new();
            write_array(&mut json, elements, |json, text| write_string(json, text));
            assert_eq!(json, expected);
        }
    }
}
