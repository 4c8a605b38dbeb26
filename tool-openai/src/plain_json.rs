//! A quick look at a JSON text.

/// So many lists and objects in one another are looked into.
const DEPTH: u32 = 16;

/// The text is a JSON object, as plain as models write most: without escapes, exponents or deep nesting. Of another text
/// this says nothing, so a `false` is to be looked into by a real reader.
///
/// The arguments of all calls of a conversation are looked at in every request, and this takes a fraction of the time.
pub(crate) fn is_plain_object(text: &str) -> bool {
    let text = blanks(text.as_bytes());
    text.starts_with(b"{") && value(text, DEPTH).is_some_and(|rest| blanks(rest).is_empty())
}

/// What is behind a plain value at the beginning.
fn value(text: &[u8], depth: u32) -> Option<&[u8]> {
    match text.first()? {
        b'"' => string(text),
        b'{' => list(text, b'}', |text| {
            let text = blanks(string(text)?).strip_prefix(b":")?;
            value(blanks(text), depth.checked_sub(1)?)
        }),
        b'[' => list(text, b']', |text| value(text, depth.checked_sub(1)?)),
        b't' => text.strip_prefix(b"true"),
        b'f' => text.strip_prefix(b"false"),
        b'n' => text.strip_prefix(b"null"),
        _ => number(text),
    }
}

/// What is behind a list of entries with commas between them, up to where it ends.
fn list(text: &[u8], end: u8, entry: impl Fn(&[u8]) -> Option<&[u8]>) -> Option<&[u8]> {
    let mut text = blanks(&text[1..]);
    if *text.first()? == end {
        return Some(&text[1..]);
    }
    loop {
        text = blanks(entry(text)?);
        match text.split_first()? {
            (b',', rest) => text = blanks(rest),
            (byte, rest) => return (*byte == end).then_some(rest),
        }
    }
}

fn string(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b"\"")?;
    let end = text.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..b' '))?;
    text[end..].strip_prefix(b"\"")
}

fn number(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let rest = digits(text)?;
    if text[0] == b'0' && text.len() - rest.len() > 1 {
        return None;
    }
    match rest.strip_prefix(b".") {
        Some(fraction) => digits(fraction),
        None => Some(rest),
    }
}

/// What is behind some digits, and at least one.
fn digits(text: &[u8]) -> Option<&[u8]> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    (end > 0).then(|| &text[end..])
}

fn blanks(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
    &text[end.unwrap_or(text.len())..]
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn plain_objects_are_known() {
        for text in [
            "{}",
            " { } ",
            r#"{"a": 1}"#,
            r#"{"a":{"b":[1,-2.50,0,true,false,null,"é ["]},"c":[],"d":[{}]}"#,
            "{\n\t\"a\" :\r [ 0.1 , \"\" ] , \"b\" : 10 }\n",
        ] {
            assert!(is_plain_object(text), "{text}");
        }
    }

    #[test]
    fn what_is_not_plain_is_left_to_others() {
        let deep = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(is_plain_object(&deep(DEPTH as usize)));
        for text in [r#"{"a":"\n"}"#, r#"{"a":1e3}"#, &deep(DEPTH as usize + 1), &deep(100_000)] {
            assert!(!is_plain_object(text), "{text}");
        }
    }

    /// Every text that is one change away from a right one: none is taken for an object that a real reader refuses.
    #[test]
    fn nothing_is_an_object_that_is_none() {
        let right = r#" {"a":[1,-0.5,{"b":null}],"c":"d","e":{},"f":true} "#;
        let put = [
            "", "\"", "{", "}", "[", "]", ",", ":", "0", "-", ".", "\\", "\u{c}", "\u{1}", "é", " ", "e",
            "tru",
        ];
        for (at, _) in right.char_indices() {
            for text in put {
                for taken in [0, 1] {
                    let text = format!("{}{text}{}", &right[..at], &right[at + taken..]);
                    let is_object = serde_json::from_str::<Value>(&text).is_ok_and(|value| value.is_object());
                    assert!(is_object || !is_plain_object(&text), "{text}");
                }
            }
        }
    }
}
