//! Fills the arguments of a call: by type, by the names beside the values, by prepositions, by order.

use std::cmp::Reverse;
use std::ops::Range;

use serde_json::{Map, Number, Value};

use super::choose::Tool;
use super::facts::{self, Fact, Holds, is_list_separator, is_listed};
use super::schema::{Flavour, Shape, Slot};
use super::thesaurus::{is_stop, parts, terms};
use super::words::{Kind, Text};

/// What an optional parameter needs in its favour to be filled: more than that a value is left over.
const CLEARLY: f64 = 8.0;

/// Which prepositions go with which names of parameters.
const HINTS: [(&str, &str); 7] = [
    ("to into until", "destination recipient receiver target end language goal arrival unit"),
    ("from", "origin source start departure sender begin"),
    ("in at near around", "city location place country room timezone region town area zone where"),
    ("for", "city location person user customer query topic symbol term"),
    ("on", "date day"),
    ("about of", "topic subject query"),
    ("named called titled", "name title"),
];

/// A call as far as it can be filled.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) arguments: Value,
    /// The facts that went into it, by position.
    pub(super) used: Vec<usize>,
    /// The required slots that nothing fills, by position.
    pub(super) missing: Vec<usize>,
    /// A result went into it that is not there yet.
    pub(super) waits: bool,
}

/// One way to fill one slot; no value stands for a result that is not there yet.
struct Candidate {
    slot: usize,
    score: f64,
    facts: Vec<usize>,
    at: Vec<Range<usize>>,
    value: Option<Value>,
}

/// Fills what can be filled from the facts and from the words of the range. No value is used twice.
pub(super) fn fill(tool: &Tool<'_>, text: &Text, range: &Range<usize>, facts: &[Fact]) -> Filled {
    let words = Words { text, range, facts };
    let mut candidates: Vec<Candidate> = Vec::new();
    for (at, slot) in tool.slots.iter().enumerate() {
        candidates.extend(words.candidates(slot).into_iter().map(|one| Candidate { slot: at, ..one }));
    }
    let is_required = |candidate: &Candidate| tool.slots.get(candidate.slot).is_some_and(|slot| slot.is_required);
    for candidate in &mut candidates {
        candidate.score += if is_required(candidate) { 1.0 } else { 0.0 };
    }
    // Subtracting 3 from 10 begins with the 10.
    let is_from = |at: &usize| facts.get(*at).is_some_and(|fact| fact.preposition == "from");
    candidates.sort_by(|one, other| {
        let order = |one: &Candidate| (one.slot, Reverse(one.facts.first().is_some_and(is_from)), one.facts.first().copied());
        other.score.total_cmp(&one.score).then_with(|| order(one).cmp(&order(other)))
    });
    let mut chosen: Vec<&Candidate> = Vec::new();
    let is_free = |candidate: &Candidate, chosen: &[&Candidate]| {
        chosen.iter().all(|other| {
            other.slot != candidate.slot
                && !candidate.facts.iter().any(|fact| other.facts.contains(fact))
                && !candidate.at.iter().any(|at| other.at.iter().any(|taken| at.start < taken.end && taken.start < at.end))
        })
    };
    for candidate in &candidates {
        if (is_required(candidate) || candidate.score >= CLEARLY) && is_free(candidate, &chosen) {
            chosen.push(candidate);
        }
    }
    // A value that is left over goes where nothing else can take it.
    let plainly = |fact: &usize| {
        let plain = |fact: &Fact| matches!(fact.holds, Holds::Number(_) | Holds::Quoted | Holds::Email | Holds::Url | Holds::Date { .. } | Holds::Time);
        facts.get(*fact).is_some_and(plain)
    };
    for (at, _) in facts.iter().enumerate().filter(|(at, _)| plainly(at)) {
        let fits = |one: &&Candidate| one.facts == [at] && one.score >= 4.0 && is_free(one, &chosen);
        let left = facts::only(candidates.iter().filter(fits));
        chosen.extend(left);
    }
    assemble(&tool.slots, chosen)
}

fn assemble(slots: &[Slot], mut chosen: Vec<&Candidate>) -> Filled {
    // An object that may be left out is left out unless it is whole.
    loop {
        let is_filled = |at: usize| chosen.iter().any(|candidate| candidate.slot == at);
        let is_lacking = |owner: &[String]| {
            let mut lacking = slots.iter().enumerate().filter(|(at, slot)| !slot.is_required && !is_filled(*at));
            lacking.any(|(_, slot)| slot.required_in == Some(owner.len()) && slot.path.starts_with(owner))
        };
        let is_loose = |slot: &Slot| (1..slot.path.len()).any(|depth| is_lacking(slot.path.get(..depth).unwrap_or_default()));
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
    let is_missing = |(at, slot): &(usize, &Slot)| slot.is_required && !chosen.iter().any(|one| one.slot == *at);
    Filled {
        arguments: Value::Object(arguments),
        used: chosen.iter().flat_map(|candidate| candidate.facts.clone()).collect(),
        missing: slots.iter().enumerate().filter(is_missing).map(|(at, _)| at).collect(),
        waits: chosen.iter().any(|candidate| candidate.value.is_none()),
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

/// The words and values that a call is filled from.
struct Words<'a> {
    text: &'a Text,
    range: &'a Range<usize>,
    facts: &'a [Fact],
}

impl Words<'_> {
    fn candidates(&self, slot: &Slot) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        match &slot.kind {
            Shape::Boolean => candidates.extend(self.said(slot)),
            Shape::OneOf(values) => candidates.extend(values.iter().flat_map(|value| self.chosen(slot, value))),
            Shape::List(item) => candidates.extend(self.lists(slot, item)),
            Shape::Number { .. } | Shape::Text(_) | Shape::Other => {}
        }
        for (at, fact) in self.facts.iter().enumerate() {
            if let Some((worth, value)) = fit(&slot.kind, fact) {
                let score = worth + self.hint(slot, fact);
                candidates.push(Candidate { slot: 0, score, facts: vec![at], at: vec![fact.at.clone()], value });
            }
        }
        candidates.retain(|candidate| candidate.score > 0.0);
        candidates
    }

    /// What speaks for this value in this slot: its name, or a preposition.
    fn hint(&self, slot: &Slot, fact: &Fact) -> f64 {
        if !fact.field.is_empty() {
            // A field of a result fills what it is named after, and nothing else.
            let is_same = slot.name.last().is_some_and(|name| name.likeness_to_any(&fact.field) > 0.0);
            return if is_same { CLEARLY } else { f64::MIN };
        }
        let preposition = &*fact.preposition;
        let prepositional = if preposition.is_empty() {
            0.0
        } else if slot.words.iter().any(|word| word == preposition) {
            8.0
        } else if slot.prepositions.iter().any(|word| word == preposition) {
            6.0
        } else {
            let goes_with = |names: &str| slot.words.iter().any(|word| is_listed(names, word));
            let hint = HINTS.iter().any(|(words, names)| is_listed(words, preposition) && goes_with(names));
            if hint { 4.0 } else { 0.0 }
        };
        // What is called something is called all of it, not only its capitalised words.
        let is_called = matches!(preposition, "named" | "called" | "titled") && matches!(fact.holds, Holds::Phrase { .. });
        let inside = slot.name.iter().any(|name| name.likeness_to_any(&terms([(0, &*fact.text)])) > 0.0);
        let called = if is_called { 2.0 } else { 0.0 } + if inside && fact.holds == Holds::Name { 3.0 } else { 0.0 };
        prepositional.max(self.named(slot, &fact.at)) + called
    }

    /// The words of the parameter's name stand before the value ("width 3", "a = 3") or behind it ("4 nights").
    fn named(&self, slot: &Slot, at: &Range<usize>) -> f64 {
        if at.is_empty() {
            return 0.0;
        }
        let before = (self.range.start..at.start).rev().take(6);
        let behind = (at.end..self.range.end).take(3);
        if let [name] = &slot.words[..]
            && name.chars().count() == 1
        {
            // A letter alone may be an article.
            let mut before = before.map(|at| self.text.word(at));
            let is_joined = before.next().is_some_and(|word| matches!(word, "=" | ":" | "is" | "be"));
            return if is_joined && before.next() == Some(name) { 10.0 } else { 0.0 };
        }
        let behind = behind.take_while(|at| !is_listed("to from in at for with of per", self.text.word(*at)));
        (self.beside(slot, before) * 10.0).max(self.beside(slot, behind) * 9.5)
    }

    /// How much of a name stands in these places, which lead away from the value.
    fn beside(&self, slot: &Slot, places: impl Iterator<Item = usize>) -> f64 {
        let count = slot.name.len().max(1);
        let mut found = vec![false; count];
        let (mut distance, mut described) = (0.0, 0.0);
        for at in places {
            let word = self.text.word(at);
            if word.is_empty() || is_list_separator(word) || matches!(word, "." | ";" | "?" | "!") {
                break;
            }
            let term = terms([(at, word)]);
            let is_same = |name| term.iter().any(|term| term.likeness(name) > 0.0);
            let raw = slot.name.is_empty() && slot.words.iter().any(|name| name == word);
            let position = slot.name.iter().position(is_same).or(raw.then_some(0));
            match position.and_then(|position| found.get_mut(position)) {
                Some(found) => *found = true,
                None if distance == 0.0 && slot.about.iter().any(is_same) => described = 0.3,
                None if !is_stop(word) && word.chars().any(char::is_alphanumeric) && !found.contains(&true) => distance += 0.2,
                None => {}
            }
        }
        let share = found.iter().filter(|found| **found).count() as f64 / count as f64;
        ((1.0 - distance) * share).max(described)
    }

    /// "with breakfast", "without breakfast", "verbose = false".
    fn said(&self, slot: &Slot) -> Option<Candidate> {
        let is_filler = |word: &&String| is_listed("is has with use include included enable enabled should show", word);
        let names: Vec<_> = slot.words.iter().filter(|word| !is_filler(word)).collect();
        let is_named = |word: &str, name: &str| {
            let (one, other) = (terms([(0, word)]), terms([(0, name)]));
            word == name || one.iter().any(|term| other.iter().any(|other| other.stem == term.stem))
        };
        let place = |name: &str| self.range.clone().find(|at| is_named(self.text.word(*at), name));
        let places = || names.iter().map(|name| place(name));
        let off = names.iter().any(|name| *name == "on").then(|| place("off")).flatten();
        let at = match off {
            Some(off) => off,
            None if names.is_empty() || places().any(|at| at.is_none()) => return None,
            None => places().flatten().max()?,
        };
        let near = [at.wrapping_sub(2), at.wrapping_sub(1), at + 1, at + 2].map(|at| self.text.word(at));
        let [_, before, after, second] = near;
        let denied = near.iter().take(2).any(|word| is_listed("without no not don't never exclude disable", word));
        let value = if matches!(after, "=" | ":" | "is") { second } else { after };
        let is_off = off.is_some() || denied || is_listed("false off disabled", value) || before == "off";
        let at = vec![at..at + 1];
        Some(Candidate { slot: 0, score: CLEARLY + 1.0, facts: Vec::new(), at, value: Some((!is_off).into()) })
    }

    /// The places where one of the words that a slot allows is said.
    fn chosen(&self, slot: &Slot, value: &Value) -> Vec<Candidate> {
        let written = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        let words = parts(&written);
        let is_said = |at: &usize| {
            let said = |(offset, word): (usize, &String)| {
                let token = self.text.token(at + offset);
                let term = || token.map(|token| terms([(0, &*token.text)])).unwrap_or_default();
                let same_stem = || terms([(0, &**word)]).iter().any(|one| term().iter().any(|other| one.stem == other.stem));
                token.is_some_and(|token| token.lower == *word || same_stem())
            };
            words.iter().enumerate().all(said)
        };
        let least = if value.is_string() { 2 } else { 1 };
        let places = self.range.clone().filter(|_| written.chars().count() >= least && !words.is_empty()).filter(is_said);
        let candidate = |at: usize| {
            let fact = Fact::new(self.text, at..at + words.len(), Holds::Name);
            let score = CLEARLY + 1.0 + self.hint(slot, &fact) / 2.0;
            Candidate { slot: 0, score, facts: Vec::new(), at: vec![fact.at], value: Some(value.clone()) }
        };
        places.map(candidate).collect()
    }

    /// The values that stand in a row.
    fn lists(&self, slot: &Slot, item: &Shape) -> Vec<Candidate> {
        let mut lists: Vec<Candidate> = Vec::new();
        let mut items: Vec<(f64, usize, &Fact, Option<Value>)> = Vec::new();
        for (at, fact) in self.facts.iter().enumerate().filter(|(_, fact)| fact.field.is_empty()) {
            let place = items.partition_point(|(_, _, other, _)| other.at.start <= fact.at.start);
            let is_new = !items.iter().any(|(_, _, other, _)| fact.overlaps(&other.at));
            if let Some((worth, value)) = fit(item, fact).filter(|(worth, _)| *worth >= 1.0 && is_new) {
                items.insert(place, (worth, at, fact, value));
            }
        }
        for (worth, at, fact, value) in items {
            match lists.last_mut().filter(|_| fact.continues_list) {
                Some(list) => {
                    list.facts.push(at);
                    list.at.push(fact.at.clone());
                    list.score += 0.1;
                    if let (Some(Value::Array(values)), Some(value)) = (&mut list.value, value) {
                        values.push(value);
                    }
                }
                None => {
                    let score = worth + self.hint(slot, fact);
                    let value = value.map(|value| vec![value].into());
                    lists.push(Candidate { slot: 0, score, facts: vec![at], at: vec![fact.at.clone()], value });
                }
            }
        }
        lists
    }
}

/// How well a value goes into such a slot, and as what.
fn fit(shape: &Shape, fact: &Fact) -> Option<(f64, Option<Value>)> {
    let text = &fact.text;
    let (worth, value) = match (shape, &fact.holds) {
        (Shape::Text(flavour), Holds::Pending(_)) => return Some((worth(*flavour, &Holds::Known).max(1.0), None)),
        (Shape::Number { .. } | Shape::List(_) | Shape::OneOf(_) | Shape::Boolean, Holds::Pending(_)) => return Some((5.0, None)),
        (Shape::Number { is_integer }, Holds::Number(number)) => (5.0, as_number(number, *is_integer)?),
        (Shape::Number { is_integer }, Holds::Known) => (5.0, as_number(&facts::number_of(text)?, *is_integer)?),
        (Shape::Text(Flavour::Mail { .. }), Holds::Known) => (8.0, facts::email_of(text)?.into()),
        (Shape::Text(flavour), holds) => (worth(*flavour, holds), text.clone().into()),
        (Shape::List(_), Holds::Known) => (5.0, serde_json::from_str(text).ok().filter(Value::is_array)?),
        (Shape::Boolean, Holds::Known) => (5.0, text.trim().parse::<bool>().ok()?.into()),
        (Shape::OneOf(values), Holds::Known) => {
            (5.0, values.iter().find(|value| value.as_str().is_some_and(|one| one.eq_ignore_ascii_case(text.trim())))?.clone())
        }
        _ => return None,
    };
    (worth > 0.0).then_some((worth, Some(value)))
}

/// A number as it is; for an integer, one without a fraction.
fn as_number(number: &Number, is_integer: bool) -> Option<Value> {
    if !is_integer || number.is_i64() || number.is_u64() {
        return Some(number.clone().into());
    }
    let whole = format!("{:.0}", number.as_f64().filter(|number| number.fract() == 0.0)?);
    whole.parse::<i64>().ok().map(Value::from)
}

/// How well a text goes into a parameter of such a flavour.
fn worth(flavour: Flavour, holds: &Holds) -> f64 {
    match (flavour, holds) {
        (Flavour::Mail { .. }, Holds::Email)
        | (Flavour::Link, Holds::Url)
        | (Flavour::Date { .. }, Holds::Date { is_iso: true })
        | (Flavour::Date { is_strict: false }, Holds::Date { .. })
        | (Flavour::Time, Holds::Time)
        | (Flavour::Formula, Holds::Formula) => 8.0,
        (Flavour::Mail { is_strict: true } | Flavour::Date { is_strict: true }, _) => 0.0,
        (Flavour::Long, Holds::Speech) => 6.0,
        (Flavour::Long | Flavour::Formula, Holds::Quoted) => 5.0,
        (Flavour::Plain, Holds::Quoted | Holds::Name) | (Flavour::Long, Holds::Known) => 4.0,
        (Flavour::Long, Holds::Phrase { is_whole: true }) => 3.0,
        (Flavour::Plain, Holds::Phrase { is_whole: false }) => 2.5,
        (Flavour::Mail { .. }, Holds::Name) => 2.5,
        (Flavour::Plain, Holds::Date { .. } | Holds::Time | Holds::Url | Holds::Email) => 2.0,
        (Flavour::Formula, Holds::Phrase { is_whole: true }) => 2.0,
        (Flavour::Plain, Holds::Known) => 1.5,
        (Flavour::Plain | Flavour::Long, Holds::Number(_)) => 0.5,
        (_, Holds::Phrase { is_whole: true } | Holds::Speech | Holds::Formula | Holds::Number(_) | Holds::Known | Holds::Pending(_)) => 0.0,
        (_, Holds::Quoted | Holds::Email | Holds::Url | Holds::Date { .. } | Holds::Time | Holds::Name | Holds::Phrase { .. }) => 1.0,
    }
}
