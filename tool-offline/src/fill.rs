//! Fills in the arguments of a call: the best pairs of slots and values first, and no value twice.

use std::ops::Range;

use serde_json::{Number, Value};

use crate::facts::{Fact, FactKind, Question};
use crate::form::{Form, Slot, SlotKind};
use crate::text::TokenKind;
use crate::words::{PREPOSITIONS, keys};

/// The score from which a value is meant for an optional slot.
const MIN_OPTIONAL_SCORE: f64 = 3.5;

/// What makes required slots come first.
const REQUIRED_SCORE: f64 = 100.0;

/// The arguments of a call, as far as they can be filled in.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) arguments: Value,
    /// The indices of the used facts.
    pub(crate) used: Vec<usize>,
    /// The paths of the required slots without a value.
    pub(crate) missing: Vec<String>,
}

/// Fills the slots from the facts and from the words in `range`.
pub(crate) fn fill(form: &Form, question: &Question<'_>, range: &Range<usize>, facts: &[Fact]) -> Filled {
    let mut candidates = Vec::new();
    for (at, slot) in form.slots.iter().enumerate() {
        let is_number = matches!(slot.kind, SlotKind::Number | SlotKind::Integer);
        let least = if slot.is_required || is_number { f64::MIN_POSITIVE } else { MIN_OPTIONAL_SCORE };
        let first = if slot.is_required { REQUIRED_SCORE } else { 0.0 };
        let mut add = |fact: Option<usize>, score: f64, value: Value| {
            if score >= least {
                candidates.push((first + score, at, fact, value));
            }
        };
        if let Some(value) = word_value(slot, question, range) {
            add(None, MIN_OPTIONAL_SCORE, value);
        }
        for (index, fact) in facts.iter().enumerate() {
            if let Some((score, value)) = fit(&slot.kind, fact) {
                let named = fact.names.iter().filter(|name| slot.words.contains(name)).count();
                add(Some(index), score + 3.0 * named as f64, value);
            }
        }
    }
    // Stable, so that equal candidates are in the order of the slots and then of the values.
    candidates.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
    let mut values = vec![None; form.slots.len()];
    let mut used = Vec::new();
    for (_, slot, fact, value) in candidates {
        if values[slot].is_none() && !fact.is_some_and(|fact| used.contains(&fact)) {
            values[slot] = Some(value);
            used.extend(fact);
        }
    }
    let slots = form.slots.iter().zip(&values);
    let missing = slots.filter(|(slot, value)| slot.is_required && value.is_none());
    let missing = missing.map(|(slot, _)| slot.path.join(".")).collect();
    Filled { arguments: form.assemble(values), used, missing }
}

/// Returns how well a fact fits a kind of slot, and its value.
fn fit(kind: &SlotKind, fact: &Fact) -> Option<(f64, Value)> {
    let is_capitalized = fact.text.starts_with(char::is_uppercase);
    let has_preposition = fact.names.iter().any(|name| PREPOSITIONS.contains(&&**name));
    Some(match (kind, &fact.kind) {
        (SlotKind::Other, _) => return None,
        // Its value is known once the call is done.
        (SlotKind::Text(_), FactKind::Pending | FactKind::Failed) => (1.0, Value::Null),
        (_, FactKind::Pending | FactKind::Failed) => (2.0, Value::Null),
        (SlotKind::Number, _) => (2.0, fact.number()?.into()),
        (SlotKind::Integer, _) => (2.0, as_integer(&fact.number()?)?),
        (SlotKind::Text(look), kind) => {
            let score = match (look, kind) {
                (TokenKind::Word, FactKind::Value(TokenKind::Word)) => {
                    1.0 + f64::from(is_capitalized) + f64::from(has_preposition)
                }
                (TokenKind::Word, FactKind::Value(TokenKind::Quoted)) => 3.0,
                (look, FactKind::Value(kind)) if look == kind => 6.0,
                (TokenKind::Email, _) => return None,
                (_, FactKind::Result) => 1.0,
                _ => 0.5,
            };
            (score, Value::from(&*fact.text))
        }
        (SlotKind::Boolean, FactKind::Result) => (2.0, fact.text.parse::<bool>().ok()?.into()),
        _ => return None,
    })
}

/// Returns a number without a fraction.
fn as_integer(number: &Number) -> Option<Value> {
    let whole = number.as_f64().filter(|number| number.fract() == 0.0)?;
    number.as_i64().or_else(|| format!("{whole:.0}").parse().ok()).map(Value::from)
}

/// Returns the value of a flag or of a choice that the words in a range name.
fn word_value(slot: &Slot, question: &Question<'_>, range: &Range<usize>) -> Option<Value> {
    let position = |key: &String| range.clone().find(|at| question.keys[*at] == *key);
    match &slot.kind {
        SlotKind::OneOf(values) => {
            let is_named = |value: &&String| {
                let keys = keys(value);
                !keys.is_empty() && keys.iter().all(|key| position(key).is_some())
            };
            values.iter().find(is_named).map(|value| value.as_str().into())
        }
        SlotKind::Boolean => {
            let at = slot.words.iter().find_map(position)?;
            let mut before = (range.start..at).rev().take(2);
            let is_negated = before.any(|at| ["without", "no", "not"].contains(&&*question.word(at)));
            Some((!is_negated).into())
        }
        _ => None,
    }
}
