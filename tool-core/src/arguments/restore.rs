//! The parts of a repaired value that needed no repair: a type can accept more than its schema, by which values are repaired.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::budget::Budget;
use super::{Members, write_object};
use crate::schema::Kind;

/// The work of one trial per byte, because a type that reads a text also allocates.
const WORK_PER_BYTE: usize = 16;

/// Returns the repaired value with each part of the original that is accepted in its place. Of many parts, only the first are
/// tried.
pub(super) fn restore_accepted_parts(
    original: &str,
    repaired: &str,
    budget: &Budget,
    accepts: &mut dyn FnMut(&str) -> bool,
) -> String {
    let write = match (Kind::of(original), Kind::of(repaired)) {
        (Some(Kind::Object), Some(Kind::Object)) => write_object,
        (Some(Kind::Array), Some(Kind::Array)) => write_list,
        _ => return repaired.to_owned(),
    };
    let can_try = || budget.spend(repaired.len().saturating_mul(WORK_PER_BYTE), 0).is_some();
    if !can_try() {
        return repaired.to_owned();
    }
    let originals: HashMap<_, _> = parts(original).into_iter().collect();
    let mut restored = parts(repaired);
    for index in 0..restored.len() {
        let (name, part) = restored[index].clone();
        let Some(original) = originals.get(&name).filter(|original| **original != part) else { continue };
        let mut accepts_part = |part: &str| {
            restored[index].1 = Cow::Owned(part.to_owned());
            can_try() && accepts(&write(&restored))
        };
        restored[index].1 = if accepts_part(original) {
            original.clone()
        } else {
            restore_accepted_parts(original, &part, budget, &mut accepts_part).into()
        };
    }
    write(&restored)
}

/// Returns the members of an object, or the items of a list with their positions as names.
fn parts(text: &str) -> Vec<(Cow<'_, str>, Cow<'_, str>)> {
    if let Ok(Members(members)) = serde_json::from_str(text) {
        return members.into_iter().map(|(name, value)| (name, value.get().into())).collect();
    }
    let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    items.into_iter().enumerate().map(|(index, item)| (index.to_string().into(), item.get().into())).collect()
}

fn write_list(items: &[(Cow<'_, str>, Cow<'_, str>)]) -> String {
    let items: Vec<_> = items.iter().map(|(_, item)| &**item).collect();
    format!("[{}]", items.join(","))
}
