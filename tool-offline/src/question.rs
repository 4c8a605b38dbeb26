//! Finds the values in a question: what has the form of a value, and the words that the tools do not explain.

use std::ops::Range;

use crate::text::{Token, TokenKind, tokenize};
use crate::words::{LINKS, PREPOSITIONS, PRONOUNS, is_in};

/// A question with what is read of it.
#[derive(Debug)]
pub(crate) struct Question<'t> {
    source: &'t str,
    pub(crate) tokens: Vec<Token<'t>>,
}

/// A value that can become an argument.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) source: Source,
    /// The form of a value in the question, or nothing for a result.
    pub(crate) kind: Option<TokenKind>,
    /// The index of the first token.
    pub(crate) at: usize,
    /// The keywords of the words beside the value, and the preposition before it.
    pub(crate) names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Source {
    Text(String),
    /// The result of the step with this number.
    Step(usize),
}

impl Candidate {
    pub(crate) fn result(source: Source, at: usize) -> Self {
        Self { source, kind: None, at, names: Vec::new() }
    }
}

impl<'t> Question<'t> {
    pub(crate) fn new(source: &'t str) -> Self {
        Self { source, tokens: tokenize(source) }
    }

    pub(crate) fn all(&self) -> Range<usize> {
        0..self.tokens.len()
    }

    /// Returns `true` if a list contains this word or mark.
    pub(crate) fn is_in(&self, list: &str, at: usize) -> bool {
        let token = self.tokens.get(at);
        token.is_some_and(|token| token.kind != TokenKind::Quoted && is_in(list, &token.text.to_lowercase()))
    }

    pub(crate) fn slice(&self, range: &Range<usize>) -> &'t str {
        match self.tokens.get(range.clone()) {
            Some([first, .., last]) => &self.source[first.span.start..last.span.end],
            Some([only]) => &self.source[only.span.clone()],
            _ => "",
        }
    }

    /// Returns the values in a range, of whose words these are explained by the tools. `reference` is what a pronoun stands for.
    pub(crate) fn candidates(
        &self,
        range: &Range<usize>,
        is_explained: impl Fn(usize) -> bool,
        reference: Option<&Candidate>,
    ) -> Vec<Candidate> {
        let is_value = |at: usize| {
            let token = &self.tokens[at];
            token.kind == TokenKind::Word && token.has_content() && !is_explained(at)
        };
        let is_capitalized = |at: usize| self.tokens[at].text.starts_with(char::is_uppercase);
        let mut candidates = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let start = at;
            at += 1;
            let Token { kind, mut text, .. } = self.tokens[start];
            if is_value(start) {
                while at < range.end && is_value(at) && is_capitalized(at) == is_capitalized(start) {
                    at += 1;
                }
                text = self.slice(&(start..at));
            }
            let reference = reference.filter(|_| self.is_in(PRONOUNS, start));
            let (source, kind) = match (reference, kind) {
                (Some(reference), _) => (reference.source.clone(), reference.kind),
                (None, TokenKind::Word) if !is_value(start) => continue,
                (None, TokenKind::Mark) => continue,
                (None, _) => (Source::Text(text.to_owned()), Some(kind)),
            };
            candidates.push(Candidate { source, kind, at: start, names: self.names(start..at) });
        }
        candidates
    }

    /// Returns the words around a value that can name it.
    fn names(&self, span: Range<usize>) -> Vec<String> {
        let before = (0..span.start).rev();
        let name = before.clone().take(3).find(|at| !self.is_in(LINKS, *at));
        let names = name.into_iter().chain([span.end]).filter_map(|at| Some(&self.tokens.get(at)?.keyword));
        let preposition = before.take(2).find(|at| self.is_in(PREPOSITIONS, *at));
        let preposition = preposition.map(|at| self.tokens[at].text.to_lowercase());
        names.filter(|name| !name.is_empty()).cloned().chain(preposition).collect()
    }
}
