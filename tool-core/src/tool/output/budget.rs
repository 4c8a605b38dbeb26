//! How much of an output or an error a model reads.

use crate::content::{Content, Part};
use crate::tool::{ToolError, ToolOutput};

/// How many characters a place of a cut gives way, so that the cut does not part what is read as one.
const GIVES_WAY: usize = 16;

type Outcome = Result<ToolOutput, ToolError>;

/// A limit on the outcomes of a set, with the code that keeps to it: a program without a limit does not link that.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    limit: usize,
    keep_within: fn(Outcome, usize) -> Outcome,
}

impl Budget {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, keep_within }
    }

    pub(crate) fn apply(self, outcome: Outcome) -> Outcome {
        (self.keep_within)(outcome, self.limit)
    }

    /// The tighter of two.
    pub(crate) fn tighter(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).min_by_key(|budget| budget.limit)
    }
}

/// The outcome of a call, of which the model reads so many characters at most.
pub(crate) fn keep_within(outcome: Outcome, limit: usize) -> Outcome {
    match outcome {
        Ok(output) => Ok(output.truncated(limit)),
        Err(error) => Err(error.truncated(limit)),
    }
}

/// The text with its middle left out; nothing if it is short enough as it is.
pub(crate) fn cut_text(text: &str, limit: usize) -> Option<String> {
    let Cut { head, note, tail, .. } = Cut::of(text, limit, 0)?;
    Some([&text[..head], &*note, &text[tail..]].concat())
}

/// The content with the middle of its text left out, and how many characters were by now, if `already` so many were
/// before; nothing if it is short enough as it is.
///
/// Parts that are whole stay as they are. A value that is not becomes a text.
pub(crate) fn cut_content(content: &Content, limit: usize, already: usize) -> Option<(Content, usize)> {
    if content.len() <= limit || content.text().chars().count() <= limit {
        return None;
    }
    let text: String = content.parts().iter().filter_map(Part::as_text).collect();
    // The line breaks around values are none of the parts' own. What is left has no more of them.
    let breaks = content.len() - text.len();
    let cut = Cut::of(&text, limit.saturating_sub(breaks), already)?;
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

/// Where a text is cut, in bytes, and what takes the place of its middle.
struct Cut {
    head: usize,
    tail: usize,
    note: String,
    left_out: usize,
}

impl Cut {
    fn of(text: &str, limit: usize, already: usize) -> Option<Self> {
        if text.len() <= limit {
            return None;
        }
        let length = text.chars().count();
        if length <= limit {
            return None;
        }
        // The number in the note has no more digits than this one.
        let room = limit.checked_sub(note(already + length).chars().count());
        // What comes first tells most, and what comes last how it ended.
        let (head, tail) = room.map_or((limit, 0), |room| (room - room / 3, room / 3));
        let head = text.char_indices().nth(head).map_or(text.len(), |(place, _)| place);
        let tail = text.char_indices().rev().take(tail).last().map_or(text.len(), |(place, _)| place);
        let (head, tail) = (give_way(text, head, true), give_way(text, tail, false));
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

/// A place near this one where a text can be cut.
fn give_way(text: &str, cut: usize, is_backwards: bool) -> usize {
    let mut place = cut;
    for _ in 0..GIVES_WAY {
        let (before, after) = (text[..place].chars().next_back(), text[place..].chars().next());
        match (before, after) {
            (Some(before), Some(after)) if are_one(before, after) => {
                place = if is_backwards { place - before.len_utf8() } else { place + after.len_utf8() };
            }
            _ => return place,
        }
    }
    cut
}

/// Two characters are read as one: a line break of two, a letter and its mark, the pieces of an emoji.
fn are_one(before: char, after: char) -> bool {
    const JOINER: char = '\u{200D}';
    (before, after) == ('\r', '\n')
        || before == JOINER
        || matches!(after,
            JOINER
            | '\u{0300}'..='\u{036F}' | '\u{1AB0}'..='\u{1AFF}' | '\u{1DC0}'..='\u{1DFF}'
            | '\u{20D0}'..='\u{20FF}' | '\u{FE00}'..='\u{FE0F}' | '\u{FE20}'..='\u{FE2F}'
            | '\u{1F3FB}'..='\u{1F3FF}' | '\u{E0020}'..='\u{E007F}' | '\u{E0100}'..='\u{E01EF}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::content::{Image, JsonText};

    #[test]
    fn a_text_within_the_limit_stays() {
        for (text, limit) in [("", 0), ("abc", 3), ("äöü", 3), ("äöü", usize::MAX)] {
            assert_eq!(cut_text(text, limit), None, "{text}");
        }
    }

    #[test]
    fn head_and_tail_stay_and_a_note_tells_the_rest() {
        let text: String = ('a'..='z').cycle().take(1000).collect();
        let cut = cut_text(&text, 64).unwrap();
        assert_eq!(cut, "abcdefghijklmnopqrstuv\n[… 968 characters left out …]\ncdefghijkl");
        // Too little room for the note: it is left out, too.
        assert_eq!(cut_text(&text, 5).as_deref(), Some("abcde"));
        assert_eq!(cut_text(&text, 0).as_deref(), Some(""));
    }

    #[test]
    fn no_limit_is_ever_crossed_and_every_character_is_told_of() {
        let texts = ["x".repeat(300), "äé𝄞€".repeat(80), "e\u{301}".repeat(150), "\r\n".repeat(150)];
        for (text, limit) in texts.iter().flat_map(|text| (0..320).map(move |limit| (text, limit))) {
            let output = ToolOutput::text(&**text).truncated(limit);
            let (read, length) = (output.to_string(), text.chars().count());
            assert!(read.chars().count() <= limit, "{limit}: {read}");
            let Some(left_out) = output.left_out() else {
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
    fn what_is_read_as_one_is_not_parted() {
        // Each of them is three characters long.
        let pieces = ["e\u{301}\u{302}", "a\r\n", "👍🏽.", "👩\u{200D}👩", "✌\u{FE0F}."];
        for piece in pieces {
            assert_eq!(piece.chars().count(), 3);
            let text = piece.repeat(100);
            for limit in 40..80 {
                let cut = cut_text(&text, limit).unwrap();
                let (head, rest) = cut.split_once("\n[").unwrap();
                let tail = rest.split_once("]\n").unwrap().1;
                let is_parted = |text: &str, rest: &str| match (text.chars().next_back(), rest.chars().next())
                {
                    (Some(before), Some(after)) => are_one(before, after),
                    _ => false,
                };
                assert!(!is_parted(head, &text[head.len()..]), "{cut:?}");
                assert!(!is_parted(&text[..text.len() - tail.len()], tail), "{cut:?}");
            }
        }
        // There is an end to giving way.
        let marks = "\u{301}".repeat(1000);
        assert_eq!(cut_text(&marks, 100).unwrap().matches('\u{301}').count(), 68);
    }

    #[test]
    fn a_second_cut_tells_of_the_first() {
        let once = ToolOutput::text("x".repeat(10_000)).truncated(1000);
        let twice = once.clone().truncated(100);
        let read = twice.to_string();
        let left_out = 10_000 - read.matches('x').count();
        assert_eq!(twice.left_out(), Some(left_out));
        assert!(read.contains(&note(left_out)) && read.chars().count() <= 100, "{read}");
    }

    #[test]
    fn parts_that_are_whole_stay_what_they_are() {
        let (one, two) = (Image::from_url("https://a/1.png"), Image::from_url("https://a/2.png"));
        let value = |length: usize| Part::from(JsonText::from(json!("v".repeat(length))));
        let text = |text: &str| Part::from(text);
        let table = [
            // The limit, the parts, what is left of them.
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
            let left = cut_content(&content, limit, 0).map(|(content, _)| content);
            let told = left.as_ref().map(|left| left.text().into_owned());
            assert!(told.as_ref().is_none_or(|told| told.chars().count() <= limit), "{told:?}");
            assert!(left == expected.map(Content::from_iter), "{limit}: {parts:?} to {told:?}");
        }
    }
}
