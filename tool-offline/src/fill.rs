//! Fills in the arguments of a call, guided by types, names next to values, prepositions and order.

use std::cmp::Reverse;
use std::ops::Range;

use serde_json::{Map, Value};

use crate::candidates::{Candidate, OPTIONAL_THRESHOLD, Source};
use crate::facts::{self, Fact, FactKind};
use crate::matching::Tool;
use crate::nulls::fill_with_nulls;
use crate::slots::Slot;
use crate::tokens::Text;

/// The arguments of a call, as far as they can be filled in.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) arguments: Value,
    /// The indices of the facts that were used.
    pub(crate) used: Vec<usize>,
    /// The indices of the required slots without a value.
    pub(crate) missing: Vec<usize>,
    /// A used fact is the result of a step that has not finished.
    pub(crate) is_waiting: bool,
}

/// Fills the slots of a tool from the facts and the words in `range`. No value is used twice.
pub(crate) fn fill(tool: &Tool<'_>, text: &Text, range: &Range<usize>, facts: &[Fact]) -> Filled {
    let source = Source { text, range, facts };
    let mut candidates: Vec<Candidate> = Vec::new();
    for (at, slot) in tool.slots.iter().enumerate() {
        let first = if slot.is_required { 1.0 } else { 0.0 };
        let of_slot = |one: Candidate| Candidate { slot: at, score: one.score + first, ..one };
        candidates.extend(source.candidates(slot).into_iter().map(of_slot));
    }
    let is_required = |one: &Candidate| tool.slots.get(one.slot).is_some_and(|slot| slot.is_required);
    // In "subtract 3 from 10", the 10 comes first.
    let is_from = |at: &usize| facts.get(*at).is_some_and(|fact| fact.preposition == "from");
    candidates.sort_by(|one, other| {
        let order = |one: &Candidate| {
            (one.slot, Reverse(one.facts.first().is_some_and(is_from)), one.facts.first().copied())
        };
        other.score.total_cmp(&one.score).then_with(|| order(one).cmp(&order(other)))
    });
    let mut chosen: Vec<&Candidate> = Vec::new();
    let is_free = |candidate: &Candidate, chosen: &[&Candidate]| {
        chosen.iter().all(|other| {
            other.slot != candidate.slot
                && !candidate.facts.iter().any(|fact| other.facts.contains(fact))
                && (candidate.span.start >= other.span.end || other.span.start >= candidate.span.end)
        })
    };
    for candidate in &candidates {
        if (is_required(candidate) || candidate.score >= OPTIONAL_THRESHOLD) && is_free(candidate, &chosen) {
            chosen.push(candidate);
        }
    }
    // An unused value goes into the only slot that accepts it.
    let is_vague = |fact: &Fact| {
        matches!(
            fact.kind,
            FactKind::Name | FactKind::Phrase { .. } | FactKind::PendingResult(_) | FactKind::Result
        )
    };
    for (at, _) in facts.iter().enumerate().filter(|(_, fact)| !is_vague(fact)) {
        let fits = |one: &&Candidate| one.facts == [at] && one.score >= 4.0 && is_free(one, &chosen);
        let left = facts::single(candidates.iter().filter(fits));
        chosen.extend(left);
    }
    let mut filled = assemble(&tool.slots, chosen);
    fill_with_nulls(tool.definition.parameters(), &mut filled.arguments);
    filled
}

fn assemble(slots: &[Slot], mut chosen: Vec<&Candidate>) -> Filled {
    // An optional object is omitted unless it is complete.
    loop {
        let is_filled = |at: usize| chosen.iter().any(|candidate| candidate.slot == at);
        let is_lacking = |owner: &[String]| {
            let mut lacking =
                slots.iter().enumerate().filter(|(at, slot)| !slot.is_required && !is_filled(*at));
            lacking.any(|(_, slot)| slot.required_in == Some(owner.len()) && slot.path.starts_with(owner))
        };
        let is_loose = |slot: &Slot| {
            (1..slot.path.len()).any(|depth| is_lacking(slot.path.get(..depth).unwrap_or_default()))
        };
        let loose = chosen.iter().position(|candidate| {
            slots.get(candidate.slot).is_some_and(|slot| !slot.is_required && is_loose(slot))
        });
        match loose {
            Some(loose) => drop(chosen.remove(loose)),
            None => break,
        }
    }
    chosen.sort_by_key(|candidate| candidate.slot);
    let mut arguments = Map::new();
    for candidate in &chosen {
        if let Some(slot) = slots.get(candidate.slot) {
            insert(&mut arguments, &slot.path, candidate.value.clone().unwrap_or_default());
        }
    }
    let is_missing =
        |(at, slot): &(usize, &Slot)| slot.is_required && !chosen.iter().any(|one| one.slot == *at);
    Filled {
        arguments: Value::Object(arguments),
        used: chosen.iter().flat_map(|candidate| candidate.facts.clone()).collect(),
        missing: slots.iter().enumerate().filter(is_missing).map(|(at, _)| at).collect(),
        is_waiting: chosen.iter().any(|candidate| candidate.value.is_none()),
    }
}

fn insert(object: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [name] => drop(object.insert(name.clone(), value)),
        [name, rest @ ..] => {
            if let Value::Object(inner) = object.entry(name.clone()).or_insert_with(|| Map::new().into()) {
                insert(inner, rest, value);
            }
        }
    }
}
