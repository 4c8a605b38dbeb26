//! Whether a JSON text that comes in pieces may be a whole object by now.

/// Follows the brackets of a text, so that it need be read as JSON only when they are all closed: each piece is looked at once,
/// however many there are.
#[derive(Default)]
pub(super) struct Outline {
    place: Place,
    /// How many brackets are open.
    depth: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Place {
    /// Nothing came but blanks.
    #[default]
    Before,
    Inside,
    InText,
    /// In a text, behind a backslash.
    Escaped,
    /// The object is closed, and nothing came since but blanks.
    Behind,
    /// Whatever comes, it is no object any more.
    Broken,
}

impl Outline {
    /// Takes in what comes next.
    pub(super) fn add(&mut self, piece: &str) {
        for byte in piece.bytes() {
            self.place = match (self.place, byte) {
                (Place::Broken, _) => return,
                (Place::Before | Place::Behind, b' ' | b'\t' | b'\n' | b'\r') => self.place,
                (Place::Before, b'{') => {
                    self.depth = 1;
                    Place::Inside
                }
                (Place::Before | Place::Behind, _) => Place::Broken,
                (Place::Inside, b'{' | b'[') => {
                    self.depth += 1;
                    Place::Inside
                }
                (Place::Inside, b'}' | b']') => {
                    self.depth -= 1;
                    if self.depth == 0 { Place::Behind } else { Place::Inside }
                }
                (Place::Inside, b'"') => Place::InText,
                (Place::Inside, _) => Place::Inside,
                (Place::InText, b'"') => Place::Inside,
                (Place::InText, b'\\') => Place::Escaped,
                (Place::InText | Place::Escaped, _) => Place::InText,
            };
        }
    }

    /// All that was opened is closed. Only such a text can be an object; it need not be one.
    pub(super) fn is_closed(&self) -> bool {
        self.place == Place::Behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_an_object() {
        let table = [
            ("{}", true),
            (" \r\n\t{ } \r\n\t", true),
            (r#"{"a": [{"b": []}, "c"]}"#, true),
            (r#"{"a": "}\"}\\"}"#, true),
            (r#"{"a": "\\"}"#, true),
            // Reading it as JSON tells that it is none.
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
            let mut whole = Outline::default();
            whole.add(text);
            assert_eq!(whole.is_closed(), expected, "{text}");
            let mut in_bytes = Outline::default();
            text.split_inclusive(|_: char| true).for_each(|piece| in_bytes.add(piece));
            assert_eq!(in_bytes.is_closed(), expected, "{text}, byte by byte");
            if serde_json::from_str::<serde_json::Map<_, _>>(text).is_ok() {
                assert!(expected, "an object is closed: {text}");
            }
        }
    }
}
