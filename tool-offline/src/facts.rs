//! Extracts values from questions and results.

use std::ops::Range;

use serde_json::{Number, Value};

use crate::clock::relative_time;
use crate::thesaurus::{Term, is_light, is_stop, terms};
use crate::tokens::{Text, Token, TokenKind};

/// A value from which an argument can be filled.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) kind: FactKind,
    pub(crate) text: String,
    /// The tokens it was read from; empty if it is not from the question.
    pub(crate) span: Range<usize>,
    /// The preposition before it, if any.
    pub(crate) preposition: String,
    /// The name of the field, if it is a field of a result.
    pub(crate) field: Vec<Term>,
    /// The step that produces it.
    pub(crate) step: Option<usize>,
    /// The seconds after the time that the step returns.
    pub(crate) offset_seconds: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FactKind {
    Number(Number),
    Quoted,
    Email,
    Url,
    /// `2026-03-01`, or a word such as `tomorrow`.
    Date {
        is_iso: bool,
    },
    Time,
    /// A time relative to the present, such as "in 10 minutes".
    Relative {
        seconds: i64,
    },
    /// Capitalised words.
    Name,
    /// Words that match no tool: a whole run of them, or a part between separators.
    Phrase {
        is_whole: bool,
    },
    /// A message after "saying …".
    Speech,
    /// A chain such as `2 + 3 * 4`.
    Formula,
    /// The future result of a step, by its index.
    PendingResult(usize),
    /// The result of a step.
    Result,
}

const PREPOSITIONS: &str =
    "to into from in at near on by for with about of between until named called titled as";
const DAYS: &str =
    "today tomorrow yesterday tonight monday tuesday wednesday thursday friday saturday sunday";
const UNITS: &str = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen \
    sixteen seventeen eighteen nineteen";
const TENS: &str = "ten twenty thirty forty fifty sixty seventy eighty ninety";
const SCALES: [(&str, u64); 4] =
    [("dozen", 12), ("hundred", 100), ("thousand", 1_000), ("million", 1_000_000)];

pub(crate) fn is_listed(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}

/// Returns `true` if the words that follow are a message.
pub(crate) fn introduces_speech(word: &str) -> bool {
    is_listed("saying says stating", word)
}

pub(crate) fn is_list_separator(word: &str) -> bool {
    matches!(word, "," | "、" | "and" | "or" | "&")
}

impl Fact {
    pub(crate) fn new(text: &Text, span: Range<usize>, kind: FactKind) -> Self {
        let source = match (span.len(), text.token(span.start)) {
            (1, Some(token)) => &token.text,
            _ => text.slice(span.clone()),
        };
        let mut before = span.start.wrapping_sub(1);
        while is_listed("the a an my our your", text.word(before)) {
            before = before.wrapping_sub(1);
        }
        let preposition = text.word(before);
        let is_preposition = is_listed(PREPOSITIONS, preposition);
        Self {
            kind,
            text: source.to_owned(),
            preposition: if is_preposition { preposition.to_owned() } else { String::new() },
            span,
            field: Vec::new(),
            step: None,
            offset_seconds: None,
        }
    }

    /// Creates a fact for the future result of a step. `span` has the words that refer to the step.
    pub(crate) fn pending_result(step: usize, span: Range<usize>) -> Self {
        Self { kind: FactKind::PendingResult(step), span, step: Some(step), ..Self::result("") }
    }

    /// Creates a fact from a result.
    pub(crate) fn result(text: &str) -> Self {
        let (text, preposition) = (text.to_owned(), String::new());
        let (field, step, offset_seconds) = (Vec::new(), None, None);
        Self { kind: FactKind::Result, text, span: 0..0, preposition, field, step, offset_seconds }
    }

    pub(crate) fn overlaps(&self, range: &Range<usize>) -> bool {
        self.span.start < range.end && range.start < self.span.end
    }
}

/// Returns `true` if only list separators and small words are between two values: "in Paris, in Rome and in Bonn".
pub(crate) fn continues_list(text: &Text, one: &Range<usize>, next: &Range<usize>) -> bool {
    let between = || (one.end..next.start).map(|at| text.word(at));
    let is_joint = |word| {
        is_list_separator(word)
            || is_listed(PREPOSITIONS, word)
            || is_listed("the a an also ? what how about", word)
    };
    between().all(is_joint) && between().any(is_list_separator)
}

/// Returns the values that are recognizable by their form alone.
pub(crate) fn literals(text: &Text) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut at = 0;
    while let Some(token) = text.token(at) {
        if let Some((number, length, seconds)) = relative_time(text, at) {
            // For a tool that takes the number itself.
            let digits = text.token(number.start).map(|token| token.kind.clone());
            if let Some(TokenKind::Number(digits)) = digits {
                facts.push(Fact::new(text, number, FactKind::Number(digits)));
            }
            facts.push(Fact::new(text, at..at + length, FactKind::Relative { seconds }));
            at += length;
            continue;
        }
        let kind = match &token.kind {
            // The exponent in "m/s^2" is not a value.
            TokenKind::Number(_) if at > 1 && text.word(at - 1) == "^" && !is_number(text, at - 2) => None,
            TokenKind::Number(number) => Some(FactKind::Number(number.clone())),
            TokenKind::Quoted => Some(FactKind::Quoted),
            TokenKind::Email => Some(FactKind::Email),
            TokenKind::Url => Some(FactKind::Url),
            TokenKind::Date => Some(FactKind::Date { is_iso: true }),
            TokenKind::Time => Some(FactKind::Time),
            TokenKind::Word if is_listed(DAYS, &token.lower) => Some(FactKind::Date { is_iso: false }),
            TokenKind::Word | TokenKind::Mark => None,
        };
        let spoken = if kind.is_none() { number_in_words(text, at) } else { None };
        let (length, kind) = match spoken {
            Some((length, number)) => (length, Some(FactKind::Number(number.into()))),
            None => (1, kind),
        };
        facts.extend(kind.map(|kind| Fact::new(text, at..at + length, kind)));
        at += length;
    }
    facts
}

fn is_number(text: &Text, at: usize) -> bool {
    text.token(at).is_some_and(|token| matches!(token.kind, TokenKind::Number(_)))
}

/// Reads `twenty-five`, `two hundred` or `a dozen`, but not the `two` of "two numbers".
pub(crate) fn number_in_words(text: &Text, start: usize) -> Option<(usize, u64)> {
    let (mut total, mut current, mut end) = (0_u64, 0_u64, start);
    'words: loop {
        for part in text.word(end).split('-') {
            let fits = |number: u64| current % 100 == 0 || current % 10 == 0 && current > 10 && number < 10;
            if let Some(number) = small(part).filter(|number| fits(*number)) {
                current = current.saturating_add(number);
            } else if let Some((_, scale)) = SCALES.iter().find(|(scale, _)| *scale == part) {
                current = current.max(1).saturating_mul(*scale);
                if *scale >= 1_000 {
                    total = total.saturating_add(std::mem::take(&mut current));
                }
            } else {
                break 'words;
            }
        }
        end += 1;
    }
    // Neither the "two" of "two charges of 5 and 7" nor the "one" of "this one" is a value.
    let counts = |at: usize| matches!(text.word(at), "of" | ":") && is_number(text, at + 1);
    let is_generic = is_listed("number numbers values integers sides of dates", text.word(end))
        || (end + 1..end + 4).any(counts)
        || text.word(start) == "one" && is_listed("this that which the no", text.word(start.wrapping_sub(1)));
    (end > start && !is_generic).then(|| (end - start, total.saturating_add(current)))
}

fn small(word: &str) -> Option<u64> {
    let place = |list: &str| list.split(' ').position(|one| one == word);
    let number = place(UNITS).or_else(|| Some((place(TENS)? + 1) * 10))?;
    u64::try_from(number).ok()
}

/// Returns runs of capitalised words, except words that match the tool and ordinary words that start a sentence.
pub(crate) fn names(text: &Text, range: Range<usize>, is_explained: &dyn Fn(usize) -> bool) -> Vec<Fact> {
    let is_name = |at: usize| {
        let Some(token) = text.token(at).filter(|token| token.kind == TokenKind::Word && at < range.end)
        else {
            return false;
        };
        let begins = at == 0 || matches!(text.word(at - 1), "." | "!" | "?" | ":");
        let capital = token.text.chars().next().is_some_and(char::is_uppercase);
        let is_plain = is_listed(DAYS, &token.lower) || is_stop(&token.lower);
        !is_explained(at) && (is_code(token) || capital && !begins && !is_plain)
    };
    let mut names = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let mut end = at;
        while is_name(end) {
            end += 1;
        }
        if end > at {
            // "Paris, France" is one name; "Paris, France and Spain" is a list.
            let second = end + 1;
            let more = (second..range.end).take_while(|at| is_name(*at)).count();
            if text.word(end) == "," && more > 0 && !is_list_separator(text.word(second + more)) {
                let continues = is_list_separator(text.word(at.wrapping_sub(1)));
                end = if continues { end } else { second + more };
            }
            names.push(Fact::new(text, at..end, FactKind::Name));
        }
        at = end.max(at + 1);
    }
    names
}

/// Returns `true` if a word looks like a code or a path: `ACME`, `BRCA1`, `notes/today.txt`.
fn is_code(token: &Token) -> bool {
    let text = &token.text;
    let mixed = text.chars().any(|c| c.is_ascii_digit() || c == '/' || c == '.');
    let capitals = text.chars().filter(|c| c.is_uppercase()).count();
    text.len() > 1 && (capitals > 1 && !text.contains('-') || mixed)
}

/// Returns the runs of words that nothing else explains, without the small words at their ends.
pub(crate) fn phrases(text: &Text, range: Range<usize>, is_explained: &dyn Fn(usize) -> bool) -> Vec<Fact> {
    let breaks = |at: usize| {
        let ends = |token: &Token| match token.kind {
            TokenKind::Mark => matches!(&*token.lower, "." | "!" | "?" | ";" | "=" | "(" | ")"),
            TokenKind::Word | TokenKind::Number(_) => false,
            _ => true,
        };
        at >= range.end || is_explained(at) || text.token(at).is_none_or(ends)
    };
    let mut phrases = Vec::new();
    let mut push = |at: Range<usize>, is_whole: bool| {
        let is_small = |word: &str| {
            is_stop(word)
                || is_light(word)
                || introduces_speech(word)
                || is_list_separator(word)
                || word == ":"
        };
        let mut words = at.skip_while(|at| is_small(text.word(*at)));
        let start = words.next();
        let last = words.filter(|at| !is_small(text.word(*at))).last().or(start);
        if let Some((start, last)) = start.zip(last)
            && !(start..=last).all(|at| is_number(text, at))
        {
            phrases.push(Fact::new(text, start..last + 1, FactKind::Phrase { is_whole }));
        }
    };
    let mut at = range.start;
    while at < range.end {
        let end = (at..range.end).find(|at| breaks(*at)).unwrap_or(range.end);
        if end > at {
            push(at..end, true);
            let mut start = at;
            for cut in (at..=end).filter(|at| *at == end || is_cut(text, *at)) {
                push(start..cut, false);
                start = cut;
            }
        }
        at = end + 1;
    }
    let is_speech_start =
        |at: &usize| (introduces_speech(text.word(*at)) || text.word(*at) == ":") && !is_explained(*at);
    let is_stop = matches!(text.word(range.end.wrapping_sub(1)), "." | "!" | "?");
    let end = range.end.saturating_sub(usize::from(is_stop));
    let start = range.clone().find(is_speech_start).map(|at| at + 1).filter(|start| *start < end);
    phrases.extend(start.map(|start| Fact::new(text, start..end, FactKind::Speech)));
    phrases
}

/// Returns `true` if a list separator or a preposition starts a new part.
fn is_cut(text: &Text, at: usize) -> bool {
    is_list_separator(text.word(at))
        || is_listed(PREPOSITIONS, text.word(at))
        || introduces_speech(text.word(at))
}

/// Returns a fact for every field of a result that is a JSON object.
pub(crate) fn fields(result: &str, step: usize) -> Vec<Fact> {
    let Ok(Value::Object(object)) = serde_json::from_str(result) else {
        return Vec::new();
    };
    let known = |(name, value): (&String, &Value)| {
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        Fact { field: terms([(0, &**name)]), step: Some(step), ..Fact::result(&text) }
    };
    object.iter().map(known).collect()
}

/// Returns the number that a result consists of, or the only number in it.
pub(crate) fn number_in(result: &str) -> Option<Number> {
    if let Ok(number) = result.trim().parse() {
        return Some(number);
    }
    let numbers = literals(&Text::new(result)).into_iter().filter_map(|fact| match fact.kind {
        FactKind::Number(number) => Some(number),
        _ => None,
    });
    single(numbers)
}

/// Returns the only e-mail address in a result.
pub(crate) fn email_in(result: &str) -> Option<String> {
    single(
        literals(&Text::new(&result.replace('"', " ")))
            .into_iter()
            .filter(|fact| fact.kind == FactKind::Email),
    )
    .map(|fact| fact.text)
}

pub(crate) fn single<T>(mut several: impl Iterator<Item = T>) -> Option<T> {
    several.next().filter(|_| several.next().is_none())
}
