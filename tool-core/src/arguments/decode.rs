//! Decodes the arguments of a call: a typed reading first; after a failure a repair and another reading; then an explanation of
//! everything that remains wrong.

use std::borrow::Cow;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::value::RawValue;

use super::contract::Contract;
use super::explain::{self, Judge, explain, explain_limits, is_within_limits};
use super::repair::{Repair, repair, repair_parts, without_omitted, write_object};
use super::report::{ArgumentErrors, Report};
use super::{Members, duplicate_members, lenient};
use crate::schema::{NodeId, Shape};

/// The way in which arguments are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Arguments are not repaired.
    pub(crate) is_strict: bool,
    /// Unknown arguments are ignored instead of refused.
    pub(crate) ignores_unknown: bool,
}

/// Where a value goes once it is read. It hides the type, so that everything else exists once.
pub(crate) trait Target {
    /// Reads the value at the beginning of the text and keeps it. Returns the offset where it ends.
    fn read(&mut self, text: &str) -> Result<usize, Refused>;

    /// Returns `true` if the type has a member of this name, which ends at `name_end` in the text.
    fn has_member(&self, text: &str, name: &str, name_end: usize) -> bool;

    /// Returns the judge, if the schema decides and not a type.
    fn judge(&self) -> Option<&dyn Judge> {
        None
    }
}

/// Why a value was refused.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The type cannot be deserialized from it.
    Type(serde_json::Error),
    /// The judge refused it.
    #[cfg_attr(not(feature = "dynamic"), expect(dead_code, reason = "only dynamic tools have a judge"))]
    Judge,
}

/// A value of a type.
#[derive(Debug)]
pub(crate) struct Typed<T>(pub(crate) Option<T>);

impl<T: DeserializeOwned> Target for Typed<T> {
    fn read(&mut self, text: &str) -> Result<usize, Refused> {
        let mut deserializer = serde_json::Deserializer::from_str(text);
        self.0 = Some(T::deserialize(&mut deserializer).map_err(Refused::Type)?);
        Ok(deserializer.into_iter::<IgnoredAny>().byte_offset())
    }

    #[cold]
    fn has_member(&self, text: &str, name: &str, name_end: usize) -> bool {
        let mut is_ignored = false;
        let mut callback = |path: serde_ignored::Path<'_>| {
            is_ignored |= matches!(path, serde_ignored::Path::Map { key, .. } if key == name);
        };
        let mut callback: &mut dyn FnMut(serde_ignored::Path<'_>) = &mut callback;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let read = T::deserialize(serde_ignored::Deserializer::new(&mut deserializer, &mut callback));
        // Later errors are those of the member's value, or of other members, which the text lacks.
        !is_ignored && read.err().is_none_or(|error| explain::error_offset(text, &error) > name_end)
    }
}

/// Reads a whole text.
fn read_all(target: &mut dyn Target, text: &str) -> Result<(), Refused> {
    let end = target.read(text)?;
    // The type can have consumed only a part of the text.
    let rest = text.get(end..).unwrap_or_default();
    serde_json::Deserializer::from_str(rest).end().map_err(Refused::Type)
}

/// Decodes one value that was `refused` when it was first read, or that exceeds limits, and reports its mistakes or its repair.
/// Returns `true` if the target has the value.
#[cold]
pub(crate) fn decode_value(
    target: &mut dyn Target,
    (shape, node): (&Shape, NodeId),
    name: &str,
    (original, mut refused): (&str, Option<Refused>),
    mode: Mode,
    (report, repairs): (&mut Report, &mut Vec<Repair>),
) -> bool {
    let present = without_omitted(shape, node, original).map_or(Cow::Borrowed(original), Cow::Owned);
    let mut text = Cow::Borrowed(&*present);
    if refused.is_none() || *present != *original {
        refused = read_all(target, &text).err();
    }
    if refused.is_some() && !mode.is_strict {
        // Of a value that cannot be repaired, only mistakes are reported that cannot be repaired.
        let repaired = repair(shape, node, &text).or_else(|| repair_parts(shape, node, &text));
        if let Some(repaired) = repaired {
            text = Cow::Owned(repaired);
            // A string that turned out to be an object can contain them.
            if report_duplicates(name, &text, report) {
                return false;
            }
            refused = read_all(target, &text).err();
        }
    }
    let is_valid = report_refused(target, (shape, node), name, &text, refused.as_ref(), report);
    if is_valid && matches!(text, Cow::Owned(_)) {
        repairs.push(Repair::for_argument(name, original, &text));
    }
    is_valid
}

/// Decodes an object of all arguments. Returns the repairs.
///
/// # Errors
///
/// Returns all mistakes.
pub(crate) fn decode_object(
    target: &mut dyn Target,
    contract: &Contract,
    text: &str,
    mode: Mode,
) -> Result<Vec<Repair>, ArgumentErrors> {
    // Models send these when there are no arguments.
    let text = if matches!(text.trim_ascii(), "" | "null") { "{}" } else { text };
    let (mut report, mut repairs) = (Report::default(), Vec::new());
    let error = match serde_json::from_str(text) {
        Ok(Members(members)) => {
            return decode_members(target, contract, text, members, mode, (report, repairs));
        }
        Err(error) => error,
    };
    let repaired = (!mode.is_strict).then(|| lenient::repair_text(text)).flatten();
    if let Some(repaired) = &repaired
        && let Ok(Members(members)) = serde_json::from_str(repaired)
    {
        repairs.push(Repair::for_text(text, repaired));
        return decode_members(target, contract, repaired, members, mode, (report, repairs));
    }
    report.add("", &explain::not_an_object(text, &error));
    Err(report.into_error())
}

fn decode_members(
    target: &mut dyn Target,
    contract: &Contract,
    text: &str,
    members: Vec<(Cow<'_, str>, &RawValue)>,
    mode: Mode,
    (mut report, mut repairs): (Report, Vec<Repair>),
) -> Result<Vec<Repair>, ArgumentErrors> {
    let shape = contract.shape();
    let root = shape.root();
    // Unknown members are included, because the text that a person reads contains them.
    report_duplicates("", text, &mut report);
    let (unknown, known): (Vec<_>, Vec<_>) =
        members.iter().partition(|(name, value)| is_unknown(target, shape, name, value.get()));
    let mut text = Cow::Borrowed(text);
    for (name, value) in &unknown {
        if mode.ignores_unknown {
            repairs.push(Repair::for_ignored(name, value.get()));
        } else if !report.is_full() {
            report.add(name, &explain::unknown_name(name, &shape.node(root).names));
        }
    }
    if !unknown.is_empty() {
        let known: Vec<_> = known.iter().map(|(name, value)| (&**name, value.get().into())).collect();
        text = write_object(&known).into();
    }
    let is_within_limits = |text: &str| !contract.has_limits || is_within_limits(shape, root, text);
    if report.is_empty() && read_all(target, &text).is_ok() && is_within_limits(&text) {
        return Ok(repairs);
    }
    let present = without_omitted(shape, root, &text);
    let text = present.as_deref().unwrap_or(&text);
    let (fitting, more) = repair_members(shape, text, mode, repair);
    // A string that turned out to be an object can contain them.
    if report.is_empty() && !report_duplicates("", &fitting, &mut report) {
        let refused = read_all(target, &fitting).err();
        if refused.is_none() && is_within_limits(&fitting) {
            repairs.extend(more);
            return Ok(repairs);
        }
    }
    // Only mistakes that cannot be repaired are reported.
    let (text, parts) = repair_members(shape, &fitting, mode, repair_parts);
    let refused = read_all(target, &text).err();
    let is_valid = report_refused(target, (shape, root), "", &text, refused.as_ref(), &mut report);
    if is_valid && report.is_empty() {
        repairs.extend(more.into_iter().chain(parts));
        return Ok(repairs);
    }
    if report.is_empty() {
        report.add("", "they do not match the schema of the tool");
    }
    Err(report.into_error())
}

/// Returns `true` if an object of all arguments has no member of this name.
fn is_unknown(target: &dyn Target, shape: &Shape, name: &str, value: &str) -> bool {
    let root = shape.node(shape.root());
    if !root.is_closed || root.properties.contains_key(name) {
        return false;
    }
    let quoted = Value::from(name).to_string();
    !target.has_member(&format!("{{{quoted}:{value}}}"), name, quoted.len() + 1)
}

/// Returns the object with each member repaired, and the repairs.
fn repair_members(
    shape: &Shape,
    text: &str,
    mode: Mode,
    repair: fn(&Shape, NodeId, &str) -> Option<String>,
) -> (String, Vec<Repair>) {
    let (mut repairs, mut written) = (Vec::new(), Vec::new());
    let members = match serde_json::from_str(text) {
        Ok(Members(members)) if !mode.is_strict => members,
        _ => return (text.to_owned(), repairs),
    };
    for (name, value) in &members {
        let node = shape.node(shape.root()).member(name);
        let repaired = node.and_then(|node| repair(shape, node, value.get()));
        if let Some(repaired) = &repaired {
            repairs.push(Repair::for_argument(name, value.get(), repaired));
        }
        written.push((&**name, repaired.map_or(Cow::Borrowed(value.get()), Cow::Owned)));
    }
    match repairs.is_empty() {
        true => (text.to_owned(), repairs),
        false => (write_object(&written), repairs),
    }
}

/// Reports why a value was refused, or that it exceeds limits. Returns `true` if it is valid.
fn report_refused(
    target: &dyn Target,
    (shape, node): (&Shape, NodeId),
    path: &str,
    text: &str,
    refused: Option<&Refused>,
    report: &mut Report,
) -> bool {
    let mistakes = match refused {
        None => explain_limits(shape, node, path, text),
        Some(Refused::Type(error)) => explain(shape, node, path, text, target, Some(error)),
        Some(Refused::Judge) => explain(shape, node, path, text, target, None),
    };
    let is_valid = refused.is_none() && mistakes.is_empty();
    report.add_all(mistakes);
    is_valid
}

/// Reports the members that an object in the text contains twice. Returns `true` if there are any.
pub(crate) fn report_duplicates(path: &str, text: &str, report: &mut Report) -> bool {
    let duplicates = duplicate_members(text);
    for duplicate in &duplicates {
        let path = explain::join(path, duplicate);
        report.add(&path, &explain::duplicate_member(&path));
    }
    !duplicates.is_empty()
}
