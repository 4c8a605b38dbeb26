//! Splits a text into tokens: words, numbers, quotations, addresses, dates and marks.

use std::iter;
use std::ops::Range;
use std::sync::LazyLock;

use regex_lite::Regex;

use crate::words::keyword;

/// The number of tokens that are read of a text.
const MAX_TOKENS: usize = 1_000;

/// The forms of tokens. Letters are all but spaces and punctuation, because `regex-lite` has no classes of Unicode. An apostrophe
/// inside a word does not end a quotation.
static FORMS: LazyLock<Regex> = LazyLock::new(|| {
    let letter = r"[^\x00-/:-@\[-^`{-\u{BF}×÷\u{2010}-\u{2BFF}]";
    let link_end = r#"(?: [^\s"“”<>]* [^\s"“”<>.,;:!?)\]}'’] )?"#;
    let forms = format!(
        r#"(?x)
          (?<quoted> "[^"]+" | `[^`]+` | “[^”]+” | «[^»]+» | '(?:[^']|'{letter})+' | ‘(?:[^’]|’{letter})+’ ) (?:\W|$)
        | (?<email> [\w.%+-]+ @ [\w-]+ (?:\.[\w-]+)+ )
        | (?<date> \d{{4}}-\d\d-\d\d (?:T[\d:.+Z-]*[\dZ])? )
        | (?<word> (?:https?://|www\.|[~.]*/[[:alpha:]_]) {link_end} | \d+(?:\.\d+){{2,}} )
        | (?<number> -? (?: (?:\d{{1,3}}(?:,\d{{3}})+\b | \d+) (?:\.\d+)? | \.\d+ ) (?:[eE][+-]?\d+)? )
        | (?<name> {letter}+ (?: [-./_]+{letter}+ | ['’](?:t\b|{letter}{{2,}}) )* )
        | (?<mark> \S )"#
    );
    Regex::new(&forms).expect("the forms are valid")
});

/// A part of a text.
#[derive(Debug)]
pub(crate) struct Token<'t> {
    pub(crate) kind: TokenKind,
    /// The text as written, without quotation marks.
    pub(crate) text: &'t str,
    /// The bytes of the token in the text.
    pub(crate) span: Range<usize>,
    /// The keyword of a word with a meaning; empty for others.
    pub(crate) keyword: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Word,
    /// A number as people write it: `-2.5`, `1,000` or `1e5`.
    Number,
    Quoted,
    Email,
    /// A date of the form `2026-12-31`, with or without a time.
    Date,
    Mark,
}

pub(crate) fn tokenize(text: &str) -> Vec<Token<'_>> {
    let mut end = 0;
    let tokens = iter::from_fn(|| next_token(text, end).inspect(|token| end = token.span.end));
    tokens.take(MAX_TOKENS).collect()
}

fn next_token(text: &str, at: usize) -> Option<Token<'_>> {
    // Behind a word or a number, these are no sign and begin no quotation.
    let is_joined = text[..at].ends_with(char::is_alphanumeric);
    if let Some(mark) = ["-", "'", "’"].iter().find(|mark| is_joined && text[at..].starts_with(**mark)) {
        return Some(Token::new(TokenKind::Mark, mark, at..at + mark.len()));
    }
    let found = FORMS.captures_at(text, at)?;
    let mut forms = FORMS.capture_names().zip(found.iter());
    let (form, token) = forms.find_map(|(form, token)| Some((form?, token?)))?;
    let kind = match form {
        "quoted" => TokenKind::Quoted,
        "email" => TokenKind::Email,
        "date" => TokenKind::Date,
        "number" => TokenKind::Number,
        "mark" => TokenKind::Mark,
        _ => TokenKind::Word,
    };
    let mut inside = token.as_str().chars();
    if kind == TokenKind::Quoted {
        inside.next();
        inside.next_back();
    }
    Some(Token::new(kind, inside.as_str(), token.range()))
}

impl<'t> Token<'t> {
    fn new(kind: TokenKind, text: &'t str, span: Range<usize>) -> Self {
        let is_word = matches!(kind, TokenKind::Word | TokenKind::Mark);
        let keyword = keyword(text).filter(|_| is_word).unwrap_or_default();
        Self { kind, text, span, keyword }
    }

    /// Returns `true` for all but words and marks without a meaning.
    pub(crate) fn has_content(&self) -> bool {
        !self.keyword.is_empty() || !matches!(self.kind, TokenKind::Word | TokenKind::Mark)
    }
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
}
