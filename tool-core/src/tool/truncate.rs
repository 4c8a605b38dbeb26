//! Truncation of the texts of outputs and errors.

use unicode_segmentation::GraphemeCursor;

use crate::content::{Content, Part};

/// The maximum number of bytes by which a cut moves in order not to split a grapheme.
const MAX_SHIFT: usize = 32;

/// Replaces the middle of a text by a note. Returns `None` if the text is within the limit.
pub(crate) fn truncate_text(text: &str, limit: usize) -> Option<String> {
    let Cut { head, note, tail, .. } = Cut::new(text, limit, 0)?;
    Some([&text[..head], &*note, &text[tail..]].concat())
}

/// Returns `true` if a text has more characters.
pub(crate) fn exceeds(text: &str, limit: usize) -> bool {
    // Counting characters takes longer.
    text.len() > limit && text.chars().count() > limit
}

/// Replaces the middle of the text of a content by a note, and returns the total number of characters left out;
/// `already` were left out before. Returns `None` if the content is within the limit.
///
/// Parts that are not affected stay as they are. A truncated JSON part becomes a text.
pub(crate) fn truncate_content(content: &Content, limit: usize, already: usize) -> Option<(Content, usize)> {
    if !exceeds(&content.text(), limit) {
        return None;
    }
    let text: String = content.parts().iter().filter_map(Part::as_text).collect();
    // The line breaks around JSON parts belong to no part. The result has no more of them than the original.
    let breaks = content.len() - text.len();
    let cut = Cut::new(&text, limit.saturating_sub(breaks), already)?;
    let mut note = Some(&*cut.note);
    let mut end = 0;
    let keep = |part: &Part| {
        let Some(text) = part.as_text() else { return Some(part.clone()) };
        let start = end;
        end += text.len();
        if end <= cut.head || start >= cut.tail {
            return Some(part.clone());
        }
        let head = &text[..cut.head.saturating_sub(start)];
        let tail = &text[cut.tail.min(end) - start..];
        let text = [head, note.take().unwrap_or_default(), tail].concat();
        (!text.is_empty()).then(|| Part::from(text))
    };
    Some((content.parts().iter().filter_map(keep).collect(), cut.left_out))
}

/// The byte offsets between which a text is cut, and the note that replaces its middle.
struct Cut {
    head: usize,
    tail: usize,
    note: String,
    left_out: usize,
}

impl Cut {
    fn new(text: &str, limit: usize, already: usize) -> Option<Self> {
        if text.len() <= limit {
            return None;
        }
        let length = text.chars().count();
        if length <= limit {
            return None;
        }
        // The number in the final note has no more digits than this one.
        let room = limit.checked_sub(note(already + length).chars().count());
        // The beginning is usually the most informative, and the end shows the outcome.
        let (head, tail) = room.map_or((limit, 0), |room| (room - room / 3, room / 3));
        let head = text.char_indices().nth(head).map_or(text.len(), |(offset, _)| offset);
        let tail = text.char_indices().rev().take(tail).last().map_or(text.len(), |(offset, _)| offset);
        let (head, tail) = (shift_cut(text, head, true), shift_cut(text, tail, false));
        let middle = &text[head..tail];
        let mut left_out = already + middle.chars().count();
        if already > 0 && middle.contains(&note(already)) {
            left_out -= note(already).chars().count();
        }
        let note = room.map(|_| note(left_out)).unwrap_or_default();
        Some(Self { head, tail, note, left_out })
    }
}

fn note(left_out: usize) -> String {
    format!("\n[… {left_out} characters left out …]\n")
}

/// Moves a cut to the nearest offset in front of it, or else behind it, that does not split a grapheme.
fn shift_cut(text: &str, cut: usize, is_backwards: bool) -> usize {
    let mut cursor = GraphemeCursor::new(cut, text.len(), true);
    let is_boundary = cursor.is_boundary(text, 0).unwrap_or(true);
    let shifted = match is_backwards {
        _ if is_boundary => None,
        true => cursor.prev_boundary(text, 0).ok().flatten(),
        false => cursor.next_boundary(text, 0).ok().flatten(),
    };
    // A grapheme can be arbitrarily long.
    shifted.filter(|shifted| shifted.abs_diff(cut) <= MAX_SHIFT).unwrap_or(cut)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::content::{Image, JsonText};
    use crate::tool::ToolOutput;

    #[test]
    fn keeps_a_text_within_the_limit() {
        for (text, limit) in [("", 0), ("abc", 3), ("äöü", 3), ("äöü", usize::MAX)] {
            assert_eq!(truncate_text(text, limit), None, "{text}");
        }
    }

    #[test]
    fn keeps_head_and_tail_and_notes_the_rest() {
        let text: String = ('a'..='z').cycle().take(1000).collect();
        let cut = truncate_text(&text, 64).unwrap();
        assert_eq!(cut, "abcdefghijklmnopqrstuv\n[… 968 characters left out …]\ncdefghijkl");
        // Without room for the note, it is left out too.
        assert_eq!(truncate_text(&text, 5).as_deref(), Some("abcde"));
        assert_eq!(truncate_text(&text, 0).as_deref(), Some(""));
    }

    #[test]
    fn never_exceeds_the_limit_and_counts_every_character() {
        let texts = ["x".repeat(300), "äé𝄞€".repeat(80), "e\u{301}".repeat(150), "\r\n".repeat(150)];
        for (text, limit) in texts.iter().flat_map(|text| (0..320).map(move |limit| (text, limit))) {
            let output = ToolOutput::text(&**text).truncated(limit);
            let (read, length) = (output.to_string(), text.chars().count());
            assert!(read.chars().count() <= limit, "{limit}: {read}");
            let Some(left_out) = output.omitted_chars() else {
                assert!(length <= limit && read == *text);
                continue;
            };
            let note = note(left_out);
            let (head, tail) = read.split_once(&note).unwrap_or((&read, ""));
            assert!(text.starts_with(head) && text.ends_with(tail), "{limit}: {read}");
            assert_eq!(head.chars().count() + left_out + tail.chars().count(), length);
            assert!(length > limit && (limit < 40 || read.contains(&note)), "{limit}: {read}");
        }
    }

    #[test]
    fn does_not_split_graphemes() {
        // Each of them is three characters long.
        let graphemes = ["e\u{301}\u{302}", "a\r\n", "👍🏽.", "👩\u{200D}👩", "✌\u{FE0F}."];
        for grapheme in graphemes {
            assert_eq!(grapheme.chars().count(), 3);
            let text = grapheme.repeat(100);
            for limit in 40..80 {
                let cut = truncate_text(&text, limit).unwrap();
                let (head, rest) = cut.split_once("\n[").unwrap();
                let tail = rest.split_once("]\n").unwrap().1;
                for offset in [head.len(), text.len() - tail.len()] {
                    let mut cursor = GraphemeCursor::new(offset, text.len(), true);
                    assert_eq!(cursor.is_boundary(&text, 0), Ok(true), "{cut:?}");
                }
            }
        }
        // The shift is bounded.
        let marks = "\u{301}".repeat(1000);
        assert_eq!(truncate_text(&marks, 100).unwrap().matches('\u{301}').count(), 68);
    }

    #[test]
    fn a_second_cut_counts_the_first() {
        let once = ToolOutput::text("x".repeat(10_000)).truncated(1000);
        let twice = once.clone().truncated(100);
        let read = twice.to_string();
        let left_out = 10_000 - read.matches('x').count();
        assert_eq!(twice.omitted_chars(), Some(left_out));
        assert!(read.contains(&note(left_out)) && read.chars().count() <= 100, "{read}");
    }

    #[test]
    fn keeps_unaffected_parts() {
        let (one, two) = (Image::from_url("https://a/1.png"), Image::from_url("https://a/2.png"));
        let value = |length: usize| Part::from(JsonText::from(json!("v".repeat(length))));
        let text = |text: &str| Part::from(text);
        let table = [
            // The limit, the parts, and the remaining parts.
            (3, vec!["abc".into(), one.clone().into()], None),
            (
                50,
                vec!["a".repeat(70).into(), one.clone().into(), "b".into()],
                Some(vec![
                    text(&format!("{}{}aaaaa", "a".repeat(14), note(51))),
                    one.clone().into(),
                    text("b"),
                ]),
            ),
            (
                60,
                vec![value(1), one.clone().into(), value(90), two.clone().into(), value(2)],
                Some(vec![
                    value(1),
                    one.clone().into(),
                    text(&format!("\"{}{}{}", "v".repeat(15), note(71), "vvvv\"")),
                    two.clone().into(),
                    value(2),
                ]),
            ),
            (
                50,
                vec![
                    "a".repeat(30).into(),
                    one.clone().into(),
                    value(20),
                    two.clone().into(),
                    "b".repeat(30).into(),
                ],
                Some(vec![
                    text(&format!("{}{}", "a".repeat(12), note(64))),
                    one.clone().into(),
                    two.clone().into(),
                    text("bbbbbb"),
                ]),
            ),
            (0, vec![value(1), one.clone().into(), value(2)], Some(vec![one.clone().into()])),
        ];
        for (limit, parts, expected) in table {
            let content = Content::from_iter(parts.clone());
            let left = truncate_content(&content, limit, 0).map(|(content, _)| content);
            let text = left.as_ref().map(|left| left.text().into_owned());
            assert!(text.as_ref().is_none_or(|text| text.chars().count() <= limit), "{text:?}");
            assert!(left == expected.map(Content::from_iter), "{limit}: {parts:?} to {text:?}");
        }
    }
}
