//! The details of a model's reasoning that OpenRouter requires back unchanged: texts with signatures, summaries and
//! encrypted data.
//!
//! In a stream, a text or a summary arrives in fragments. Those of one detail have the same `type` and `index`: their texts
//! are concatenated, and other fields, such as the signature at the end, are added.

use serde_json::value::RawValue;
use tool_http::client::EventError;
use tool_http::client::json::Members;

use crate::json::{write_array, write_string};
use crate::lenient::List;

/// The maximum number of details: far more than any reply has.
const MAX_DETAILS: usize = 1 << 12;

/// The maximum number of fields of a detail. Further ones are ignored.
const MAX_FIELDS: usize = 1 << 6;

/// The details that have arrived.
#[derive(Default)]
pub(super) struct ReasoningDetails(Vec<Detail>);

struct Detail(Vec<(String, Value)>);

enum Value {
    /// The value unchanged, so that numbers keep all their digits.
    Json(Box<str>),
    /// A text that further fragments may extend.
    Text(String),
}

impl ReasoningDetails {
    /// Consumes the array of a message or of a chunk.
    pub(super) fn push(&mut self, json: &RawValue) -> Result<(), EventError> {
        // Elements that are not objects are ignored, as is a value that is not an array.
        let fragments: List<Members<'_>> =
            serde_json::from_str(json.get()).map_err(|error| EventError::Malformed(error.to_string()))?;
        for fragment in fragments.0 {
            match self.find(&fragment) {
                Some(index) => self.0[index].extend(&fragment),
                None if self.0.len() == MAX_DETAILS => {
                    return Err(EventError::Malformed(format!("more than {MAX_DETAILS} reasoning details")));
                }
                None => {
                    let mut detail = Detail(Vec::new());
                    detail.extend(&fragment);
                    self.0.push(detail);
                }
            }
        }
        Ok(())
    }

    /// Returns the position of the detail that a fragment belongs to. Without an index, that can only be the last.
    fn find(&self, fragment: &Members<'_>) -> Option<usize> {
        if !matches!(get(fragment, "type"), Some(r#""reasoning.text""# | r#""reasoning.summary""#)) {
            return None;
        }
        let found = match get(fragment, "index") {
            Some(_) => self.0.iter().rposition(|detail| detail.matches(fragment))?,
            None => self.0.len().checked_sub(1).filter(|last| self.0[*last].matches(fragment))?,
        };
        (!self.0[found].is_complete_before(fragment)).then_some(found)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes the array.
    pub(super) fn write(&self, json: &mut Vec<u8>) {
        write_array(json, &self.0, Detail::write);
    }
}

impl Detail {
    fn extend(&mut self, fragment: &Members<'_>) {
        for (name, json) in fragment.iter() {
            let text = if matches!(name, "text" | "summary") { fragment.text(name) } else { None };
            let is_full = self.0.len() == MAX_FIELDS;
            let field = self.0.iter_mut().find(|(known, _)| *known == name).map(|(_, value)| value);
            match (field, text) {
                (Some(Value::Text(so_far)), Some(text)) => so_far.push_str(&text),
                (Some(value), text) if value.is_null() => *value = Value::new(text, json),
                (Some(_), _) => {}
                (None, _) if is_full => {}
                (None, text) => self.0.push((name.to_owned(), Value::new(text, json))),
            }
        }
    }

    /// Returns the JSON of a field unless it is `null`.
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|(known, value)| match value {
            Value::Json(json) if known == name && &**json != "null" => Some(&**json),
            _ => None,
        })
    }

    fn matches(&self, fragment: &Members<'_>) -> bool {
        let is_same_id = match (self.get("id"), get(fragment, "id")) {
            (Some(id), Some(other)) => id == other,
            _ => true,
        };
        ["type", "index"].iter().all(|name| self.get(name) == get(fragment, name)) && is_same_id
    }

    /// Returns `true` if the detail is complete and the fragment starts another one: a signed text is not extended.
    fn is_complete_before(&self, fragment: &Members<'_>) -> bool {
        let has_text = get(fragment, "text").is_some_and(|text| text != r#""""#);
        has_text && self.get("signature").is_some() && self.get("signature") != get(fragment, "signature")
    }

    fn write(json: &mut Vec<u8>, detail: &Self) {
        json.push(b'{');
        for (index, (name, value)) in detail.0.iter().enumerate() {
            if index > 0 {
                json.push(b',');
            }
            write_string(json, name);
            json.push(b':');
            match value {
                Value::Json(value) => json.extend_from_slice(value.as_bytes()),
                Value::Text(text) => write_string(json, text),
            }
        }
        json.push(b'}');
    }
}

impl Value {
    fn new(text: Option<String>, json: &str) -> Self {
        text.map_or_else(|| Self::Json(json.into()), Self::Text)
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Json(json) if &**json == "null")
    }
}

/// Returns the JSON of a field unless it is `null`.
fn get<'a>(fragment: &'a Members<'_>, name: &str) -> Option<&'a str> {
    fragment.get(name).filter(|json| *json != "null")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembled(chunks: &[&str]) -> String {
        let mut details = ReasoningDetails::default();
        for chunk in chunks {
            let json: &RawValue = serde_json::from_str(chunk).expect("it is JSON");
            details.push(json).expect("they are few");
        }
        let mut json = Vec::new();
        details.write(&mut json);
        String::from_utf8(json).expect("it is JSON")
    }

    #[test]
    fn joins_the_fragments_of_a_detail() {
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
            // Matched by index; without one, only the last detail matches.
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
            // Matched by type: encrypted data arrives in one fragment.
            (
                &[
                    r#"[{"type":"reasoning.text","text":"A","index":0}]"#,
                    r#"[{"type":"reasoning.encrypted","data":"x","index":0},{"type":"reasoning.encrypted","data":"y","index":0}]"#,
                    r#"[{"type":"reasoning.new","text":"x","index":0},{"type":"reasoning.new","text":"y","index":0}]"#,
                ],
                r#"[{"type":"reasoning.text","text":"A","index":0},{"type":"reasoning.encrypted","data":"x","index":0},{"type":"reasoning.encrypted","data":"y","index":0},{"type":"reasoning.new","text":"x","index":0},{"type":"reasoning.new","text":"y","index":0}]"#,
            ),
            // Different ids, and a text after a signed one.
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
            assert_eq!(assembled(chunks), *expected, "{chunks:?}");
        }
    }

    #[test]
    fn rejects_details_beyond_the_limit() {
        let mut details = ReasoningDetails::default();
        let json = r#"[{"type": "reasoning.encrypted"}]"#;
        let json: &RawValue = serde_json::from_str(json).expect("it is JSON");
        for _ in 0..MAX_DETAILS {
            details.push(json).expect("they are few");
        }
        assert!(matches!(details.push(json), Err(EventError::Malformed(_))));
    }

    #[test]
    fn ignores_fields_beyond_the_limit() {
        let fields = |from: usize| (from..from + 40).map(|n| format!(r#","f{n}":{n}"#)).collect::<String>();
        let chunk = |from| format!(r#"[{{"type":"reasoning.text","index":0,"text":"a"{}}}]"#, fields(from));
        let (first, second) = (chunk(0), chunk(40));
        let json = assembled(&[&first, &second]);
        let details: Vec<Members<'_>> = serde_json::from_str(&json).expect("they are objects");
        assert_eq!(details[0].iter().count(), MAX_FIELDS);
        assert_eq!((details[0].text("text").as_deref(), details.len()), (Some("aa"), 1));
    }
}
