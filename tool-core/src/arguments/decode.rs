//! Decodes the arguments of a call: a typed reading first; after a failure a repair and another reading; then an explanation of
//! everything that remains wrong.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;
use serde_json::value::RawValue;

use super::budget::Budget;
use super::contract::Contract;
use super::explain::{self, Judge, explain, explain_limits, is_within_limits};
use super::repair::{Repair, repair, repair_parts, without_omitted, write_object};
use super::report::{ArgumentErrors, Report};
use super::restore::restore_accepted_parts;
use super::watched::{Ignored, Scope, Watched};
use super::{Members, lenient, report_duplicates, tokens};
use crate::schema::{NodeId, Shape};

/// The way in which arguments are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Arguments are not repaired.
    pub(crate) is_strict: bool,
    /// Unknown arguments are ignored instead of refused.
    pub(crate) ignores_unknown: bool,
}

/// The destination of a value that is read. It hides the type, so that everything else exists once.
pub(crate) trait Target {
    /// Reads the value at the beginning of the text and keeps it. Returns the offset where it ends.
    fn read(&mut self, text: &str) -> Result<usize, Refused>;

    /// Returns `true` if the type has the member whose quoted name is at this position in the text.
    fn has_member(&self, text: &str, name: Range<usize>) -> bool;

    /// Returns the error of the type for another text, if a type decides.
    fn error(&self, _text: &str) -> Option<serde_json::Error> {
        None
    }

    /// Returns the judge, if the schema decides and not a type.
    fn judge(&self) -> Option<&dyn Judge> {
        None
    }
}

/// A member that the type of a struct ignores.
#[derive(Debug)]
pub(crate) struct IgnoredMember {
    /// The position of its value in the text.
    value: Range<usize>,
    /// The names of the members that the struct has.
    known: &'static [&'static str],
}

/// The refusal of a value.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The type cannot be deserialized from it.
    Type(serde_json::Error),
    /// The judge refused it.
    #[cfg_attr(not(feature = "dynamic"), expect(dead_code, reason = "only dynamic tools have a judge"))]
    Judge,
    /// The type read it, but ignored members of structs. They may be ignored in some modes.
    // Boxed because a `Refused` is returned for each argument.
    Unknown(Box<IgnoredMembers>),
}

impl Refused {
    /// Returns `true` unless the value was read.
    fn is_mismatch(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }
}

#[derive(Debug)]
pub(crate) struct IgnoredMembers(Vec<IgnoredMember>);

/// A value of a type.
#[derive(Debug)]
pub(crate) struct Typed<T>(pub(crate) Option<T>);

impl<T: DeserializeOwned> Target for Typed<T> {
    fn read(&mut self, text: &str) -> Result<usize, Refused> {
        let ignored = RefCell::default();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = T::deserialize(Watched::new(&mut deserializer, &Scope::new(&ignored)));
        self.0 = Some(value.map_err(Refused::Type)?);
        match ignored.into_inner() {
            ignored if ignored.is_empty() => Ok(deserializer.into_iter::<IgnoredAny>().byte_offset()),
            ignored => Err(Refused::Unknown(Box::new(IgnoredMembers(positions(text, ignored))))),
        }
    }

    #[cold]
    fn has_member(&self, text: &str, name: Range<usize>) -> bool {
        let (ignored, error) = Self::try_read(text);
        has_read_member(text, name, &positions(text, ignored), error.as_ref())
    }

    #[cold]
    fn error(&self, text: &str) -> Option<serde_json::Error> {
        Self::try_read(text).1
    }
}

impl<T: DeserializeOwned> Typed<T> {
    /// Returns the members that the type ignores, and its error.
    fn try_read(text: &str) -> (Vec<Ignored<'_>>, Option<serde_json::Error>) {
        let ignored = RefCell::default();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let error = T::deserialize(Watched::new(&mut deserializer, &Scope::new(&ignored))).err();
        (ignored.into_inner(), error)
    }
}

#[cold]
fn positions(text: &str, ignored: Vec<Ignored<'_>>) -> Vec<IgnoredMember> {
    let position = |Ignored { value, known }| {
        let start = explain::offset_in(text, value);
        IgnoredMember { value: start..start + value.len(), known }
    };
    ignored.into_iter().map(position).collect()
}

/// Returns `true` if a type has read the member of this name, according to what it ignored and its error.
fn has_read_member(
    text: &str,
    name: Range<usize>,
    ignored: &[IgnoredMember],
    error: Option<&serde_json::Error>,
) -> bool {
    let is_ignored = ignored.iter().any(|ignored| ignored.value.start >= name.end);
    // Earlier errors decide nothing. Later ones are those of the member's value, or of other members, which the text lacks.
    let is_refused = error
        .filter(|error| error.line() > 0)
        .is_some_and(|error| (name.start..=name.end).contains(&explain::error_offset(text, error)));
    !is_ignored && !is_refused
}

/// Reads a whole text.
fn read_all(target: &mut dyn Target, text: &str) -> Result<(), Refused> {
    let end = target.read(text)?;
    // The type can have consumed only a part of the text.
    let rest = text.get(end..).unwrap_or_default();
    serde_json::Deserializer::from_str(rest).end().map_err(Refused::Type)
}

/// Reads a repaired text. Returns it without the repairs of what the type accepts in the original.
fn read_repaired(target: &mut dyn Target, original: &str, repaired: String) -> (String, Option<Refused>) {
    let refused = read_all(target, &repaired).err();
    if target.judge().is_some() || refused.as_ref().is_some_and(Refused::is_mismatch) {
        return (repaired, refused);
    }
    let budget = Budget::for_text(&repaired);
    let mut accepts = |text: &str| !read_all(target, text).is_err_and(|refused| refused.is_mismatch());
    let restored = restore_accepted_parts(original, &repaired, &budget, &mut accepts);
    let refused = read_all(target, &restored).err();
    (restored, refused)
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
    if refused.as_ref().is_some_and(Refused::is_mismatch) && !mode.is_strict {
        // Of a value that cannot be repaired, only mistakes are reported that cannot be repaired.
        let repaired = repair(shape, node, &text).or_else(|| repair_parts(shape, node, &text));
        if let Some(repaired) = repaired {
            // A string that was decoded to an object can contain duplicate members.
            if report_duplicates(name, &repaired, report) {
                return false;
            }
            let read = read_repaired(target, &text, repaired);
            (text, refused) = (Cow::Owned(read.0), read.1);
        }
    }
    let is_valid =
        report_refused(target, (shape, node), (name, &text), refused.as_ref(), mode, (report, repairs));
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
        let known: Vec<_> = known.iter().map(|(name, value)| (name, value.get())).collect();
        text = write_object(&known).into();
    }
    let is_within_limits = |text: &str| !contract.has_limits || is_within_limits(shape, root, text);
    if report.is_empty() {
        let refused = read_all(target, &text).err();
        if is_within_limits(&text)
            && accepts(refused.as_ref(), ("", &text), mode, (&mut report, &mut repairs))
        {
            return Ok(repairs);
        }
    }
    let original = without_omitted(shape, root, &text).map_or(text, Cow::Owned);
    let repaired = repair_members(shape, &original, mode, repair);
    // A string that was decoded to an object can contain duplicate members.
    if report.is_empty() && !report_duplicates("", &repaired, &mut report) {
        let (text, refused) = read_repaired(target, &original, repaired.clone());
        if is_within_limits(&text)
            && accepts(refused.as_ref(), ("", &text), mode, (&mut report, &mut repairs))
        {
            repairs.extend(repaired_members(&original, &text));
            return Ok(repairs);
        }
    }
    // Only mistakes that cannot be repaired are reported.
    let repaired = repair_members(shape, &repaired, mode, repair_parts);
    let (text, refused) = read_repaired(target, &original, repaired);
    let to = (&mut report, &mut repairs);
    let is_valid = report_refused(target, (shape, root), ("", &text), refused.as_ref(), mode, to);
    if is_valid && report.is_empty() {
        repairs.extend(repaired_members(&original, &text));
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
    !target.has_member(&format!("{{{quoted}:{value}}}"), 1..quoted.len() + 1)
}

/// Returns the object with each member repaired.
fn repair_members(
    shape: &Shape,
    text: &str,
    mode: Mode,
    repair: fn(&Shape, NodeId, &str) -> Option<String>,
) -> String {
    let members = match serde_json::from_str(text) {
        Ok(Members(members)) if !mode.is_strict => members,
        _ => return text.to_owned(),
    };
    let repaired = members.iter().map(|(name, value)| {
        let node = shape.node(shape.root()).member(name);
        let repaired = node.and_then(|node| repair(shape, node, value.get()));
        (name, repaired.map_or(value.get().into(), Cow::Owned))
    });
    write_object(&repaired.collect::<Vec<_>>())
}

/// Returns the repairs of the members that differ.
fn repaired_members(original: &str, repaired: &str) -> Vec<Repair> {
    let (Ok(Members(original)), Ok(Members(repaired))) =
        (serde_json::from_str(original), serde_json::from_str(repaired))
    else {
        return Vec::new();
    };
    let pairs = original.iter().zip(&repaired).filter(|((_, from), (_, to))| from.get() != to.get());
    pairs.map(|((name, from), (_, to))| Repair::for_argument(name, from.get(), to.get())).collect()
}

/// Reports why a value was refused, or that it exceeds limits or has unknown members. Returns `true` if it is valid.
fn report_refused(
    target: &dyn Target,
    (shape, node): (&Shape, NodeId),
    (path, text): (&str, &str),
    refused: Option<&Refused>,
    mode: Mode,
    (report, repairs): (&mut Report, &mut Vec<Repair>),
) -> bool {
    let mut mistakes = match refused {
        None | Some(Refused::Unknown(_)) => explain_limits(shape, node, path, text),
        Some(Refused::Type(error)) => explain(shape, node, path, text, target, Some(error)),
        Some(Refused::Judge) => explain(shape, node, path, text, target, None),
    };
    // A type can also refuse unknown members by itself. Then nothing else explains its error.
    let is_type = matches!(refused, Some(Refused::Type(_)));
    if mode.ignores_unknown && !(is_type && mistakes.iter().all(|mistake| mistake.is_unknown)) {
        mistakes.retain(|mistake| !mistake.is_unknown);
    }
    if let Some(Refused::Unknown(ignored)) = refused {
        // What the type ignores has no limits.
        mistakes.retain(|mistake| ignored.0.iter().all(|ignored| !mistake.is_within(&ignored.value)));
    }
    let is_valid = mistakes.is_empty();
    report.add_all(mistakes);
    accepts(refused, (path, text), mode, (report, repairs)) && is_valid
}

/// Returns `true` if the value was read and has no unknown members. These are reported, or recorded if they may be ignored.
fn accepts(
    refused: Option<&Refused>,
    (path, text): (&str, &str),
    mode: Mode,
    (report, repairs): (&mut Report, &mut Vec<Repair>),
) -> bool {
    let ignored = match refused {
        None => return true,
        Some(Refused::Unknown(ignored)) => ignored,
        Some(Refused::Type(_) | Refused::Judge) => return false,
    };
    let mut is_valid = true;
    for IgnoredMember { value, known } in &ignored.0 {
        let (part, value) = tokens::value_at(text, value.end);
        let path = explain::join(path, &part);
        let Some((enclosing, name)) = path.rsplit_once('.') else { continue };
        match mode.ignores_unknown {
            // A type can have a member and ignore its value.
            _ if known.contains(&name) => {}
            true => repairs.push(Repair::for_ignored(&path, value)),
            false => {
                is_valid = false;
                report.add(&path, &explain::unknown_member(enclosing, name, known));
            }
        }
    }
    is_valid
}
