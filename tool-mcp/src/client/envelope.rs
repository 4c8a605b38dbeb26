//! What can be said of a message without reading it: whose answer it is, and what is too deep in it.
//!
//! Both work on the bytes, in constant memory, and do not recurse: a message may be a stranger's.

use std::borrow::Cow;

use rmcp::model::RequestId;

/// How deep a message may be, in levels of JSON. `serde_json` refuses the whole of what is deeper than 127.
pub(super) const DEEPEST: usize = 120;

/// The longest key and id that are looked at, in bytes.
const LONGEST: usize = 128;

/// The message with `null` in the place of what is nested too deep. Only that is lost then, and not all that
/// stands beside it.
pub(super) fn without_the_deepest(message: &[u8]) -> Cow<'_, [u8]> {
    let brackets = message.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if brackets <= DEEPEST {
        return Cow::Borrowed(message);
    }
    let mut kept = Vec::new();
    let mut strings = Strings::default();
    let (mut depth, mut start) = (0_usize, 0);
    for (place, byte) in message.iter().enumerate() {
        if strings.is_inside(*byte) {
            continue;
        }
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth == DEEPEST + 1 {
                    kept.extend_from_slice(&message[start..place]);
                }
            }
            b'}' | b']' => {
                if depth == DEEPEST + 1 {
                    kept.extend_from_slice(b"null");
                    start = place + 1;
                }
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
    }
    if start == 0 {
        return Cow::Borrowed(message);
    }
    kept.extend_from_slice(&message[start..]);
    Cow::Owned(kept)
}

/// Tells what is inside a string.
#[derive(Default)]
struct Strings {
    is_open: bool,
    is_escaped: bool,
}

impl Strings {
    /// The byte is part of a string, or ends or begins one.
    fn is_inside(&mut self, byte: u8) -> bool {
        if !self.is_open {
            self.is_open = byte == b'"';
            return self.is_open;
        }
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' => self.is_escaped = true,
            b'"' => self.is_open = false,
            _ => {}
        }
        true
    }
}

/// Looks for the id of a message that passes by in pieces.
#[derive(Default)]
pub(super) struct Envelope {
    strings: Strings,
    depth: usize,
    /// The text of the member that is open, at the top: its key, then its value.
    text: Vec<u8>,
    is_id: bool,
    id: Option<RequestId>,
    has_method: bool,
}

impl Envelope {
    pub(super) fn read(&mut self, piece: &[u8]) {
        for byte in piece {
            self.take(*byte);
        }
    }

    fn take(&mut self, byte: u8) {
        if self.strings.is_inside(byte) {
            self.note(byte);
            return;
        }
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 1 {
                    self.text.clear();
                }
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_member();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                self.is_id = self.text == br#""id""#;
                self.has_method |= self.text == br#""method""#;
                self.text.clear();
            }
            b',' if self.depth == 1 => self.end_member(),
            _ if byte.is_ascii_whitespace() => {}
            _ => self.note(byte),
        }
    }

    fn note(&mut self, byte: u8) {
        if self.depth == 1 && self.text.len() < LONGEST {
            self.text.push(byte);
        }
    }

    fn end_member(&mut self) {
        if std::mem::take(&mut self.is_id) {
            self.id = serde_json::from_slice(&self.text).ok();
        }
        self.text.clear();
    }

    /// Which request the message answers, if it is an answer.
    pub(super) fn answered(self) -> Option<RequestId> {
        self.id.filter(|_| !self.has_method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_that_is_answered_is_found_without_reading_the_answer() {
        let table = [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"id":8}}"#, Some(RequestId::Number(7))),
            (
                r#"{ "result" : [{"id":8}, "\"id\":9", "}"], "id" : "x" }"#,
                Some(RequestId::String("x".into())),
            ),
            (r#"{"id":7,"result":{"never":["ends"#, Some(RequestId::Number(7))),
            (r#"{"id":7,"method":"ping"}"#, None),
            (r#"{"result":{"id":7}}"#, None),
            (r#"{"id":{"id":7}}"#, None),
            ("hello world", None),
            (r#"[{"id":7}]"#, None),
        ];
        for (text, expected) in table {
            for size in [1, 3, 1000] {
                let mut envelope = Envelope::default();
                text.as_bytes().chunks(size).for_each(|piece| envelope.read(piece));
                assert_eq!(envelope.answered(), expected, "{text}");
            }
        }
    }

    #[test]
    fn only_what_is_too_deep_is_left_out() {
        let nested =
            |depth: usize, inside: &str| format!("{}{inside}{}", "[".repeat(depth), "]".repeat(depth));
        let deep = format!(r#"{{"a":{},"b":"]]","c":1}}"#, nested(1000, r#""]""#));
        let left = without_the_deepest(deep.as_bytes());
        let expected = format!(r#"{{"a":{},"b":"]]","c":1}}"#, nested(DEEPEST - 1, "null"));
        assert_eq!(String::from_utf8_lossy(&left), expected);
        assert!(serde_json::from_slice::<serde_json::Value>(&left).is_ok());
        for unchanged in [nested(DEEPEST, "1"), "[1],".repeat(200), "hello".into(), r#""[[""#.repeat(100)] {
            assert_eq!(without_the_deepest(unchanged.as_bytes()), unchanged.as_bytes());
        }
    }
}
