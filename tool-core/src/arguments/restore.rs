//! The parts of a repaired value that needed no repair: a type can accept more than its schema, by which values are repaired.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

use super::budget::Budget;
use super::target::{Refused, Target, read_all};
use super::{Members, write_object};
use crate::schema::Kind;

/// The work of one trial per byte, because a type that reads a text also allocates.
const WORK_PER_BYTE: usize = 16;

/// The maximum length of a text whose parts are tried, because each part takes many times its memory.
const MAX_BYTES: usize = 1 << 16;

/// Reads a repaired text. Returns the text that was read, where the parts that the type accepts are those of the original.
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
    let mut budget = Budget::for_text(&repaired);
    let restored = restore_accepted_parts(original, &repaired, &mut |text| {
        budget.spend(text.len().saturating_mul(WORK_PER_BYTE), 0)?;
        Some(!read_all(target, text).is_err_and(|refused| refused.is_mismatch()))
    });
    let refused = read_all(target, &restored).err();
    (restored, refused)
}

/// Returns the repaired value with each part of the original that is accepted in its place, until `accepts` returns `None`.
fn restore_accepted_parts(
    original: &str,
    repaired: &str,
    accepts: &mut dyn FnMut(&str) -> Option<bool>,
) -> String {
    let write = match (Kind::of(original), Kind::of(repaired)) {
        (Some(Kind::Object), Some(Kind::Object)) => write_object,
        (Some(Kind::Array), Some(Kind::Array)) => write_list,
        _ => return repaired.to_owned(),
    };
    let originals: HashMap<_, _> = parts(original).into_iter().collect();
    let mut restored = parts(repaired);
    for index in 0..restored.len() {
        let (name, part) = restored[index].clone();
        let Some(original) = originals.get(&name).filter(|original| **original != part) else { continue };
        let mut accepts_part = |part: &str| {
            restored[index].1 = Cow::Owned(part.to_owned());
            accepts(&write(&restored))
        };
        let accepted = accepts_part(original);
        restored[index].1 = match accepted {
            Some(true) => original.clone(),
            Some(false) => restore_accepted_parts(original, &part, &mut accepts_part).into(),
            None => part,
        };
        if accepted.is_none() {
            break;
        }
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
