//! The parts of a repaired value that needed no repair: a type can accept more than its schema, by which values are repaired.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use serde_json::value::RawValue;

use super::Members;
use super::budget::Budget;
use super::explain::offset_in;
use super::target::{Refused, Target, read_all};
use crate::schema::Kind;

/// The work of one trial per byte, because a type also allocates.
const WORK_PER_BYTE: usize = 2;

/// The maximum length of a text whose parts are restored, because each part takes many times its memory.
const MAX_BYTES: usize = 1 << 16;

/// Reads a repaired text. Returns the text that was read, where the parts that the type accepts are those of the original, unless
/// finding these takes too much work.
pub(super) fn read_repaired(
    target: &mut dyn Target,
    original: &str,
    repaired: String,
) -> (String, Option<Refused>) {
    let refused = read_all(target, &repaired).err();
    let is_readable = !refused.as_ref().is_some_and(Refused::is_mismatch);
    if !is_readable || target.validator().is_some() || repaired.len() > MAX_BYTES {
        return (repaired, refused);
    }
    let mut parts = Vec::new();
    add_repaired_parts(original, &repaired, 0, &mut parts);
    let budget = Budget::for_text(&repaired);
    let mut restoration = Restoration { target, repaired: &repaired, parts, budget };
    let all = 0..restoration.parts.len();
    let restored = restoration.restore(all).map(|()| restoration.text());
    let text = restored.unwrap_or(repaired);
    let refused = read_all(target, &text).err();
    (text, refused)
}

/// A part that was repaired.
struct RepairedPart<'t> {
    /// Its position in the repaired text.
    position: Range<usize>,
    original: &'t str,
    is_restored: bool,
}

/// Adds the smallest parts that differ, in their order. The repaired text begins at the offset.
fn add_repaired_parts<'t>(
    original: &'t str,
    repaired: &str,
    offset: usize,
    added: &mut Vec<RepairedPart<'t>>,
) {
    if original == repaired {
        return;
    }
    let kinds = (Kind::of(original), Kind::of(repaired));
    if !matches!(kinds, (Some(Kind::Object), Some(Kind::Object)) | (Some(Kind::Array), Some(Kind::Array))) {
        added.push(RepairedPart { position: offset..offset + repaired.len(), original, is_restored: false });
        return;
    }
    let originals: HashMap<_, _> = parts(original).into_iter().collect();
    for (name, part) in parts(repaired) {
        if let Some(original) = originals.get(&name) {
            add_repaired_parts(original, part, offset + offset_in(repaired, part), added);
        }
    }
}

/// Returns the members of an object, or the items of a list with their positions as names.
fn parts(text: &str) -> Vec<(Cow<'_, str>, &str)> {
    if let Ok(Members(members)) = serde_json::from_str(text) {
        return members.into_iter().map(|(name, value)| (name, value.get())).collect();
    }
    let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    items.into_iter().enumerate().map(|(index, item)| (index.to_string().into(), item.get())).collect()
}

/// The search for the parts that the type accepts as they were.
struct Restoration<'r> {
    target: &'r mut dyn Target,
    repaired: &'r str,
    parts: Vec<RepairedPart<'r>>,
    budget: Budget,
}

impl Restoration<'_> {
    /// Restores these parts if the type accepts all of them together, or else searches each half. Returns `None` if the budget is
    /// spent.
    fn restore(&mut self, parts: Range<usize>) -> Option<()> {
        self.set_restored(parts.clone(), true);
        let text = self.text();
        self.budget.spend(text.len().saturating_mul(WORK_PER_BYTE), 0)?;
        if !read_all(self.target, &text).is_err_and(|refused| refused.is_mismatch()) {
            return Some(());
        }
        self.set_restored(parts.clone(), false);
        if parts.len() > 1 {
            let middle = parts.start + parts.len() / 2;
            self.restore(parts.start..middle)?;
            self.restore(middle..parts.end)?;
        }
        Some(())
    }

    fn set_restored(&mut self, parts: Range<usize>, is_restored: bool) {
        self.parts[parts].iter_mut().for_each(|part| part.is_restored = is_restored);
    }

    fn text(&self) -> String {
        let (mut text, mut end) = (String::with_capacity(self.repaired.len()), 0);
        for part in self.parts.iter().filter(|part| part.is_restored) {
            text.push_str(&self.repaired[end..part.position.start]);
            text.push_str(part.original);
            end = part.position.end;
        }
        text.push_str(&self.repaired[end..]);
        text
    }
}
