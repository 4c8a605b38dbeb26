//! Scans JSON-RPC messages without parsing them: finds the id of a response, and removes values that are nested too deeply.
//!
//! Both scans work on bytes in bounded memory and do not recurse, because messages are untrusted. No library does this on
//! bytes that arrive in chunks and need not be valid JSON.

use std::borrow::Cow;

use rmcp::model::RequestId;
use tool_core::provider::MAX_JSON_DEPTH;

/// The longest key or id that is recognized, in bytes.
const MAX_TOKEN_BYTES: usize = 128;

/// Replaces values that are nested deeper than [`MAX_JSON_DEPTH`] with `null`, so that the rest of the message can be read.
pub(super) fn prune_deep_values(message: &[u8]) -> Cow<'_, [u8]> {
    let brackets = message.iter().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if brackets <= MAX_JSON_DEPTH {
        return Cow::Borrowed(message);
    }
    let mut pruned = Vec::new();
    let mut strings = StringTracker::default();
    let (mut depth, mut start) = (0_usize, 0);
    for (index, byte) in message.iter().enumerate() {
        if strings.advance(*byte) {
            continue;
        }
        match byte {
            b'{' | b'[' => {
                depth += 1;
                if depth == MAX_JSON_DEPTH + 1 {
                    pruned.extend_from_slice(&message[start..index]);
                }
            }
            b'}' | b']' => {
                if depth == MAX_JSON_DEPTH + 1 {
                    pruned.extend_from_slice(b"null");
                    start = index + 1;
                }
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
    }
    if start == 0 {
        return Cow::Borrowed(message);
    }
    pruned.extend_from_slice(&message[start..]);
    Cow::Owned(pruned)
}

/// Tracks which bytes of a JSON text belong to strings.
#[derive(Default)]
struct StringTracker {
    is_open: bool,
    is_escaped: bool,
}

impl StringTracker {
    /// Consumes the next byte. Returns `true` if it belongs to a string, including its quotes.
    fn advance(&mut self, byte: u8) -> bool {
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

/// Finds the id of a response in a message that arrives in chunks.
#[derive(Default)]
pub(super) struct ResponseIdScanner {
    strings: StringTracker,
    depth: usize,
    /// The text of the current top-level member: its key, then its value.
    token: Vec<u8>,
    is_id: bool,
    id: Option<RequestId>,
    has_method: bool,
}

impl ResponseIdScanner {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        for byte in chunk {
            self.push_byte(*byte);
        }
    }

    fn push_byte(&mut self, byte: u8) {
        if self.strings.advance(byte) {
            self.extend_token(byte);
            return;
        }
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                if self.depth == 1 {
                    self.token.clear();
                }
            }
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_member();
                }
                self.depth = self.depth.saturating_sub(1);
            }
            b':' if self.depth == 1 => {
                self.is_id = self.token == br#""id""#;
                self.has_method |= self.token == br#""method""#;
                self.token.clear();
            }
            b',' if self.depth == 1 => self.end_member(),
            _ if byte.is_ascii_whitespace() => {}
            _ => self.extend_token(byte),
        }
    }

    fn extend_token(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < MAX_TOKEN_BYTES {
            self.token.push(byte);
        }
    }

    fn end_member(&mut self) {
        if std::mem::take(&mut self.is_id) {
            self.id = serde_json::from_slice(&self.token).ok();
        }
        self.token.clear();
    }

    /// Returns the id of the request that the message answers, if the message is a response.
    pub(super) fn finish(self) -> Option<RequestId> {
        self.id.filter(|_| !self.has_method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_id_of_a_response_in_chunks_of_any_size() {
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
                let mut scanner = ResponseIdScanner::default();
                text.as_bytes().chunks(size).for_each(|chunk| scanner.push(chunk));
                assert_eq!(scanner.finish(), expected, "{text}");
            }
        }
    }

    #[test]
    fn prunes_only_values_that_are_too_deep() {
        let nested =
            |depth: usize, inside: &str| format!("{}{inside}{}", "[".repeat(depth), "]".repeat(depth));
        let deep = format!(r#"{{"a":{},"b":"]]","c":1}}"#, nested(1000, r#""]""#));
        let pruned = prune_deep_values(deep.as_bytes());
        let expected = format!(r#"{{"a":{},"b":"]]","c":1}}"#, nested(MAX_JSON_DEPTH - 1, "null"));
        assert_eq!(String::from_utf8_lossy(&pruned), expected);
        assert!(serde_json::from_slice::<serde_json::Value>(&pruned).is_ok());
        for unchanged in
            [nested(MAX_JSON_DEPTH, "1"), "[1],".repeat(200), "hello".into(), r#""[[""#.repeat(100)]
        {
            assert_eq!(prune_deep_values(unchanged.as_bytes()), unchanged.as_bytes());
        }
    }
}
