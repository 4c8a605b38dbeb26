//! Fills in the arguments of a call: the best pairs of slots and values first, and no value twice.

use std::ops::Range;

use serde_json::{Number, Value};

use crate::facts::{Fact, FactKind, Question};
use crate::form::{Form, Slot, SlotKind};
use crate::text::TokenKind;
use crate::words::keys;

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
pub(crate) fn fill(form: &Form<'_>, question: &Question<'_>, range: &Range<usize>, facts: &[Fact]) -> Filled {
    let mut candidates = Vec::new();
    for (at, slot) in form.slots.iter().enumerate() {
        let is_number = matches!(slot.kind, SlotKind::Number | SlotKind::Integer);
        let least = if slot.is_required || is_number { f64::MIN_POSITIVE } else { MIN_OPTIONAL_SCORE };
        let first = if slot.is_required { REQUIRED_SCORE } else { 0.0 };
        let mut add = |facts: Vec<usize>, score: f64, value: Value| {
            if score >= least {
                candidates.push((first + score, at, facts, value));
            }
        };
        match &slot.kind {
            SlotKind::Boolean | SlotKind::OneOf(_) => {
                if let Some(value) = word_value(slot, question, range) {
                    add(Vec::new(), MIN_OPTIONAL_SCORE, value);
                }
            }
            SlotKind::List(item) => {
                let items = facts.iter().enumerate();
                let items = items.filter_map(|(at, fact)| Some((at, fit(item, fact)?.1)));
                let (used, values): (Vec<_>, Vec<_>) = items.unzip();
                if !used.is_empty() {
                    add(used, MIN_OPTIONAL_SCORE, values.into());
                }
            }
            _ => {}
        }
        for (index, fact) in facts.iter().enumerate() {
            if let Some((score, value)) = fit(&slot.kind, fact) {
                add(vec![index], score + name_score(slot, fact), value);
            }
        }
    }
    // Stable, so that equal candidates are in the order of the slots and then of the values.
    candidates.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
    let mut values = vec![None; form.slots.len()];
    let mut used = Vec::new();
    for (_, slot, facts, value) in candidates {
        if values[slot].is_none() && facts.iter().all(|fact| !used.contains(fact)) {
            values[slot] = Some(value);
            used.extend(facts);
        }
    }
    let slots = form.slots.iter().zip(&values);
    let missing = slots.filter(|(slot, value)| slot.is_required && value.is_none());
    let missing = missing.map(|(slot, _)| slot.path.clone()).collect();
    Filled { arguments: form.assemble(&values), used, missing }
}

/// Returns how well a fact fits a kind of slot, and its value.
fn fit(kind: &SlotKind, fact: &Fact) -> Option<(f64, Value)> {
    let text = || Value::from(&*fact.text);
    let is_capitalized = fact.text.starts_with(char::is_uppercase);
    Some(match (kind, &fact.kind) {
        (SlotKind::Other, _) => return None,
        // Its value is known once the step is done.
        (SlotKind::Text(_), FactKind::Pending(_)) => (1.0, Value::Null),
        (_, FactKind::Pending(_)) => (2.0, Value::Null),
        (SlotKind::Number, _) => (2.0, fact.number()?.into()),
        (SlotKind::Integer, _) => (2.0, as_integer(fact.number()?)?),
        (SlotKind::Text(TokenKind::Word), FactKind::Value(TokenKind::Word)) => {
            (1.0 + f64::from(is_capitalized) + f64::from(fact.preposition.is_some()), text())
        }
        (SlotKind::Text(TokenKind::Word), FactKind::Value(TokenKind::Quoted)) => (3.0, text()),
        (SlotKind::Text(look), FactKind::Value(kind)) if look == kind => (6.0, text()),
        (SlotKind::Text(TokenKind::Email), _) => return None,
        (SlotKind::Text(_), FactKind::Result) => (1.0, text()),
        (SlotKind::Text(_), _) => (0.5, text()),
        (SlotKind::Boolean, FactKind::Result) => (2.0, fact.text.parse::<bool>().ok()?.into()),
        (SlotKind::OneOf(values), FactKind::Result) => {
            (2.0, values.iter().find(|one| **one == fact.text)?.as_str().into())
        }
        (SlotKind::List(_), FactKind::Result) => {
            (2.0, serde_json::from_str(&fact.text).ok().filter(Value::is_array)?)
        }
        (SlotKind::Boolean | SlotKind::OneOf(_) | SlotKind::List(_), _) => return None,
    })
}

/// Returns a number without a fraction.
fn as_integer(number: Number) -> Option<Value> {
    if number.is_i64() || number.is_u64() {
        return Some(number.into());
    }
    let whole = number.as_f64().filter(|number| number.fract() == 0.0)?;
    format!("{whole:.0}").parse::<i64>().ok().map(Value::from)
}

/// Returns how well the words around a value fit the name of a slot.
fn name_score(slot: &Slot, fact: &Fact) -> f64 {
    let is_named = fact.names.iter().any(|name| slot.words.contains(name));
    let has_preposition = fact.preposition.as_ref().is_some_and(|one| slot.words.contains(one));
    2.0 * f64::from(is_named) + 3.0 * f64::from(has_preposition)
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
        _ => {
            let at = slot.words.iter().find_map(position)?;
            let is_negated = (range.start..at)
                .rev()
                .take(2)
                .any(|at| ["without", "no", "not"].contains(&&*question.word(at)));
            Some((!is_negated).into())
        }
    }
}
