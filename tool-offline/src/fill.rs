//! Fills in the arguments of a call: the best pairs of slots and values first, and no value twice.

use std::ops::Range;

use crate::form::{Filled, Form, Slot, SlotKind};
use crate::question::{Fact, Question, Source};
use crate::text::TokenKind;
use crate::words::{NEGATIONS, PREPOSITIONS, is_in, keys};

/// The score from which a value is meant for an optional slot.
const MIN_OPTIONAL_SCORE: f64 = 3.5;

/// What makes required slots come first, with any value that fits.
const REQUIRED_SCORE: f64 = 100.0;

/// Fills the slots from the facts and from the words in `range`. Returns also the facts that are left.
pub(crate) fn fill(
    form: &Form,
    question: &Question<'_>,
    range: &Range<usize>,
    facts: &[Fact],
) -> (Filled, Vec<Fact>) {
    let mut candidates = Vec::new();
    for (index, slot) in form.slots.iter().enumerate() {
        let named = named_value(slot, question, range);
        let named = named.map(|text| (MIN_OPTIONAL_SCORE, None, Source::Text(text)));
        let fitting = facts
            .iter()
            .enumerate()
            .filter_map(|(fact, value)| Some((score(slot, value)?, Some(fact), value.source.clone())));
        let bonus = if slot.is_required { REQUIRED_SCORE } else { 0.0 };
        let scored = named.into_iter().chain(fitting);
        let scored = scored.map(|(score, fact, source)| (bonus + score, index, fact, source));
        candidates.extend(scored.filter(|(score, ..)| *score >= MIN_OPTIONAL_SCORE));
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
    let unused = facts.iter().enumerate().filter(|(fact, _)| !used.contains(fact));
    (Filled { sources, missing }, unused.map(|(_, fact)| fact.clone()).collect())
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
        (SlotKind::Number | SlotKind::Integer, None | Some(TokenKind::Number)) => MIN_OPTIONAL_SCORE,
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
    let position = |key: &String| range.clone().find(|at| question.tokens[*at].key == *key);
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
