//! Detects when a JSON text that arrives in fragments may be a complete object.

/// Tracks the brackets of a text, so that it is parsed only when all of them are closed. Each fragment is scanned once.
#[derive(Default)]
pub(super) struct BracketTracker {
    state: State,
    /// The number of open brackets.
    depth: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum State {
    /// Nothing but whitespace so far.
    #[default]
    Before,
    Inside,
    InString,
    /// In a string, after a backslash.
    Escaped,
    /// The object is closed, with nothing but whitespace since.
    After,
    /// The text cannot become an object.
    Invalid,
}

impl BracketTracker {
    /// Scans the next fragment.
    pub(super) fn push(&mut self, fragment: &str) {
        for byte in fragment.bytes() {
            self.state = match (self.state, byte) {
                (State::Invalid, _) => return,
                (State::Before | State::After, b' ' | b'\t' | b'\n' | b'\r') => self.state,
                (State::Before, b'{') => {
                    self.depth = 1;
                    State::Inside
                }
                (State::Before | State::After, _) => State::Invalid,
                (State::Inside, b'{' | b'[') => {
                    self.depth += 1;
                    State::Inside
                }
                (State::Inside, b'}' | b']') => {
                    self.depth -= 1;
                    if self.depth == 0 { State::After } else { State::Inside }
                }
                (State::Inside, b'"') => State::InString,
                (State::Inside, _) => State::Inside,
                (State::InString, b'"') => State::Inside,
                (State::InString, b'\\') => State::Escaped,
                (State::InString | State::Escaped, _) => State::InString,
            };
        }
    }

    /// Returns `true` if every bracket is closed, without which the text cannot be an object. It need not be one.
    pub(super) fn is_closed(&self) -> bool {
        self.state == State::After
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_closed_for_every_object() {
        let table = [
            ("{}", true),
            (" \r\n\t{ } \r\n\t", true),
            (r#"{"a": [{"b": []}, "c"]}"#, true),
            (r#"{"a": "}\"}\\"}"#, true),
            (r#"{"a": "\\"}"#, true),
            // Only parsing it shows that it is not an object.
            ("{x]", true),
            ("", false),
            (" ", false),
            ("{", false),
            (r#"{"a": {}"#, false),
            (r#"{"a": "}"#, false),
            (r#"{"a": "\"}"#, false),
            ("{} {}", false),
            ("{}}", false),
            ("{},", false),
            ("{}\u{c}", false),
            ("[]", false),
            ("}{}", false),
            ("x{}", false),
        ];
        for (text, expected) in table {
            let mut whole = BracketTracker::default();
            whole.push(text);
            assert_eq!(whole.is_closed(), expected, "{text}");
            let mut in_bytes = BracketTracker::default();
            text.split_inclusive(|_: char| true).for_each(|byte| in_bytes.push(byte));
            assert_eq!(in_bytes.is_closed(), expected, "{text}, byte by byte");
            if serde_json::from_str::<serde_json::Map<_, _>>(text).is_ok() {
                assert!(expected, "an object is closed: {text}");
            }
        }
    }
}
