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
    pub(crate) text: String,
    /// The index of the first token.
    pub(crate) at: usize,
    /// The keys of the words beside the value, and the preposition before it.
    pub(crate) names: Vec<String>,
    /// The step whose result it is.
    pub(crate) step: Option<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FactKind {
    /// A value in the question; for words without a meaning to the tools, [`TokenKind::Word`].
    Value(TokenKind),
    /// The result of a call, or a member of it.
    Result,
    /// The result of a call that is not known yet.
    Pending,
    /// The missing result of a call that failed.
    Failed,
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

    /// Returns the values in a range, of whose words these are explained by the tools. `reference` is what a pronoun stands for.
    pub(crate) fn facts(
        &self,
        range: &Range<usize>,
        is_explained: &dyn Fn(usize) -> bool,
        reference: Option<&Fact>,
    ) -> Vec<Fact> {
        let is_value = |at: usize| {
            self.tokens[at].kind == TokenKind::Word && !self.keys[at].is_empty() && !is_explained(at)
        };
        let is_capitalized = |at: usize| self.tokens[at].text.starts_with(char::is_uppercase);
        let mut facts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let start = at;
            at += 1;
            let token = &self.tokens[start];
            let mut step = None;
            let (kind, text) = match (&token.kind, reference) {
                (TokenKind::Word, _) if is_value(start) => {
                    while at < range.end && is_value(at) && is_capitalized(at) == is_capitalized(start) {
                        at += 1;
                    }
                    (FactKind::Value(TokenKind::Word), self.slice(&(start..at)))
                }
                (TokenKind::Word, Some(reference)) if PRONOUNS.contains(&&*self.word(start)) => {
                    step = reference.step;
                    (reference.kind.clone(), &*reference.text)
                }
                (TokenKind::Word | TokenKind::Mark, _) => continue,
                (kind, _) => (FactKind::Value(kind.clone()), token.text),
            };
            facts.push(Fact { kind, text: text.to_owned(), at: start, names: self.names(start..at), step });
        }
        facts
    }

    /// Returns the words around a value that can name it: "the height of 4", "the height is 4", "a=4", "from 4".
    fn names(&self, span: Range<usize>) -> Vec<String> {
        let is_link = |at: &usize| ["of", "is", "=", ":", "#", "the", "a"].contains(&&*self.word(*at));
        let before = (0..span.start).rev().take(3).find(|at| !is_link(at));
        let names = before.into_iter().chain([span.end]).filter_map(|at| self.keys.get(at));
        let mut prepositions = (0..span.start).rev().take(2).map(|at| self.word(at));
        let preposition = prepositions.find(|word| PREPOSITIONS.contains(&&**word));
        names.filter(|name| !name.is_empty()).cloned().chain(preposition).collect()
    }
}

impl Fact {
    pub(crate) fn new(kind: FactKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), at: 0, names: Vec::new(), step: None }
    }

    /// Returns the members of a result that is a JSON object, or else the result.
    pub(crate) fn of_result(text: &str) -> Vec<Self> {
        let Ok(Value::Object(members)) = serde_json::from_str(text) else {
            return vec![Self::new(FactKind::Result, text)];
        };
        let member = |(name, value): (String, Value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            Self { names: keys(&name), ..Self::new(FactKind::Result, text) }
        };
        members.into_iter().map(member).collect()
    }

    /// Returns the number that the value is or contains.
    pub(crate) fn number(&self) -> Option<Number> {
        if !matches!(self.kind, FactKind::Result | FactKind::Value(TokenKind::Number(_))) {
            return None;
        }
        tokenize(&self.text).into_iter().find_map(|token| match token.kind {
            TokenKind::Number(number) => Some(number),
            _ => None,
        })
    }
}
