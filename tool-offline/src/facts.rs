//! Finds the values in a question: what has the form of a value, and the words that the tools do not explain.

use std::ops::Range;

use serde_json::{Number, Value};

use crate::text::{Token, TokenKind, tokenize};
use crate::words::{PREPOSITIONS, PRONOUNS, is_stop_word, key, keys};

/// A question with what is read of it.
#[derive(Debug)]
pub(crate) struct Question<'t> {
    source: &'t str,
    pub(crate) tokens: Vec<Token<'t>>,
    /// The key of each token that is a word with a meaning; empty for the others.
    pub(crate) keys: Vec<String>,
}

/// A value that can become an argument.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) kind: FactKind,
    /// The index of the first token.
    pub(crate) at: usize,
    pub(crate) text: String,
    /// The keys of the words beside the value, and the preposition before it.
    pub(crate) names: Vec<String>,
    pub(crate) preposition: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FactKind {
    /// A value in the question; for words without a meaning to the tools, [`TokenKind::Word`].
    Value(TokenKind),
    /// The result of a call, or a member of it.
    Result,
    /// The result of a step that is not known yet.
    Pending(usize),
}

impl<'t> Question<'t> {
    pub(crate) fn new(source: &'t str) -> Self {
        let tokens = tokenize(source);
        let key_of = |token: &Token<'_>| match token.kind {
            TokenKind::Word | TokenKind::Mark if !is_stop_word(token.text) => key(token.text),
            _ => String::new(),
        };
        let keys = tokens.iter().map(key_of).collect();
        Self { source, tokens, keys }
    }

    pub(crate) fn all(&self) -> Range<usize> {
        0..self.tokens.len()
    }

    /// Returns `true` for a value, and for a word with a meaning.
    pub(crate) fn is_content(&self, at: usize) -> bool {
        match self.tokens[at].kind {
            TokenKind::Word => !self.keys[at].is_empty(),
            TokenKind::Mark => false,
            _ => true,
        }
    }

    /// Returns a word or mark in lower case, or an empty text for anything else.
    pub(crate) fn word(&self, at: usize) -> String {
        let token =
            self.tokens.get(at).filter(|token| matches!(token.kind, TokenKind::Word | TokenKind::Mark));
        token.map(|token| token.text.to_lowercase()).unwrap_or_default()
    }

    pub(crate) fn slice(&self, range: &Range<usize>) -> &'t str {
        match self.tokens.get(range.clone()) {
            Some([first, .., last]) => &self.source[first.span.start..last.span.end],
            Some([only]) => &self.source[only.span.clone()],
            _ => "",
        }
    }

    /// Returns the values in a range, of whose words these are explained by the tools. `earlier` is what a pronoun stands for.
    pub(crate) fn facts(
        &self,
        range: &Range<usize>,
        is_explained: &dyn Fn(usize) -> bool,
        earlier: Option<&FactKind>,
        earlier_text: &str,
    ) -> Vec<Fact> {
        let mut facts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let start = at;
            at += 1;
            let kind = match &self.tokens[start].kind {
                TokenKind::Word if self.is_value(start, is_explained) => {
                    let is_capitalized = self.is_capitalized(start);
                    while at < range.end
                        && self.is_value(at, is_explained)
                        && self.is_capitalized(at) == is_capitalized
                    {
                        at += 1;
                    }
                    FactKind::Value(TokenKind::Word)
                }
                TokenKind::Word if PRONOUNS.contains(&&*self.word(start)) => match earlier {
                    Some(kind) => kind.clone(),
                    None => continue,
                },
                TokenKind::Word | TokenKind::Mark => continue,
                value => FactKind::Value(value.clone()),
            };
            let text = match (&kind, &self.tokens[start]) {
                (FactKind::Result, _) => earlier_text,
                (FactKind::Value(TokenKind::Quoted), token) => token.text,
                _ => self.slice(&(start..at)),
            };
            facts.push(self.fact(kind, text, start..at));
        }
        facts
    }

    fn is_value(&self, at: usize, is_explained: &dyn Fn(usize) -> bool) -> bool {
        self.tokens[at].kind == TokenKind::Word && !self.keys[at].is_empty() && !is_explained(at)
    }

    fn is_capitalized(&self, at: usize) -> bool {
        self.tokens[at].text.starts_with(char::is_uppercase)
    }

    fn fact(&self, kind: FactKind, text: &str, span: Range<usize>) -> Fact {
        // "The height of 4", "the height is 4", "a=4".
        let is_link = |at: &usize| ["of", "is", "=", ":", "#", "the", "a"].contains(&&*self.word(*at));
        let before = (0..span.start).rev().take(3).find(|at| !is_link(at));
        let names = before.into_iter().chain([span.end]).filter_map(|at| self.keys.get(at));
        let preposition = (0..span.start).rev().map(|at| self.word(at));
        let preposition = preposition.take(2).find(|word| PREPOSITIONS.contains(&&**word));
        let names = names.filter(|name| !name.is_empty()).cloned().collect();
        Fact { kind, at: span.start, text: text.to_owned(), names, preposition }
    }
}

impl Fact {
    fn new(kind: FactKind, text: &str, names: Vec<String>) -> Self {
        Self { kind, at: 0, text: text.to_owned(), names, preposition: None }
    }

    /// Creates the value of a step whose result is not known yet.
    pub(crate) fn pending(step: usize, at: usize) -> Self {
        Self { at, ..Self::new(FactKind::Pending(step), "", Vec::new()) }
    }

    /// Returns the members of a result that is a JSON object, or else the result.
    pub(crate) fn of_result(text: &str) -> Vec<Self> {
        let Ok(Value::Object(members)) = serde_json::from_str(text) else {
            return vec![Self::new(FactKind::Result, text, Vec::new())];
        };
        let plain = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        members
            .into_iter()
            .map(|(name, value)| Self::new(FactKind::Result, &plain(value), keys(&name)))
            .collect()
    }

    /// Returns the number that the value is or contains.
    pub(crate) fn number(&self) -> Option<Number> {
        match &self.kind {
            FactKind::Value(TokenKind::Number(number)) => Some(number.clone()),
            FactKind::Result => tokenize(&self.text).into_iter().find_map(|token| match token.kind {
                TokenKind::Number(number) => Some(number),
                _ => None,
            }),
            _ => None,
        }
    }
}
