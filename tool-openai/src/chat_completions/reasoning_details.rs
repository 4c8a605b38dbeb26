//! The pieces of a model's reasoning that OpenRouter wants back as they were: texts with signatures, summaries, encrypted
//! ones.
//!
//! In a stream, a text or a summary comes in fragments. Those of one piece have one `type` and one `index`: their texts are
//! put together, and whatever else one of them has, such as the signature at the end, is kept.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::{write_list, write_text};
use crate::lenient;
use crate::streaming::Problem;

/// So many pieces no reply has.
const MOST: usize = 1 << 12;

/// So many fields no piece has; those beyond are left out.
const MOST_FIELDS: usize = 1 << 6;

/// The pieces that have come.
#[derive(Default)]
pub(super) struct ReasoningDetails(Vec<Piece>);

struct Piece(Vec<(String, Value)>);

enum Value {
    /// As it came, so that no digit of a number changes.
    Json(Box<str>),
    /// The text, of which more may come.
    Text(String),
}

impl ReasoningDetails {
    /// Takes in the list of a message, or of a chunk of it.
    pub(super) fn add(&mut self, json: &RawValue) -> Result<(), Problem> {
        let fragments: Fragments<'_> =
            serde_json::from_str(json.get()).map_err(|error| Problem::Unreadable(error.to_string()))?;
        for fragment in fragments.0 {
            match self.piece_of(&fragment) {
                Some(index) => self.0[index].add(fragment),
                None if self.0.len() == MOST => {
                    return Err(Problem::Unreadable(format!("it has more than {MOST} pieces of reasoning")));
                }
                None => {
                    let mut piece = Piece(Vec::new());
                    piece.add(fragment);
                    self.0.push(piece);
                }
            }
        }
        Ok(())
    }

    /// Which piece a fragment belongs to; without an index, that can only be the last.
    fn piece_of(&self, fragment: &Fragment<'_>) -> Option<usize> {
        if !matches!(fragment.get("type"), Some(r#""reasoning.text""# | r#""reasoning.summary""#)) {
            return None;
        }
        let found = match fragment.get("index") {
            Some(_) => self.0.iter().rposition(|piece| piece.is_same(fragment))?,
            None => self.0.len().checked_sub(1).filter(|last| self.0[*last].is_same(fragment))?,
        };
        (!self.0[found].is_over(fragment)).then_some(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the list.
    pub(super) fn write(&self, json: &mut Vec<u8>) {
        write_list(json, &self.0, Piece::write);
    }
}

impl Piece {
    fn add(&mut self, fragment: Fragment<'_>) {
        for (name, json) in fragment.0 {
            let text = matches!(&*name, "text" | "summary")
                .then(|| serde_json::from_str::<Cow<'_, str>>(json.get()).ok())
                .flatten();
            let field = self.0.iter_mut().find(|(known, _)| *known == name).map(|(_, value)| value);
            match (field, text) {
                (Some(Value::Text(so_far)), Some(text)) => so_far.push_str(&text),
                (Some(value), text) if value.is_null() => *value = Value::new(text, json),
                (Some(_), _) => {}
                (None, text) => self.0.push((name.into_owned(), Value::new(text, json))),
            }
        }
    }

    /// What stands in a field, if that is not `null`.
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|(known, value)| match value {
            Value::Json(json) if known == name && &**json != "null" => Some(&**json),
            _ => None,
        })
    }

    fn is_same(&self, fragment: &Fragment<'_>) -> bool {
        let is_same_id = match (self.get("id"), fragment.get("id")) {
            (Some(id), Some(other)) => id == other,
            _ => true,
        };
        ["type", "index"].iter().all(|name| self.get(name) == fragment.get(name)) && is_same_id
    }

    /// A text that is signed has no more of it.
    fn is_over(&self, fragment: &Fragment<'_>) -> bool {
        let has_text = fragment.get("text").is_some_and(|text| text != r#""""#);
        has_text && self.get("signature").is_some() && self.get("signature") != fragment.get("signature")
    }

    fn write(json: &mut Vec<u8>, piece: &Self) {
        json.push(b'{');
        for (index, (name, value)) in piece.0.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            write_text(json, name);
            json.push(b':');
            match value {
                Value::Json(value) => json.extend_from_slice(value.as_bytes()),
                Value::Text(text) => write_text(json, text),
            }
        }
        json.push(b'}');
    }
}

impl Value {
    fn new(text: Option<Cow<'_, str>>, json: &RawValue) -> Self {
        match text {
            Some(text) => Self::Text(text.into_owned()),
            None => Self::Json(json.get().into()),
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Json(json) if &**json == "null")
    }
}

/// The list as it comes. Entries that are no objects, or a value that is no list, are left out.
#[derive(Deserialize)]
struct Fragments<'a>(#[serde(borrow, deserialize_with = "lenient::list::<MOST, _, _>")] Vec<Fragment<'a>>);

/// An object, its values as they stand.
struct Fragment<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Fragment<'a> {
    /// What stands in a field, if that is not `null`.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, json)| json.get())
            .filter(|json| *json != "null")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fragment<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FragmentVisitor)
    }
}

struct FragmentVisitor;

impl<'de> Visitor<'de> for FragmentVisitor {
    type Value = Fragment<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut fields: Vec<(Cow<'de, str>, &'de RawValue)> = Vec::new();
        while let Some((name, value)) = object.next_entry::<Cow<'de, str>, &'de RawValue>()? {
            if fields.len() < MOST_FIELDS {
                fields.push((name, value));
            }
        }
        Ok(Fragment(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_together(chunks: &[&str]) -> String {
        let mut details = ReasoningDetails::default();
        for chunk in chunks {
            let json: &RawValue = serde_json::from_str(chunk).expect("it is JSON");
            details.add(json).expect("they are few");
        }
        let mut json = Vec::new();
        details.write(&mut json);
        String::from_utf8(json).expect("it is JSON")
    }

    #[test]
    fn fragments_of_one_piece() {
        let table: &[(&[&str], &str)] = &[
            (&[], "[]"),
            (&["null", "1", "[]", "[null, 1, \"a\"]"], "[]"),
            (
                &[
                    r#"[{"type": "reasoning.text", "text": "A", "index": 0, "signature": null}]"#,
                    r#"[{"type": "reasoning.text", "text": "\n\"B", "index": 0, "format": "x", "budget": 1.000000000000000000001}]"#,
                    r#"[{"type": "reasoning.text", "text": "", "index": 0, "signature": "c2ln", "format": "y"}]"#,
                ],
                r#"[{"type":"reasoning.text","text":"A\n\"B","index":0,"signature":"c2ln","format":"x","budget":1.000000000000000000001}]"#,
            ),
            // By the index, and without one only the last.
            (
                &[
                    r#"[{"type":"reasoning.text","text":"A","index":0},{"type":"reasoning.text","text":"B","index":1}]"#,
                    r#"[{"type":"reasoning.text","text":"a","index":0}]"#,
                ],
                r#"[{"type":"reasoning.text","text":"Aa","index":0},{"type":"reasoning.text","text":"B","index":1}]"#,
            ),
            (
                &[
                    r#"[{"type":"reasoning.summary","summary":"A"}]"#,
                    r#"[{"type":"reasoning.summary","summary":"B"}]"#,
                    r#"[{"type":"reasoning.text","text":"C"}]"#,
                    r#"[{"type":"reasoning.summary","summary":"D"}]"#,
                ],
                r#"[{"type":"reasoning.summary","summary":"AB"},{"type":"reasoning.text","text":"C"},{"type":"reasoning.summary","summary":"D"}]"#,
            ),
            // By the type: what is encrypted comes whole.
            (
                &[
                    r#"[{"type":"reasoning.text","text":"A","index":0}]"#,
                    r#"[{"type":"reasoning.encrypted","data":"x","index":0},{"type":"reasoning.encrypted","data":"y","index":0}]"#,
                    r#"[{"type":"reasoning.new","text":"x","index":0},{"type":"reasoning.new","text":"y","index":0}]"#,
                ],
                r#"[{"type":"reasoning.text","text":"A","index":0},{"type":"reasoning.encrypted","data":"x","index":0},{"type":"reasoning.encrypted","data":"y","index":0},{"type":"reasoning.new","text":"x","index":0},{"type":"reasoning.new","text":"y","index":0}]"#,
            ),
            // Two that are named otherwise, and one behind one that is signed.
            (
                &[
                    r#"[{"type":"reasoning.summary","summary":"A","id":"1","index":0}]"#,
                    r#"[{"type":"reasoning.summary","summary":"B","id":"2","index":0}]"#,
                    r#"[{"type":"reasoning.summary","summary":"b","id":null,"index":0}]"#,
                ],
                r#"[{"type":"reasoning.summary","summary":"A","id":"1","index":0},{"type":"reasoning.summary","summary":"Bb","id":"2","index":0}]"#,
            ),
            (
                &[
                    r#"[{"type":"reasoning.text","text":"A","signature":"s","index":0}]"#,
                    r#"[{"type":"reasoning.text","text":"a","signature":"s","index":0}]"#,
                    r#"[{"type":"reasoning.text","text":"B","index":0}]"#,
                    r#"[{"type":"reasoning.text","text":"b","signature":"t","index":0}]"#,
                ],
                r#"[{"type":"reasoning.text","text":"Aa","signature":"s","index":0},{"type":"reasoning.text","text":"Bb","index":0,"signature":"t"}]"#,
            ),
        ];
        for (chunks, expected) in table {
            assert_eq!(put_together(chunks), *expected, "{chunks:?}");
        }
    }

    #[test]
    fn there_are_only_so_many() {
        let mut details = ReasoningDetails::default();
        let json = r#"[{"type": "reasoning.encrypted"}]"#;
        let json: &RawValue = serde_json::from_str(json).expect("it is JSON");
        for _ in 0..MOST {
            details.add(json).expect("they are few");
        }
        assert!(matches!(details.add(json), Err(Problem::Unreadable(_))));
    }
}
