//! Annotations of texts, which both APIs send in nearly the same form. The URLs among them are citations.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use tool_core::provider::Citation;

use crate::lenient::{Count, List, Object, Text};

/// An annotation of either API.
#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
struct WireAnnotation<'a> {
    /// Chat Completions nests the other members.
    url_citation: Object<Box<WireAnnotation<'a>>>,
    url: Text<'a>,
    title: Text<'a>,
    /// OpenRouter's excerpt of the page.
    content: Text<'a>,
    start_index: Count,
    end_index: Count,
}

/// Parses an array of annotations, or one, into citations whose ranges count characters. They are optional data, so JSON that
/// cannot be parsed is treated as empty.
pub(crate) fn parse_array(json: Option<&RawValue>) -> Vec<Citation> {
    let parsed = json.and_then(|json| serde_json::from_str::<List<WireAnnotation<'_>>>(json.get()).ok());
    parsed.unwrap_or_default().0.into_iter().filter_map(citation).collect()
}

fn citation(mut annotation: WireAnnotation<'_>) -> Option<Citation> {
    let wire = annotation.url_citation.0.take().map_or(annotation, |nested| *nested);
    let index = |index: Count| index.0.map(|index| usize::try_from(index).unwrap_or(usize::MAX));
    let range = index(wire.start_index).unwrap_or(0)..index(wire.end_index).unwrap_or(usize::MAX);
    let mut citation = Citation::new(range);
    citation.url = Some(wire.url.non_empty()?);
    (citation.title, citation.quote) = (wire.title.non_empty(), wire.content.non_empty());
    Some(citation)
}

/// Returns citations of `text`, which starts at this byte of the message, with ranges in bytes of the message instead of characters of
/// the text. An empty range is replaced with the whole text.
pub(crate) fn with_byte_ranges(citations: &[Citation], text: &str, start: usize) -> Vec<Citation> {
    let indices = citations.iter().flat_map(|citation| [citation.range.start, citation.range.end]);
    let mut offsets: BTreeMap<_, _> = indices.map(|index| (index, text.len())).collect();
    // One pass over the text, however many citations a malicious server sends.
    let (mut characters, mut position) = (text.char_indices(), 0);
    for (index, offset) in &mut offsets {
        let Some((found, _)) = characters.nth(index - position) else { break };
        (*offset, position) = (found, index + 1);
    }
    let to_bytes = |citation: &Citation| {
        let mut citation = citation.clone();
        let range = offsets[&citation.range.start]..offsets[&citation.range.end];
        let range = if range.is_empty() { 0..text.len() } else { range };
        citation.range = start + range.start..start + range.end;
        citation
    };
    citations.iter().map(to_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_within_the_text() {
        let text = "é\u{1f30a}a";
        let table = [
            (0..1, 0..2),
            (1..2, 2..6),
            (1..3, 2..7),
            (2..usize::MAX, 6..7),
            // Unusable ones.
            (1..1, 0..7),
            (3..9, 0..7),
            (std::ops::Range { start: 2, end: 1 }, 0..7),
            (usize::MAX..usize::MAX, 0..7),
        ];
        let citations: Vec<_> = table.iter().map(|(range, _)| Citation::new(range.clone())).collect();
        let found = with_byte_ranges(&citations, text, 10);
        for ((range, expected), citation) in table.iter().zip(found) {
            assert_eq!(citation.range, 10 + expected.start..10 + expected.end, "{range:?}");
        }
        assert_eq!(with_byte_ranges(&[Citation::new(0..1)], "", 3)[0].range, 3..3);
    }

    #[test]
    fn reads_only_urls() {
        let table = [
            (r#"[{"type":"url_citation","url":"u","title":"","start_index":1,"end_index":"2"}]"#, 1),
            (r#"{"url_citation":{"url":"u","start_index":1,"end_index":2},"url":"v"}"#, 1),
            (r#"[{"type":"file_citation","filename":"f"},{"url":""},7,null,{"url_citation":{}}]"#, 0),
            ("null", 0),
            ("7", 0),
        ];
        for (json, count) in table {
            let found = parse_array(Some(serde_json::from_str(json).expect(json)));
            let mut expected = Citation::new(1..2);
            expected.url = Some("u".into());
            assert_eq!(found, vec![expected; count], "{json}");
        }
        let many = format!("[{}]", vec![r#"{"url":"u"}"#; 5000].join(","));
        assert_eq!(parse_array(Some(serde_json::from_str(&many).expect("it is JSON"))), []);
    }
}
