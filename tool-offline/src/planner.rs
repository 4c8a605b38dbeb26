//! Plans the calls for a question: the tools, their values and their order.

use std::ops::Range;

use crate::clauses::Clause;
use crate::facts::{self, Fact, FactKind};
use crate::fill::{Filled, fill};
use crate::matching::{Mention, Tools};
use crate::thesaurus::{Term, is_stop};
use crate::tokens::Text;

/// A planned call.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) tool: usize,
    /// The part of the question that the step answers, as tokens and as text.
    pub(crate) range: Range<usize>,
    pub(crate) question: String,
    pub(crate) facts: Vec<Fact>,
    /// The previous step, whose result is used if a value is missing.
    pub(crate) previous: Option<usize>,
    /// Values from elsewhere, tried in turn if a value is missing.
    pub(crate) fallbacks: Vec<Vec<Fact>>,
    /// The number of values that the question lists, if the tool takes fewer.
    pub(crate) excess: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) text: Text,
    pub(crate) steps: Vec<Step>,
    /// The parts of the question that no tool fits.
    pub(crate) unmatched: Vec<String>,
}

pub(crate) struct Planner<'a> {
    pub(crate) tools: &'a Tools<'a>,
    pub(crate) text: Text,
    /// The values that are recognizable by their form, and the results of chains of operators.
    pub(crate) facts: Vec<Fact>,
    /// The tokens inside chains of operators and relative times.
    pub(crate) chain_ranges: Vec<Range<usize>>,
    steps: Vec<Step>,
    unmatched: Vec<String>,
}

/// Plans the calls for a question. `earlier` is a result from before the question, for "And its square root?". With
/// `must`, the best tool that can be filled in is called even if none matches.
pub(crate) fn plan(question: &str, tools: &Tools<'_>, earlier: Option<&str>, must: bool) -> Plan {
    let text = Text::new(question);
    let facts = facts::literals(&text);
    let relative = facts.iter().filter(|fact| matches!(fact.kind, FactKind::Relative { .. }));
    let chain_ranges = relative.map(|fact| fact.span.clone()).collect();
    let (steps, unmatched) = (Vec::new(), Vec::new());
    let mut planner = Planner { tools, text, facts, chain_ranges, steps, unmatched };
    planner.plan_chains();
    let clauses = planner.clauses();
    let mut last = None;
    for (at, clause) in clauses.iter().enumerate() {
        // "Find the sum and the product of 3 and 4."
        let neighbours = [clauses.get(at + 1), clauses.get(at.wrapping_sub(1))].into_iter().flatten();
        let neighbours = neighbours.map(|clause| planner.values_of_clause(&clause.range)).collect();
        let earlier = earlier.map(|result| vec![Fact::result(result)]);
        last = planner.plan_clause(clause, last, neighbours, earlier);
    }
    if must && planner.steps.is_empty() {
        planner.force_call();
    }
    Plan { text: planner.text, steps: planner.steps, unmatched: planner.unmatched }
}

impl Planner<'_> {
    pub(crate) fn push_step(&mut self, tool: usize, range: Range<usize>, facts: Vec<Fact>) -> usize {
        let question = self.text.slice(range.clone()).to_owned();
        self.steps.push(Step {
            tool,
            range,
            question,
            facts,
            previous: None,
            fallbacks: Vec::new(),
            excess: None,
        });
        self.steps.len() - 1
    }

    pub(crate) fn facts_in(&self, range: &Range<usize>) -> Vec<Fact> {
        self.facts.iter().filter(|fact| fact.overlaps(range)).cloned().collect()
    }

    /// Returns the values of a clause, for use in another clause.
    fn values_of_clause(&self, range: &Range<usize>) -> Vec<Fact> {
        let names = facts::names(&self.text, range.clone(), &|at| self.is_in_chain(at));
        self.facts_in(range).into_iter().chain(names).collect()
    }

    pub(crate) fn is_in_chain(&self, at: usize) -> bool {
        self.chain_ranges.iter().any(|range| range.contains(&at))
    }

    pub(crate) fn fill(&self, tool: usize, range: &Range<usize>, facts: &[Fact]) -> Option<Filled> {
        Some(fill(self.tools.get(tool)?, &self.text, range, facts))
    }

    /// Plans the steps of a clause and returns the last one.
    fn plan_clause(
        &mut self,
        clause: &Clause,
        before: Option<usize>,
        neighbours: Vec<Vec<Fact>>,
        earlier: Option<Vec<Fact>>,
    ) -> Option<usize> {
        let range = &clause.range;
        let terms = self.terms(range);
        let mut facts = self.facts_in(range);
        self.plan_clock(&mut facts);
        // In "the sum of 2 + 3", the operator already is the sum.
        let is_chain = |main: &Mention| {
            facts.iter().filter_map(|fact| self.steps.get(fact.step?)).any(|step| step.tool == main.tool)
        };
        let main = self.main_mention(range, &terms, &facts).filter(|(main, lacks)| !lacks || !is_chain(main));
        let Some((main, lacks)) = main else {
            return self.plan_unmatched(range, &terms, &facts).or(before);
        };
        let anaphor =
            before.and_then(|before| Some((before, range.clone().find(|at| self.is_anaphor(*at))?)));
        facts.extend(anaphor.map(|(before, at)| Fact::pending_result(before, at..at + 1)));
        let mut mentions = self.tools.mentions(&terms, &main, lacks);
        let first = self.steps.len();
        let (top, facts, filled) = loop {
            match self.plan_mentions(range, &facts, &mentions, (&main, lacks)) {
                Ok(top) => break top,
                // A match that cannot be called was not meant; its words may be values.
                Err(unfit) if unfit < mentions.len() => drop(mentions.remove(unfit)),
                Err(_) => return before,
            }
            self.steps.truncate(first);
        };
        let is_unused_formula =
            |(at, fact): (usize, &Fact)| fact.kind == FactKind::Formula && !filled.used.contains(&at);
        if facts.iter().enumerate().any(is_unused_formula) {
            self.steps.truncate(first);
            self.unmatched.push(self.text.slice(range.clone()).to_owned());
            return before;
        }
        let has_values =
            facts.iter().any(|fact| !matches!(fact.kind, FactKind::Phrase { .. } | FactKind::Name));
        if let Some(step) = self.steps.get_mut(top) {
            step.previous = before.filter(|_| anaphor.is_none() && (clause.is_sequel || has_values));
            step.fallbacks = neighbours.into_iter().filter(|_| !has_values).chain(earlier).collect();
        }
        self.repeat_for_list(top, &facts, &filled);
        Some(top)
    }

    /// Handles a clause that no tool fits: a chain of operators, or an unsupported request.
    fn plan_unmatched(&mut self, range: &Range<usize>, terms: &[Term], facts: &[Fact]) -> Option<usize> {
        let question = self.text.slice(range.clone()).to_owned();
        let chain = facts.iter().rev().find_map(|fact| fact.step);
        match chain.and_then(|chain| self.steps.get_mut(chain)) {
            Some(step) => step.question = question,
            None if terms.is_empty() && self.text.tokens.len() > range.len() => {}
            None => self.unmatched.push(question),
        }
        chain
    }

    /// Adds a step for each match, from the innermost to the outermost: the last one uses the values after it, and
    /// each earlier one uses its result. Returns the outermost step with its facts and arguments, or the index of a
    /// match that cannot be called.
    fn plan_mentions(
        &mut self,
        range: &Range<usize>,
        facts: &[Fact],
        mentions: &[Mention],
        (main, lacks): (&Mention, bool),
    ) -> Result<(usize, Vec<Fact>, Filled), usize> {
        let mut free = self.with_names_and_phrases(facts.to_vec(), range, mentions);
        for (at, mention) in mentions.iter().enumerate().rev() {
            let is_main = mention.at() == main.at() && mention.tool == main.tool;
            let behind =
                free.iter().filter(|fact| at == 0 || fact.span.start >= mention.at()).cloned().collect();
            let mut filled = None;
            for facts in [behind, free.clone()] {
                let one = self.fill(mention.tool, range, &facts).ok_or(at)?;
                let is_whole = one.missing.is_empty();
                filled = Some((facts, one));
                if is_whole {
                    break;
                }
            }
            let (facts, filled) = filled.ok_or(at)?;
            let uses_nothing = filled.used.is_empty() && !lacks;
            if !is_main && (!filled.missing.is_empty() || uses_nothing) {
                return Err(at);
            }
            let step = self.push_step(mention.tool, range.clone(), facts.clone());
            if at == 0 {
                return Ok((step, facts, filled));
            }
            let used: Vec<_> = filled.used.iter().filter_map(|at| facts.get(*at)).cloned().collect();
            free.retain(|fact| !used.iter().any(|used| used.overlaps(&fact.span)));
            let place = free.partition_point(|fact| fact.span.start < mention.at());
            free.insert(place, Fact::pending_result(step, mention.at()..mention.at() + 1));
        }
        Err(0)
    }

    /// Returns the tool that fits the words and values of a clause best, and whether it lacks a value.
    fn main_mention(&self, range: &Range<usize>, terms: &[Term], facts: &[Fact]) -> Option<(Mention, bool)> {
        let score = |mut mention: Mention| {
            let facts = self.with_names_and_phrases(facts.to_vec(), range, std::slice::from_ref(&mention));
            let filled = self.fill(mention.tool, range, &facts)?;
            let used: Vec<_> = filled.used.iter().filter_map(|at| facts.get(*at)).collect();
            let is_unused = |fact: &&Fact| {
                !matches!(fact.kind, FactKind::Phrase { .. } | FactKind::Speech)
                    && !used.iter().any(|used| used.overlaps(&fact.span))
            };
            let lacks = !filled.missing.is_empty();
            mention.score +=
                if lacks { 0.0 } else { 1.5 } - 0.5 * facts.iter().filter(is_unused).take(4).count() as f64;
            Some((mention, lacks))
        };
        let scored = self.tools.plausible(&self.text, terms).into_iter().filter_map(score);
        // The first tool wins a tie.
        scored.reduce(|best, next| if next.0.score > best.0.score { next } else { best })
    }

    /// Adds to `facts` the names and phrases that the tools do not explain.
    fn with_names_and_phrases(
        &self,
        facts: Vec<Fact>,
        range: &Range<usize>,
        mentions: &[Mention],
    ) -> Vec<Fact> {
        let is_within = |at: usize, words: fn(&Mention) -> &[Range<usize>]| {
            self.is_in_chain(at)
                || mentions.iter().any(|one| words(one).iter().any(|words| words.contains(&at)))
        };
        let is_named = |at: usize| is_within(at, |one| &one.named);
        // In "Convert 100 USD", "USD" matches a tool and is a value as well.
        let is_exact = |at: usize| is_within(at, |one| &one.exact);
        // In "the living room", "room" is part of a value, not only the name of a parameter.
        let is_word =
            |at: usize| !is_stop(self.text.word(at)) && self.text.word(at).starts_with(char::is_alphanumeric);
        let is_compound =
            |at: usize| is_word(at.wrapping_sub(1)) && !is_named(at.wrapping_sub(1)) && !is_word(at + 1);
        let is_explained =
            |at: usize| is_named(at) || is_within(at, |one| &one.parameters) && !is_compound(at);
        let names = facts::names(&self.text, range.clone(), &is_exact);
        let phrases = facts::phrases(&self.text, range.clone(), &is_explained);
        let mut facts: Vec<_> = facts.into_iter().chain(names).chain(phrases).collect();
        facts.sort_by_key(|fact| fact.span.start);
        facts
    }

    /// Repeats a step for the other values of a list if the tool takes one at a time. If the tool takes several
    /// values and the list has more, records the excess.
    fn repeat_for_list(&mut self, step: usize, facts: &[Fact], filled: &Filled) {
        let used: Vec<_> = filled.used.iter().filter_map(|at| facts.get(*at)).collect();
        for first in &used {
            let mut list = vec![*first];
            for fact in facts {
                let follows =
                    list.last().is_some_and(|last| facts::continues_list(&self.text, &last.span, &fact.span));
                let is_taken = used.iter().any(|used| used.overlaps(&fact.span));
                let is_like = fact.preposition.is_empty() || fact.preposition == first.preposition;
                if follows && !is_taken && is_like && is_same_kind(&first.kind, &fact.kind) {
                    list.push(fact);
                }
            }
            let Some(last) = list.last().filter(|_| list.len() > 1).map(|last| last.span.end) else {
                continue;
            };
            let is_peer = |fact: &&&Fact| {
                is_same_kind(&first.kind, &fact.kind) && fact.preposition == first.preposition
            };
            let peers = used.iter().filter(is_peer).count();
            // Only the first value of a list has the preposition.
            let in_row = used.iter().any(|used| facts::continues_list(&self.text, &used.span, &first.span));
            let Some(original) = self.steps.get_mut(step) else { return };
            if peers > 1 || in_row {
                let others = used.iter().filter(|used| is_same_kind(&first.kind, &used.kind)).skip(1);
                original.excess = Some(list.len() + others.count());
                return;
            }
            let range = original.range.clone();
            let question = |text: &Text, one: &Fact| {
                let (before, behind) =
                    (text.slice(range.start..first.span.start), text.slice(last..range.end));
                [before, text.slice(one.span.clone()), behind].join(" ").trim().to_owned()
            };
            original.question = question(&self.text, first);
            let original = original.clone();
            for one in list.iter().skip(1) {
                let others =
                    original.facts.iter().filter(|fact| !list.iter().any(|item| item.overlaps(&fact.span)));
                let mut facts: Vec<_> = others.cloned().collect();
                facts.push(Fact { preposition: first.preposition.clone(), ..(*one).clone() });
                self.steps.push(Step { facts, question: question(&self.text, one), ..original.clone() });
            }
            return;
        }
    }

    /// Adds a call for the best match that can be filled in, or else for the best match.
    fn force_call(&mut self) {
        let range = self.text.all();
        let ranked = self.tools.rank(&self.terms(&range));
        let facts = self.with_names_and_phrases(self.facts.clone(), &range, &[]);
        let can_be_filled = |mention: &&Mention| {
            self.fill(mention.tool, &range, &facts).is_some_and(|filled| filled.missing.is_empty())
        };
        if let Some(tool) = ranked.iter().find(can_be_filled).or(ranked.first()).map(|mention| mention.tool) {
            self.unmatched.clear();
            self.push_step(tool, range, facts);
        }
    }
}

fn is_same_kind(one: &FactKind, other: &FactKind) -> bool {
    let is_words = |kind: &FactKind| matches!(kind, FactKind::Name | FactKind::Phrase { is_whole: false });
    std::mem::discriminant(one) == std::mem::discriminant(other)
        && !matches!(one, FactKind::Phrase { .. } | FactKind::PendingResult(_) | FactKind::Result)
        || is_words(one) && is_words(other)
}
