//! Fills in the arguments of a call: the best pairs of slots and values first, and no value twice.

use std::ops::Range;

use crate::form::{Form, Slot, SlotKind};
use crate::question::{Fact, Question, Source};
use crate::text::TokenKind;
use crate::words::{NEGATIONS, PREPOSITIONS, is_in, keys};

/// The score from which a value is meant for an optional slot.
const MIN_OPTIONAL_SCORE: f64 = 3.5;

/// What makes required slots come first.
const REQUIRED_SCORE: f64 = 100.0;

/// The arguments of a call, as far as they can be filled in.
#[derive(Debug)]
pub(crate) struct Filled {
    /// The sources of the slots.
    pub(crate) sources: Vec<Option<Source>>,
    /// The paths of the required slots without a value.
    pub(crate) missing: Vec<String>,
    pub(crate) unused: Vec<Fact>,
}

/// Fills the slots from the facts and from the words in `range`.
pub(crate) fn fill(form: &Form, question: &Question<'_>, range: &Range<usize>, facts: &[Fact]) -> Filled {
    let mut candidates = Vec::new();
    for (at, slot) in form.slots.iter().enumerate() {
        let is_number = matches!(slot.kind, SlotKind::Number | SlotKind::Integer);
        let least = if slot.is_required || is_number { f64::MIN_POSITIVE } else { MIN_OPTIONAL_SCORE };
        let first = if slot.is_required { REQUIRED_SCORE } else { 0.0 };
        let named =
            named_value(slot, question, range).map(|text| (MIN_OPTIONAL_SCORE, None, Source::Text(text)));
        let facts = facts.iter().enumerate();
        let fitting =
            facts.filter_map(|(index, fact)| Some((score(slot, fact)?, Some(index), fact.source.clone())));
        let scored = named.into_iter().chain(fitting).filter(|(score, ..)| *score >= least);
        candidates.extend(scored.map(|(score, fact, source)| (first + score, at, fact, source)));
    }
    // Stable, so that equal candidates are in the order of the slots and then of the values.
    candidates.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
    let mut sources = vec![None; form.slots.len()];
    let mut used = Vec::new();
    for (_, slot, fact, source) in candidates {
        if sources[slot].is_none() && !fact.is_some_and(|fact| used.contains(&fact)) {
            sources[slot] = Some(source);
            used.extend(fact);
        }
    }
    let slots = form.slots.iter().zip(&sources);
    let missing = slots.filter(|(slot, source)| slot.is_required && source.is_none());
    let missing = missing.map(|(slot, _)| slot.path.join(".")).collect();
    let facts = facts.iter().enumerate().filter(|(index, _)| !used.contains(index));
    Filled { missing, unused: facts.map(|(_, fact)| fact.clone()).collect(), sources }
}

/// Returns how well a fact fits a slot.
fn score(slot: &Slot, fact: &Fact) -> Option<f64> {
    let named = fact.names.iter().filter(|name| slot.words.contains(name)).count();
    let is_introduced = fact.names.iter().any(|name| is_in(PREPOSITIONS, name));
    let is_capitalized = match &fact.source {
        Source::Text(text) => slot.kind.value(text).map(|_| text.starts_with(char::is_uppercase))?,
        Source::Step(_) => false,
    };
    let look = match (&slot.kind, fact.look) {
        (SlotKind::Number | SlotKind::Integer, None | Some(TokenKind::Number)) => 2.0,
        (SlotKind::Boolean, None) => 2.0,
        (SlotKind::Text(TokenKind::Word), Some(TokenKind::Word)) => {
            1.0 + f64::from(is_capitalized) + f64::from(is_introduced)
        }
        (SlotKind::Text(TokenKind::Word), Some(TokenKind::Quoted)) => 3.0,
        (SlotKind::Text(wanted), Some(look)) if *wanted == look => 6.0,
        (SlotKind::Text(TokenKind::Email), _) => return None,
        (SlotKind::Text(_), None) => 1.0,
        (SlotKind::Text(_), Some(_)) => 0.5,
        _ => return None,
    };
    Some(look + 3.0 * named as f64)
}

/// Returns the value of a flag or of a choice that the words in a range name.
fn named_value(slot: &Slot, question: &Question<'_>, range: &Range<usize>) -> Option<String> {
    let position = |key: &String| range.clone().find(|at| question.keys[*at] == *key);
    if matches!(slot.kind, SlotKind::Boolean) {
        let at = slot.words.iter().find_map(position)?;
        let is_negated = (range.start..at).rev().take(2).any(|at| question.is_in(NEGATIONS, at));
        return Some((!is_negated).to_string());
    }
    let is_named = |choice: &&String| {
        let keys = keys(choice);
        !keys.is_empty() && keys.iter().all(|key| position(key).is_some())
    };
    slot.kind.choices().iter().find(is_named).cloned()
}
