//! Finds candidate values for a slot and scores the evidence for each.

use std::ops::Range;

use serde_json::Value;

use crate::facts::{self, Fact, FactKind, is_list_separator, is_listed};
use crate::fit::fit;
use crate::slots::{Slot, SlotKind};
use crate::thesaurus::{is_stop, split_identifier, terms};
use crate::tokens::Text;

/// The score from which a candidate fills an optional slot; an unused value alone does not reach it.
pub(crate) const OPTIONAL_THRESHOLD: f64 = 8.0;

/// Prepositions, and the parameter names that they suggest.
const NAMES_BY_PREPOSITION: [(&str, &str); 7] = [
    ("to into until", "destination recipient receiver target end language goal arrival unit"),
    ("from", "origin source start departure sender begin"),
    ("in at near around", "city location place country room timezone region town area zone where"),
    ("for", "city location person user customer query topic symbol term"),
    ("on", "date day"),
    ("about of", "topic subject query"),
    ("named called titled", "name title"),
];

/// A possible value of a slot. `value` is `None` while it is a pending result.
pub(crate) struct Candidate {
    pub(crate) slot: usize,
    pub(crate) score: f64,
    pub(crate) facts: Vec<usize>,
    /// The tokens that the candidate uses up.
    pub(crate) span: Range<usize>,
    pub(crate) value: Option<Value>,
}

impl Candidate {
    fn from_fact(at: usize, fact: &Fact, score: f64, value: Option<Value>) -> Self {
        Self { slot: 0, score, facts: vec![at], span: fact.span.clone(), value }
    }
}

/// The words and values from which a call is filled.
pub(crate) struct Source<'a> {
    pub(crate) text: &'a Text,
    pub(crate) range: &'a Range<usize>,
    pub(crate) facts: &'a [Fact],
}

impl Source<'_> {
    /// Returns the candidates for a slot.
    pub(crate) fn candidates(&self, slot: &Slot) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        match &slot.kind {
            SlotKind::Boolean => candidates.extend(self.boolean(slot)),
            SlotKind::OneOf(values) => {
                candidates.extend(values.iter().flat_map(|value| self.enum_values(slot, value)))
            }
            SlotKind::List(item) => candidates.extend(self.lists(slot, item)),
            SlotKind::Number { .. } | SlotKind::Text(_) | SlotKind::Other => {}
        }
        for (at, fact) in self.facts.iter().enumerate() {
            if let Some((score, value)) = fit(&slot.kind, fact) {
                let score = score + self.evidence(slot, fact);
                candidates.push(Candidate::from_fact(at, fact, score, value));
            }
        }
        candidates.retain(|candidate| candidate.score > 0.0);
        candidates
    }

    /// Scores the evidence that a value belongs in a slot: nearby words of its name, or a preposition.
    fn evidence(&self, slot: &Slot, fact: &Fact) -> f64 {
        if !fact.field.is_empty() {
            // A field of a result fills only a slot of the same name.
            let is_same =
                slot.name_terms.last().is_some_and(|name| name.similarity_to_any(&fact.field) > 0.0);
            return if is_same { OPTIONAL_THRESHOLD } else { f64::MIN };
        }
        let preposition = &*fact.preposition;
        let prepositional: f64 = if preposition.is_empty() {
            0.0
        } else if slot.name_words.iter().any(|word| word == preposition) {
            8.0
        } else if slot.prepositions.iter().any(|word| word == preposition) {
            6.0
        } else {
            let goes_with = |names: &str| slot.name_words.iter().any(|word| is_listed(names, word));
            let hint = NAMES_BY_PREPOSITION
                .iter()
                .any(|(words, names)| is_listed(words, preposition) && goes_with(names));
            if hint { 4.0 } else { 0.0 }
        };
        // "called" takes the whole phrase, not only its capitalised words.
        let is_called = matches!(preposition, "named" | "called" | "titled")
            && matches!(fact.kind, FactKind::Phrase { .. });
        let inside =
            slot.name_terms.iter().any(|name| name.similarity_to_any(&terms([(0, &*fact.text)])) > 0.0);
        let called =
            if is_called { 2.0 } else { 0.0 } + if inside && fact.kind == FactKind::Name { 3.0 } else { 0.0 };
        prepositional.max(self.name_proximity(slot, &fact.span)) + called
    }

    /// Scores the words of the slot's name before the value ("width 3", "a = 3") or after it ("4 nights").
    fn name_proximity(&self, slot: &Slot, span: &Range<usize>) -> f64 {
        if span.is_empty() {
            return 0.0;
        }
        let before = (self.range.start..span.start).rev().take(6);
        let behind = (span.end..self.range.end).take(3);
        if let [name] = &slot.name_words[..]
            && name.chars().count() == 1
        {
            // A single letter could be an article.
            let mut before = before.map(|at| self.text.word(at));
            let is_joined = before.next().is_some_and(|word| matches!(word, "=" | ":" | "is" | "be"));
            return if is_joined && before.next() == Some(name) { 10.0 } else { 0.0 };
        }
        let before = before.take_while(|at| !is_listed("from in at for with on by", self.text.word(*at)));
        let behind = behind.take_while(|at| !is_listed("to from in at for with of per", self.text.word(*at)));
        (self.name_share(slot, before) * 10.0).max(self.name_share(slot, behind) * 9.5)
    }

    /// Returns the share of a slot's name found at `places`, which lead away from the value.
    fn name_share(&self, slot: &Slot, places: impl Iterator<Item = usize>) -> f64 {
        let count = slot.name_terms.len().max(1);
        let mut found = vec![false; count];
        let (mut distance, mut described) = (0.0, 0.0);
        for at in places {
            let word = self.text.word(at);
            if word.is_empty() || is_list_separator(word) || matches!(word, "." | ";" | "?" | "!") {
                break;
            }
            let term = terms([(at, word)]);
            let is_same = |name| term.iter().any(|term| term.similarity(name) > 0.0);
            let raw = slot.name_terms.is_empty() && slot.name_words.iter().any(|name| name == word);
            let position = slot.name_terms.iter().position(is_same).or(raw.then_some(0));
            if let Some(found) = position.and_then(|position| found.get_mut(position)) {
                *found = true;
            } else if distance == 0.0 && slot.description_terms.iter().any(is_same) {
                described = 0.3;
            } else if !is_stop(word) && word.chars().any(char::is_alphanumeric) && !found.contains(&true) {
                distance += 0.2;
            }
        }
        let share = found.iter().filter(|found| **found).count() as f64 / count as f64;
        ((1.0 - distance) * share).max(described)
    }

    /// Recognizes "with breakfast", "without breakfast", "verbose = false" and "turn it off".
    fn boolean(&self, slot: &Slot) -> Option<Candidate> {
        let is_filler =
            |word: &str| is_listed("is has with use include included enable enabled should show", word);
        let is_named = |at: usize, name: &str| self.text.word(at) == name || self.is_same_word(at, name);
        let place = |name: &str| self.range.clone().find(|at| is_named(*at, name));
        let names: Vec<_> = slot.name_words.iter().filter(|word| !is_filler(word)).collect();
        let off = if names.iter().any(|name| *name == "on") { place("off") } else { None };
        let named = || names.iter().map(|name| place(name)).collect::<Option<Vec<_>>>()?.into_iter().max();
        let at = off.or_else(named)?;
        let near = [at.wrapping_sub(2), at.wrapping_sub(1), at + 1, at + 2].map(|at| self.text.word(at));
        let [early, before, after, late] = near;
        let denies = |word| is_listed("without no not don't never exclude disable", word);
        let value = if matches!(after, "=" | ":" | "is") { late } else { after };
        let is_off =
            off.is_some() || denies(early) || denies(before) || is_listed("false off disabled", value);
        let (score, value) = (OPTIONAL_THRESHOLD + 1.0, Some((!is_off).into()));
        Some(Candidate { slot: 0, score, facts: Vec::new(), span: at..at + 1, value })
    }

    /// Returns `true` if a form of `word` is at a token.
    fn is_same_word(&self, at: usize, word: &str) -> bool {
        let said = self.text.token(at).map(|token| terms([(0, &*token.text)])).unwrap_or_default();
        terms([(0, word)]).iter().any(|term| said.iter().any(|said| said.stem == term.stem))
    }

    /// Returns a candidate for every mention of an allowed value.
    fn enum_values(&self, slot: &Slot, value: &Value) -> Vec<Candidate> {
        let written = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        let words = split_identifier(&written);
        let is_word = |at: usize, word: &str| {
            self.text.token(at).is_some_and(|token| token.lower == word) || self.is_same_word(at, word)
        };
        let is_said = |at: &usize| words.iter().enumerate().all(|(offset, word)| is_word(at + offset, word));
        // A single letter could be an article.
        let is_long = !words.is_empty() && (!value.is_string() || written.chars().count() > 1);
        let places = self.range.clone().filter(|at| is_long && is_said(at));
        let candidate = |at: usize| {
            let fact = Fact::new(self.text, at..at + words.len(), FactKind::Name);
            let score = OPTIONAL_THRESHOLD + 1.0 + self.evidence(slot, &fact) / 2.0;
            Candidate { slot: 0, score, facts: Vec::new(), span: fact.span, value: Some(value.clone()) }
        };
        places.map(candidate).collect()
    }

    /// Returns the lists of values in the text.
    fn lists(&self, slot: &Slot, item: &SlotKind) -> Vec<Candidate> {
        let mut lists: Vec<Candidate> = Vec::new();
        let mut items: Vec<(f64, usize, &Fact, Option<Value>)> = Vec::new();
        for (at, fact) in self.facts.iter().enumerate().filter(|(_, fact)| fact.field.is_empty()) {
            let place = items.partition_point(|(_, _, other, _)| other.span.start <= fact.span.start);
            let is_new = !items.iter().any(|(_, _, other, _)| fact.overlaps(&other.span));
            if let Some((score, value)) = fit(item, fact).filter(|(score, _)| *score >= 1.0 && is_new) {
                items.insert(place, (score, at, fact, value));
            }
        }
        for (score, at, fact, value) in items {
            let continues = |list: &&mut Candidate| facts::continues_list(self.text, &list.span, &fact.span);
            match lists.last_mut().filter(continues) {
                Some(list) => {
                    list.facts.push(at);
                    list.span.end = fact.span.end;
                    list.score += 0.1;
                    if let (Some(Value::Array(values)), Some(value)) = (&mut list.value, value) {
                        values.push(value);
                    }
                }
                None => {
                    let score = score + self.evidence(slot, fact);
                    let value = value.map(|value| vec![value].into());
                    lists.push(Candidate::from_fact(at, fact, score, value));
                }
            }
        }
        lists
    }
}
