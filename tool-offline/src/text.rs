//! Splits a text into tokens: words, numbers, quotations, addresses, dates and marks.

use std::ops::Range;

use serde_json::Number;

/// The number of tokens that are read of a text.
const MAX_TOKENS: usize = 1_000;

/// The quotation marks, each with the one that closes it.
const QUOTES: [(char, char); 6] = [('"', '"'), ('`', '`'), ('\'', '\''), ('“', '”'), ('‘', '’'), ('«', '»')];

/// A part of a text.
#[derive(Debug)]
pub(crate) struct Token<'t> {
    pub(crate) kind: TokenKind,
    /// The text as written, without quotation marks.
    pub(crate) text: &'t str,
    /// The bytes of the token in the text.
    pub(crate) span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    Word,
    Number(Number),
    Quoted,
    Email,
    /// A date of the form `2026-12-31`, with or without a time.
    Date,
    Mark,
}

pub(crate) fn tokenize(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text;
    let mut before = None;
    while let Some(first) = rest.chars().next()
        && tokens.len() < MAX_TOKENS
    {
        let start = text.len() - rest.len();
        let (length, kind) = scan(rest, first, before);
        let (token, tail) = rest.split_at(length);
        if !first.is_whitespace() {
            let mut inside = token.chars();
            let is_quoted =
                kind == TokenKind::Quoted && inside.next().is_some() && inside.next_back().is_some();
            let text = if is_quoted { inside.as_str() } else { token };
            tokens.push(Token { kind, text, span: start..start + length });
        }
        before = token.chars().next_back();
        rest = tail;
    }
    tokens
}

/// Returns the length in bytes and the kind of the token at the start of `rest`, which begins with `first`.
fn scan(rest: &str, first: char, before: Option<char>) -> (usize, TokenKind) {
    let is_joined = before.is_some_and(char::is_alphanumeric);
    if let Some(length) = quotation(rest, first).filter(|_| !is_joined) {
        return (length, TokenKind::Quoted);
    }
    let end = rest.find(|c: char| c.is_whitespace() || "\"“”<>".contains(c)).unwrap_or(rest.len());
    let chunk = rest[..end].trim_end_matches(|c: char| ".,;:!?)]}'’".contains(c));
    let is_path = first == '/' || first == '~' || first == '.' && chunk.starts_with("./");
    let is_link = ["http://", "https://", "www."].iter().any(|start| chunk.starts_with(start));
    match (number(rest, is_joined), word_len(rest)) {
        _ if is_email(chunk) => (chunk.len(), TokenKind::Email),
        _ if is_date(chunk) => (chunk.len(), TokenKind::Date),
        _ if is_link || is_path && chunk.len() > 1 && !is_joined => (chunk.len(), TokenKind::Word),
        (Some((length, number)), _) => (length, TokenKind::Number(number)),
        (None, 0) => (first.len_utf8(), TokenKind::Mark),
        (None, length) => (length, TokenKind::Word),
    }
}

fn quotation(rest: &str, first: char) -> Option<usize> {
    let (_, close) = *QUOTES.iter().find(|(open, _)| *open == first)?;
    let ends = |at: usize| !rest[at + close.len_utf8()..].starts_with(char::is_alphanumeric);
    let places = rest.char_indices().skip(1).filter(|(_, c)| *c == close);
    // An apostrophe inside a word does not end a quotation.
    places.map(|(at, _)| at).find(|at| ends(*at)).map(|at| at + close.len_utf8())
}

fn is_email(chunk: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "._%+-@".contains(c);
    let has_domain =
        chunk.split_once('@').is_some_and(|(user, domain)| !user.is_empty() && domain.contains('.'));
    has_domain && chunk.chars().all(is_part)
}

fn is_date(chunk: &str) -> bool {
    let date = chunk.split_once('T').map_or(chunk, |(date, _)| date);
    let digits = |byte: u8| if byte.is_ascii_digit() { b'0' } else { byte };
    date.bytes().map(digits).eq(*b"0000-00-00")
}

/// Reads a number as people write it: `-2.5`, `1,000` or `1e5`. After a word or a value, `-` is no sign.
fn number(rest: &str, is_joined: bool) -> Option<(usize, Number)> {
    let sign = usize::from(rest.starts_with('-') && !is_joined);
    let is_part = |c: char| c.is_ascii_digit() || ".,eE".contains(c);
    let end = rest[sign..].find(|c| !is_part(c)).map_or(rest.len(), |end| sign + end);
    let (first, groups) = rest[..end].split_once(',').unwrap_or((&rest[..end], ""));
    // In "1,2", the comma separates two numbers.
    let is_grouped = groups.split(',').all(|group| group.find('.').unwrap_or(group.trim_end().len()) == 3);
    let text = if is_grouped { &rest[..end] } else { first }.trim_end_matches(['.', ',']);
    let plain = text.replace(',', "");
    let starts = plain.trim_start_matches(['-', '.']).starts_with(|c: char| c.is_ascii_digit());
    let integer = plain.parse::<i64>().map(Number::from).ok();
    let number = integer.or_else(|| Number::from_f64(plain.parse().ok()?));
    number.filter(|_| starts).map(|number| (text.len(), number))
}

/// Returns the length of a word: letters and digits with joints between them, such as `e-mail` and `notes/today.txt`.
/// The end of `what's` is not part of it.
fn word_len(rest: &str) -> usize {
    let end = rest.find(|c: char| !c.is_alphanumeric() && !"_-'’./".contains(c)).unwrap_or(rest.len());
    let word = rest[..end].trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_');
    let word = word.strip_suffix("'s").or(word.strip_suffix("’s")).unwrap_or(word);
    if word.starts_with(|c: char| c.is_alphanumeric() || c == '_') { word.len() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_tokens() {
        for (text, tokens) in [
            ("What's Bob's e-mail?", "What|'|s|Bob|'|s|e-mail|?"),
            ("a=3, b=-11.", "a|=|3|,|b|=|-11|."),
            ("5-3 and 5 - 3", "5|-|3|and|5|-|3"),
            ("1,000.5 or 1,2", "1,000.5|or|1|,|2"),
            ("don't 'say “it’s”' now", "don't|say “it’s”|now"),
            ("see https://a.org/b?c=1, (a@b.org).", "see|https://a.org/b?c=1|,|(|a@b.org|)|."),
            ("10.0.0.1 on 2026-03-01T10:00Z", "10.0.0.1|on|2026-03-01T10:00Z"),
            ("./a/b.txt /tmp.", "./a/b.txt|/tmp|."),
            ("\"open 'end", "\"|open|'|end"),
        ] {
            let cut: Vec<_> = tokenize(text).into_iter().map(|token| token.text).collect();
            assert_eq!(cut.join("|"), tokens);
        }
    }

    #[test]
    fn reads_numbers_exactly() {
        for (text, number) in [
            ("475695037565", "475695037565"),
            ("007", "7"),
            (".5", "0.5"),
            ("1e5", "100000.0"),
            ("-2.50", "-2.5"),
            ("0", "0"),
        ] {
            let [token] = &tokenize(text)[..] else { panic!("{text}") };
            let TokenKind::Number(found) = &token.kind else { panic!("{text}: {:?}", token.kind) };
            assert_eq!(found.to_string(), number);
        }
    }
}
