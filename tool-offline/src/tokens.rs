//! Splits a text into tokens: words, numbers, quotations, addresses, dates and marks.

use std::ops::Range;

use serde_json::Number;

/// The number of tokens that are read of a text.
const MAX_TOKENS: usize = 4_000;

/// A text and its tokens.
#[derive(Debug)]
pub(crate) struct Text {
    source: String,
    pub(crate) tokens: Vec<Token>,
}

#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    /// The text as written, without quotation marks.
    pub(crate) text: String,
    pub(crate) lower: String,
    bytes: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    Word,
    Number(Number),
    Quoted,
    Email,
    Url,
    /// A date of the form `2026-03-01`, with or without a time.
    Date,
    Time,
    Mark,
}

impl Text {
    pub(crate) fn new(source: &str) -> Self {
        let mut tokens: Vec<Token> = Vec::new();
        let mut at = 0;
        while let Some(rest) = source.get(at..)
            && let Some(first) = rest.chars().next()
            && tokens.len() < MAX_TOKENS
        {
            let before = source.get(..at).and_then(|text| text.chars().next_back());
            let follows_value = tokens.last().is_some_and(|last| matches!(last.kind, TokenKind::Number(_)));
            let (length, kind) = if first.is_whitespace() {
                (first.len_utf8(), None)
            } else {
                let (length, kind) = scan_token(rest, first, before, follows_value);
                (length.max(first.len_utf8()), Some(kind))
            };
            if let (Some(kind), Some(text)) = (kind, rest.get(..length)) {
                let text = match kind {
                    TokenKind::Quoted => strip_quotes(text),
                    _ => text,
                };
                let bytes = at..at + length;
                tokens.push(Token { kind, text: text.to_owned(), lower: text.to_lowercase(), bytes });
            }
            at += length;
        }
        Self { source: source.to_owned(), tokens }
    }

    pub(crate) fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at)
    }

    /// Returns the word or mark at an index in lower case, or an empty text for anything else.
    pub(crate) fn word(&self, at: usize) -> &str {
        match self.tokens.get(at) {
            Some(token) if matches!(token.kind, TokenKind::Word | TokenKind::Mark) => &token.lower,
            _ => "",
        }
    }

    /// Returns the source text of a range of tokens.
    pub(crate) fn slice(&self, tokens: Range<usize>) -> &str {
        let inside = self.tokens.get(tokens).unwrap_or_default();
        match (inside.first(), inside.last()) {
            (Some(first), Some(last)) => self.source.get(first.bytes.start..last.bytes.end).unwrap_or(""),
            _ => "",
        }
    }

    pub(crate) fn all(&self) -> Range<usize> {
        0..self.tokens.len()
    }
}

/// Returns the length and kind of the token at the start of `rest`.
fn scan_token(rest: &str, first: char, before: Option<char>, follows_value: bool) -> (usize, TokenKind) {
    let joined = before.is_some_and(char::is_alphanumeric);
    if let Some(length) = scan_quotation(rest, first, joined) {
        return (length, TokenKind::Quoted);
    }
    // The end of "what's" and "Bob's".
    if joined && matches!(first, '\'' | '’') && is_possessive(rest) {
        return (first.len_utf8() + 1, TokenKind::Word);
    }
    for (find, kind) in [
        (scan_url as fn(&str) -> _, TokenKind::Url),
        (scan_email, TokenKind::Email),
        (scan_date, TokenKind::Date),
        (scan_time, TokenKind::Time),
    ] {
        if let Some(length) = find(rest) {
            return (length, kind);
        }
    }
    if let Some((length, number)) = scan_number(rest, first, joined || follows_value) {
        return (length, TokenKind::Number(number));
    }
    let is_path = matches!(first, '/' | '~' | '.') && !joined && !follows_value;
    if is_path && rest.chars().nth(1).is_some_and(|second| second.is_alphanumeric() || second == '/') {
        let length = prefix_len(rest, |c| c.is_alphanumeric() || "/._-~".contains(c));
        return (rest.get(..length).map_or(0, |path| path.trim_end_matches('.').len()), TokenKind::Word);
    }
    match scan_word(rest) {
        0 => (first.len_utf8(), TokenKind::Mark),
        length => (length, TokenKind::Word),
    }
}

/// Returns the length in bytes of the prefix whose characters match.
fn prefix_len(text: &str, is_such: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is_such(c)).unwrap_or(text.len())
}

fn count_digits(text: &str) -> usize {
    prefix_len(text, |c| c.is_ascii_digit())
}

fn from(text: &str, at: usize) -> &str {
    text.get(at..).unwrap_or("")
}

fn starts_alphanumeric(text: &str) -> bool {
    text.chars().next().is_some_and(char::is_alphanumeric)
}

fn is_possessive(rest: &str) -> bool {
    let mut after = rest.chars().skip(1);
    after.next() == Some('s') && !after.next().is_some_and(char::is_alphanumeric)
}

fn scan_quotation(rest: &str, open: char, joined: bool) -> Option<usize> {
    let close = match open {
        '"' | '`' => open,
        '\'' if !joined => '\'',
        '‘' if !joined => '’',
        '“' => '”',
        '„' => '“',
        '«' => '»',
        '「' => '」',
        '『' => '』',
        '《' => '》',
        _ => return None,
    };
    // An apostrophe inside a word does not end a quotation.
    let ends = |after: &str| !matches!(close, '\'' | '’') || !starts_alphanumeric(after);
    let mut places = rest.char_indices().skip(1).map(|(at, c)| (at + c.len_utf8(), c));
    places.find(|&(end, c)| c == close && ends(from(rest, end))).map(|(end, _)| end)
}

fn strip_quotes(quotation: &str) -> &str {
    let mut inside = quotation.chars();
    inside.next();
    inside.next_back();
    inside.as_str()
}

fn scan_url(rest: &str) -> Option<usize> {
    ["http://", "https://", "www."].iter().find(|start| rest.starts_with(**start))?;
    let length = prefix_len(rest, |c| !c.is_whitespace() && !"\"'<>“”‘’「」《》".contains(c));
    Some(rest.get(..length)?.trim_end_matches(['.', ',', ';', ':', '!', '?', ')']).len())
}

fn scan_email(rest: &str) -> Option<usize> {
    let user = prefix_len(rest, |c| c.is_ascii_alphanumeric() || "._%+-".contains(c));
    let domain = from(rest, user).strip_prefix('@').filter(|_| user > 0)?;
    let length = prefix_len(domain, |c| c.is_ascii_alphanumeric() || ".-".contains(c));
    let domain = domain.get(..length)?.trim_end_matches(['.', '-']);
    domain.trim_start_matches('.').contains('.').then(|| user + 1 + domain.len())
}

fn scan_date(rest: &str) -> Option<usize> {
    let parts = rest.get(..10)?;
    let is_date = parts.bytes().enumerate().all(|(at, byte)| match at {
        4 | 7 => byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let after = from(rest, 10);
    let time = match after.strip_prefix('T').filter(|time| count_digits(time) == 2) {
        Some(time) => 1 + prefix_len(time, |c| c.is_ascii_digit() || ":.+-Z".contains(c)),
        None => 0,
    };
    (is_date && !starts_alphanumeric(from(after, time))).then_some(10 + time)
}

/// Matches `19:30`, `19:30:05` and `5 pm`.
fn scan_time(rest: &str) -> Option<usize> {
    let hour = count_digits(rest);
    let mut length = hour;
    while let Some(part) = from(rest, length).strip_prefix(':').filter(|part| count_digits(part) == 2) {
        length += 1 + count_digits(part);
    }
    let after = from(rest, length);
    let half = after.trim_start_matches(' ');
    let is_half = half.get(..2).is_some_and(|half| matches!(&*half.to_lowercase(), "am" | "pm"));
    if is_half && !starts_alphanumeric(from(half, 2)) {
        length += after.len() - half.len() + 2;
    }
    (matches!(hour, 1 | 2) && length > hour && !starts_alphanumeric(from(rest, length))).then_some(length)
}

/// Matches a number as people write it. After a word or a value, `-` is an operator, not a sign.
fn scan_number(rest: &str, first: char, joined: bool) -> Option<(usize, Number)> {
    let sign = if matches!(first, '-' | '−') && !joined { first.len_utf8() } else { 0 };
    let body = from(rest, sign);
    let whole = count_digits(body);
    let mut length = whole;
    while (1..=3).contains(&whole)
        && from(body, length).strip_prefix(',').is_some_and(|part| count_digits(part) == 3)
    {
        length += 4;
    }
    if let Some(fraction) =
        from(body, length).strip_prefix('.').map(count_digits).filter(|digits| *digits > 0)
    {
        length += 1 + fraction;
    }
    if length == 0 || from(body, length).strip_prefix('.').is_some_and(|more| count_digits(more) > 0) {
        return None; // an address such as 10.0.0.1 is a word
    }
    if let Some(exponent) = from(body, length).strip_prefix(['e', 'E']) {
        let signed = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if count_digits(signed) > 0 && !starts_alphanumeric(from(signed, count_digits(signed))) {
            length += 1 + (exponent.len() - signed.len()) + count_digits(signed);
        }
    }
    // JSON requires a digit before the point and allows no leading zeros.
    let plain = body.get(..length)?.replace(',', "");
    let plain = plain.trim_start_matches('0');
    let zero = if starts_alphanumeric(plain) && !plain.starts_with(['e', 'E']) { "" } else { "0" };
    let text = format!("{}{zero}{plain}", if sign > 0 { "-" } else { "" });
    Some((sign + length, text.parse().ok()?))
}

/// Matches letters and digits with single joints between them: `e-mail`, `don't`, `notes/today.txt`.
fn scan_word(rest: &str) -> usize {
    let is_inner = |c: char| c.is_alphanumeric() || c == '_';
    let Some(first) = rest.chars().next().filter(|c| is_inner(*c)) else {
        return 0;
    };
    let mut length = 0;
    loop {
        // A script without spaces does not continue the word before it.
        length += prefix_len(from(rest, length), |c| is_inner(c) && is_ideograph(c) == is_ideograph(first));
        let after = from(rest, length);
        let joint = prefix_len(after, |c| "-'’./@&".contains(c));
        let ends = after.chars().count() == 0 || joint == 0 || is_possessive(after);
        let is_single = after.get(..joint).is_some_and(|joint| joint.chars().count() == 1);
        if ends || !is_single || !starts_alphanumeric(from(after, joint)) {
            return length;
        }
        length += joint;
    }
}

pub(crate) fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_tokens() {
        for (text, tokens) in [
            ("What's Bob's e-mail?", "What|'s|Bob|'s|e-mail|?"),
            ("a=3, b=-11.", "a|=|3|,|b|=|-11|."),
            ("5-3 and 5 - 3", "5|-|3|and|5|-|3"),
            ("1,000.5 or 1,2", "1,000.5|or|1|,|2"),
            ("$100, 15% of 6cm at 5 pm", "$|100|,|15|%|of|6|cm|at|5 pm"),
            ("don't 'say “it's”' now", "don't|say “it's”|now"),
            ("see https://a.org/b?c=1, a@b.org.", "see|https://a.org/b?c=1|,|a@b.org|."),
            ("10.0.0.1 on 2026-03-01T10:00Z", "10.0.0.1|on|2026-03-01T10:00Z"),
            ("./a/b.txt 16的平方根", "./a/b.txt|16|的平方根"),
            ("\"open 'end", "\"|open|'|end"),
        ] {
            let cut: Vec<_> = Text::new(text).tokens.into_iter().map(|token| token.text).collect();
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
            ("−2.50", "-2.5"),
            ("0", "0"),
        ] {
            let [token] = &Text::new(text).tokens[..] else { panic!("{text}") };
            let TokenKind::Number(found) = &token.kind else { panic!("{text}: {:?}", token.kind) };
            assert_eq!(found.to_string(), number);
        }
    }
}
