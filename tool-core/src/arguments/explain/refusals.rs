//! Everything that a type refuses in a value. A type stops at its first error, so what it refuses is removed until it accepts the
//! rest. An object from which a member was removed is refused once more, because the member is missing.

use std::collections::HashSet;
use std::ops::Range;

use super::{Mistake, error_offset};
use crate::arguments::Target;
use crate::arguments::budget::Budget;
use crate::arguments::tokens::{self, Part};

/// The maximum number of readings.
const MAX_READINGS: usize = 24;

/// The work of one reading per byte, because a type also allocates.
const WORK_PER_BYTE: usize = 8;

/// A part of a value that its type refused.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Its position in the text.
    pub(super) place: Range<usize>,
    pub(super) reason: String,
}

/// All parts of a value that its type refused.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    all: Vec<Refusal>,
    /// The objects and lists of which everything else was accepted: they were refused for what was removed from them.
    accepted: Vec<Range<usize>>,
    /// The parts that were not read, because a part of their tuple was refused.
    unread: Vec<Range<usize>>,
    /// Everything else in front of this position was read.
    read_until: usize,
}

impl Refusals {
    /// Finds the refusals, of which the first is known. `lists` are the positions of the lists whose items can be removed, unlike
    /// those of tuples.
    pub(super) fn find(
        text: &str,
        target: &dyn Target,
        first: &serde_json::Error,
        lists: &HashSet<usize>,
    ) -> Self {
        let (mut found, mut rest) = (Self::default(), text.to_owned());
        let mut budget = Budget::for_text(text);
        // The objects and lists from which something was removed.
        let mut incomplete = HashSet::new();
        let mut next = Some((refused_part(text, target, first), reason_of(first)));
        for _ in 0..MAX_READINGS {
            let Some((part, reason)) = next else {
                found.read_until = usize::MAX;
                return found;
            };
            let place = part.value;
            found.read_until = place.start;
            if incomplete.contains(&place.start) {
                found.accepted.push(place.clone());
            } else {
                found.all.push(Refusal { place: place.clone(), reason });
            }
            let Some(mut container) = part.container else { break };
            let mut removed = part.entry;
            if part.is_item && !lists.contains(&container) {
                let tuple = tokens::part_at(&rest, container + 1);
                found.unread.push(place.end..tuple.value.end);
                let Some(outer) = tuple.container else { break };
                (container, removed) = (outer, tuple.entry);
            }
            if budget.spend(text.len().saturating_mul(WORK_PER_BYTE), 0).is_none() {
                break;
            }
            incomplete.insert(container);
            remove(&mut rest, removed);
            next = target.error(&rest).map(|error| (refused_part(&rest, target, &error), reason_of(&error)));
        }
        found
    }

    /// Finds only the first refusal.
    pub(super) fn first(text: &str, target: &dyn Target, error: &serde_json::Error) -> Self {
        let refusal = Refusal { place: refused_part(text, target, error).value, reason: reason_of(error) };
        Self { all: vec![refusal], ..Self::default() }
    }

    /// Removes the mistakes in what the type has accepted, whatever its schema says, and those that are uncertain, because the type
    /// has refused something else.
    pub(super) fn retain_refused(&self, mistakes: &mut Vec<Mistake>) {
        let is_complete = |place: &Range<usize>| {
            self.accepted.contains(place) || mistakes.iter().any(|one| one.is_uncertain && one.span == *place)
        };
        let (complete, refused): (Vec<_>, Vec<_>) = self
            .accepted
            .iter()
            .chain(self.all.iter().map(|one| &one.place))
            .partition(|place| is_complete(place));
        let read_until = complete.iter().map(|place| place.end).fold(self.read_until, usize::max);
        mistakes.retain(|mistake| {
            // What a type has flattened is read at the end of its object, where something is missing that was removed.
            let is_unread = self.unread.iter().any(|place| mistake.is_within(place))
                || complete.iter().any(|place| mistake.is_within(place) && mistake.read_until >= place.end);
            let is_read = mistake.read_until <= read_until && !is_unread;
            let is_accepted = is_read && !refused.iter().any(|place| mistake.is_at(place));
            mistake.is_limit || mistake.is_unknown || !(mistake.is_uncertain || is_accepted)
        });
    }

    /// Returns the refusals that none of the mistakes explains.
    pub(super) fn into_unexplained(self, mistakes: &[Mistake]) -> impl Iterator<Item = Refusal> {
        self.all.into_iter().filter(|refusal| {
            let explains = |mistake: &Mistake| {
                mistake.is_within(&refusal.place) || mistake.is_at(&refusal.place) && !mistake.is_missing
            };
            !mistakes.iter().any(explains)
        })
    }
}

impl Mistake {
    /// Returns `true` if a type that refuses the value at this place can have read the mistake.
    fn is_at(&self, place: &Range<usize>) -> bool {
        let overlaps = self.span.start < place.end && place.start < self.span.end;
        overlaps || self.read_until == place.end
    }
}

/// Returns the value that a type refused.
fn refused_part(text: &str, target: &dyn Target, error: &serde_json::Error) -> Part {
    let offset = error_offset(text, error);
    let consumed = text.get(..offset).unwrap_or_default();
    let consumed = consumed.strip_suffix(['{', '[']).unwrap_or(consumed).trim_ascii_end();
    // An error of a conversion is reported behind the value, at the comma or bracket, and so is one about what follows there.
    // With a comma inserted in front of it, only an error about the value stays the same.
    let last = consumed.strip_suffix([',', '}', ']']).map(str::trim_ascii_end);
    let is_conversion = |last: usize| {
        let (before, after) = text.split_at(last);
        let other = target.error(&format!("{before},{after}"));
        other.is_some_and(|other| reason_of(&other) == reason_of(error))
    };
    let offset = last.map(str::len).filter(|last| *last > 0 && is_conversion(*last)).unwrap_or(offset);
    tokens::part_at(text, offset)
}

/// Returns the text of an error of serde_json without its line and column.
fn reason_of(error: &serde_json::Error) -> String {
    let reason = error.to_string();
    reason.rsplit_once(" at line ").map_or(&*reason, |(reason, _)| reason).to_owned()
}

/// Replaces a member or an item with its comma by spaces, so that all other positions stay the same.
fn remove(text: &mut String, part: Range<usize>) {
    let comma_after = text[part.end..].find(|c: char| !c.is_ascii_whitespace()).map(|at| part.end + at);
    let comma_before = text[..part.start].trim_ascii_end().len().checked_sub(1);
    let is_comma = |at: &usize| text.as_bytes().get(*at) == Some(&b',');
    let comma = comma_after.filter(is_comma).or(comma_before.filter(is_comma));
    text.replace_range(part.clone(), &" ".repeat(part.len()));
    if let Some(comma) = comma {
        text.replace_range(comma..=comma, " ");
    }
}
