//! Splits a question into clauses that each ask for one thing.

use std::ops::Range;

use crate::arithmetic::operator;
use crate::facts::{self, FactKind, is_listed};
use crate::matching::is_request;
use crate::planner::Planner;
use crate::thesaurus::{Term, is_light, terms};
use crate::tokens::TokenKind;

/// A part of the question that asks for one thing.
pub(crate) struct Clause {
    pub(crate) range: Range<usize>,
    /// The clause follows "then".
    pub(crate) is_sequel: bool,
    /// The best matching tool.
    tool: Option<usize>,
    /// The clause asks for something, whether or not a tool fits.
    asks: bool,
}

impl Planner<'_> {
    /// Returns the terms of a range, without those inside chains of operators.
    pub(crate) fn terms(&self, range: &Range<usize>) -> Vec<Term> {
        let is_term = |at: &usize| {
            let is_word = self.text.token(*at).is_some_and(|token| token.kind == TokenKind::Word);
            let behind_value = self.facts.iter().any(|fact| fact.span.end == *at);
            !self.is_in_chain(*at) && (is_word || behind_value && operator(&self.text, *at).is_some())
        };
        let words = range
            .clone()
            .take_while(|at| !facts::introduces_speech(self.text.word(*at)))
            .filter(is_term)
            .filter_map(|at| Some((at, &*self.text.token(at)?.text)));
        let formula = self.facts.iter().find(|fact| fact.kind == FactKind::Formula && fact.overlaps(range));
        // A tool that evaluates formulas mentions these topics, but a question with a formula often does not.
        let topics = ["calculate", "arithmetic", "math", "expression"].iter().filter(|_| formula.is_some());
        terms(words.chain(topics.map(|word| (range.start, *word))))
    }

    /// Splits the question where a new request starts. A part that requests nothing joins the clause before it.
    pub(crate) fn clauses(&self) -> Vec<Clause> {
        let mut clauses: Vec<Clause> = Vec::new();
        let (mut start, mut is_sequel, mut in_speech) = (0, false, false);
        for at in 0..=self.text.tokens.len() {
            let word = self.text.word(at);
            in_speech = (in_speech || facts::introduces_speech(word)) && !matches!(word, "." | "!" | "?");
            let separates =
                matches!(word, "and" | "then" | "also" | "afterwards" | "," | ";" | "." | "!" | "?");
            if at < self.text.tokens.len() && (in_speech || !separates || self.is_in_chain(at)) {
                continue;
            }
            if start < at {
                self.append(&mut clauses, start..at, is_sequel);
                is_sequel = false;
            }
            is_sequel |= matches!(word, "then" | "afterwards");
            start = at + 1;
        }
        clauses
    }

    fn append(&self, clauses: &mut Vec<Clause>, range: Range<usize>, is_sequel: bool) {
        let first_meant =
            |terms: &[Term]| self.tools.plausible(&self.text, terms).first().map(|meant| meant.tool);
        let mut terms = self.terms(&range);
        let Some(last) = clauses.last_mut() else {
            let (asks, tool) = (self.asks(&range, &terms), first_meant(&terms));
            return clauses.push(Clause { range, is_sequel, tool, asks });
        };
        // The name of a parameter of the previous clause's tool belongs to that clause.
        let slots = last.tool.and_then(|tool| self.tools.get(tool)).map_or(&[][..], |tool| &tool.slots);
        terms.retain(|term| slots.iter().all(|slot| term.similarity_to_any(&slot.name_terms) == 0.0));
        let (asks, tool) = (self.asks(&range, &terms), first_meant(&terms));
        let has_chain = |range: &Range<usize>| self.facts_in(range).iter().any(|fact| fact.step.is_some());
        let is_new = tool.is_some() || asks || last.tool.is_none() && has_chain(&range);
        let is_whole = last.tool.is_some() || last.asks || has_chain(&last.range);
        // In "the sum of 9 and the square root of 16", the sum still needs its second value.
        let is_object = is_listed("the a an its", self.text.word(range.start));
        let lacks = |tool: usize| {
            let facts = self.facts_in(&last.range);
            let filled = self.fill(tool, &last.range, &facts);
            is_object && !facts.is_empty() && filled.is_some_and(|filled| filled.missing.len() == 1)
        };
        if is_new && is_whole && !last.tool.is_some_and(lacks) {
            clauses.push(Clause { range, is_sequel, tool, asks });
        } else {
            last.range.end = range.end;
            last.tool = last.tool.or(tool);
        }
    }

    /// Returns `true` if the range asks for something, whether or not a tool fits.
    fn asks(&self, range: &Range<usize>, terms: &[Term]) -> bool {
        let is_question = is_listed("what who which when where why how", self.text.word(range.start))
            && self.text.word(range.start + 1) != "about";
        let first = terms.first().filter(|term| term.span.start <= range.start + 1);
        let is_order = is_light(self.text.word(range.start));
        terms.iter().any(|term| !term.is_light) && (is_question || is_order)
            || first.is_some_and(|first| is_request(&self.text, first, terms))
    }

    /// Returns `true` for a word that refers to an earlier result, but not for the "it" of "what time is it".
    pub(crate) fn is_anaphor(&self, at: usize) -> bool {
        let (before, word, after) =
            (self.text.word(at.wrapping_sub(1)), self.text.word(at), self.text.word(at + 1));
        match word {
            "it" => before != "is" && after != "is" && after != "'s",
            "that" | "this" | "them" | "these" | "those" | "its" | "result" => true,
            _ => false,
        }
    }
}
