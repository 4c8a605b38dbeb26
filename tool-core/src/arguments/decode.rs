//! Decodes the arguments of a call: a typed reading first; after a failure a repair and another reading; then an explanation of
//! everything that remains wrong.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::contract::Contract;
use super::explain::{self, explain, explain_limits, is_within_limits};
use super::repair::{Repair, repair, repair_at, repair_parts, without_omitted, write_object};
use super::report::{ArgumentErrors, Report};
use super::target::{IgnoredMember, Refused, Target, read_all};
use super::{Members, lenient, report_duplicates, tokens};
use crate::schema::{NodeId, Shape};

/// The way in which arguments are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Arguments are not repaired.
    pub(crate) forbids_repair: bool,
    /// Unknown arguments are ignored instead of refused.
    pub(crate) ignores_unknown: bool,
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
    let repaired: String;
    let (text, Members(members)) = match serde_json::from_str(text) {
        Ok(members) => (text, members),
        Err(error) => {
            let repair = (!mode.forbids_repair).then_some(lenient::repair_text);
            repaired = repair.and_then(|repair| repair(text)).unwrap_or_default();
            let Ok(members) = serde_json::from_str(&repaired) else {
                report.add("", &explain::not_an_object(text, &error));
                return Err(report.into_error());
            };
            repairs.push(Repair::for_text(text, &repaired));
            (&*repaired, members)
        }
    };
    let shape = contract.shape();
    let mut decoder =
        Decoder { shape, node: shape.root(), path: "", mode, report: &mut report, repairs: &mut repairs };
    if decoder.decode_members(target, contract.has_limits, text, members) {
        Ok(repairs)
    } else {
        Err(report.into_error())
    }
}

/// Decodes one value, and collects its mistakes and repairs.
pub(crate) struct Decoder<'d> {
    pub(crate) shape: &'d Shape,
    /// The schema of the value.
    pub(crate) node: NodeId,
    /// The name of the argument, empty for an object of all arguments.
    pub(crate) path: &'d str,
    pub(crate) mode: Mode,
    pub(crate) report: &'d mut Report,
    pub(crate) repairs: &'d mut Vec<Repair>,
}

impl Decoder<'_> {
    /// Decodes an argument that was `refused` when it was first read, or that exceeds limits, and reports its mistakes or its
    /// repair. Returns `true` if the target has the value.
    #[cold]
    pub(crate) fn decode_argument(
        mut self,
        target: &mut dyn Target,
        given: &str,
        mut refused: Option<Refused>,
    ) -> bool {
        let (shape, node) = (self.shape, self.node);
        let original = without_omitted(shape, node, given).map_or(Cow::Borrowed(given), Cow::Owned);
        let mut text = Cow::Borrowed(&*original);
        if refused.is_none() || *original != *given {
            refused = read_all(target, &text).err();
        }
        if refused.as_ref().is_some_and(Refused::is_mismatch) && !self.mode.forbids_repair {
            // Of a value that cannot be repaired, only mistakes are reported that cannot be repaired.
            let repaired = repair(shape, node, &original).or_else(|| repair_parts(shape, node, &original));
            if let Some(repaired) = repaired {
                // A string that was decoded to an object can contain duplicate members.
                if report_duplicates(self.path, &repaired, self.report) {
                    return false;
                }
                let (repaired, refused_again) = self.read_repaired(target, &original, refused, repaired);
                (text, refused) = (Cow::Owned(repaired), refused_again);
            }
        }
        let is_valid = self.report_mistakes(target, &text, refused.as_ref());
        if is_valid && matches!(text, Cow::Owned(_)) {
            self.repairs.push(Repair::for_argument(self.path, given, &text));
        }
        is_valid
    }

    /// Decodes an object of all arguments, and reports their mistakes or their repairs. Returns `true` if the target has the object.
    fn decode_members(
        &mut self,
        target: &mut dyn Target,
        has_limits: bool,
        text: &str,
        members: Vec<(Cow<'_, str>, &RawValue)>,
    ) -> bool {
        // Unknown members are included, because the text that a person reads contains them.
        report_duplicates("", text, self.report);
        let text = self.without_unknown_members(target, text, members);
        let (shape, node) = (self.shape, self.node);
        let is_within_limits = |text: &str| !has_limits || is_within_limits(shape, node, text);
        let mut refused = None;
        if self.report.is_empty() {
            refused = read_all(target, &text).err();
            if is_within_limits(&text) && self.report_ignored_members(&text, refused.as_ref()) {
                return true;
            }
        }
        let original = match without_omitted(shape, node, &text) {
            Some(original) => {
                refused = read_all(target, &original).err();
                Cow::Owned(original)
            }
            None => text,
        };
        let repaired = self.repair_members(&original, repair);
        // A string that was decoded to an object can contain duplicate members.
        if self.report.is_empty() && !report_duplicates("", &repaired, self.report) {
            let (text, refused) = self.read_repaired(target, &original, refused, repaired.clone());
            if is_within_limits(&text) && self.report_ignored_members(&text, refused.as_ref()) {
                self.record_repaired_members(&original, &text);
                return true;
            }
        }
        // Only mistakes that cannot be repaired are reported.
        let repaired = self.repair_members(&repaired, repair_parts);
        let refused = read_all(target, &repaired).err();
        let text = repaired;
        let is_valid = self.report_mistakes(target, &text, refused.as_ref());
        if is_valid && self.report.is_empty() {
            self.record_repaired_members(&original, &text);
            return true;
        }
        if self.report.is_empty() {
            self.report.add("", "they do not match the schema of the tool");
        }
        false
    }

    /// Reads a value that a type refused again: first with only the part repaired where it was refused, because a type can accept more
    /// than its schema, and then the repaired text. Returns the text that was read.
    fn read_repaired(
        &self,
        target: &mut dyn Target,
        original: &str,
        refused: Option<Refused>,
        repaired: String,
    ) -> (String, Option<Refused>) {
        if !self.mode.forbids_repair
            && let Some(Refused::ByType(error)) = refused
            && let offset = explain::error_offset(original, &error)
            && let Some(text) = repair_at(self.shape, self.node, original, offset)
        {
            let refused = read_all(target, &text).err();
            if !refused.as_ref().is_some_and(Refused::is_mismatch) {
                return (text, refused);
            }
        }
        let refused = read_all(target, &repaired).err();
        (repaired, refused)
    }

    /// Returns the object without the members that the tool does not have. These are reported, or recorded if they may be ignored.
    fn without_unknown_members<'t>(
        &mut self,
        target: &dyn Target,
        text: &'t str,
        members: Vec<(Cow<'_, str>, &RawValue)>,
    ) -> Cow<'t, str> {
        let members = members.iter().map(|(name, value)| (&**name, value.get()));
        let (unknown, known): (Vec<_>, Vec<_>) =
            members.partition(|(name, value)| self.is_unknown(target, name, value));
        for (name, value) in &unknown {
            if self.mode.ignores_unknown {
                self.repairs.push(Repair::for_ignored(name, value));
            } else if !self.report.is_full() {
                self.report.add(name, &explain::unknown_name(name, &self.shape.node(self.node).names));
            }
        }
        if unknown.is_empty() { text.into() } else { write_object(&known).into() }
    }

    fn is_unknown(&self, target: &dyn Target, name: &str, value: &str) -> bool {
        let node = self.shape.node(self.node);
        if !node.is_closed || node.properties.contains_key(name) || node.is_required(name) {
            return false;
        }
        let quoted = Value::from(name).to_string();
        !target.has_member(&format!("{{{quoted}:{value}}}"), 1..quoted.len() + 1)
    }

    /// Returns the object with each member repaired, so that one that cannot be repaired does not prevent the others. An object
    /// that several schemas describe is repaired as a whole, because each member can belong to any of them.
    fn repair_members(&self, text: &str, repair: fn(&Shape, NodeId, &str) -> Option<String>) -> String {
        let members = match serde_json::from_str(text) {
            Ok(Members(members)) if !self.mode.forbids_repair => members,
            _ => return text.to_owned(),
        };
        let node = self.shape.node(self.node);
        if !node.choices.is_empty() || !node.all.is_empty() {
            return repair(self.shape, self.node, text).unwrap_or_else(|| text.to_owned());
        }
        let repaired = members.iter().map(|(name, value)| {
            let repaired = node.member(name).and_then(|node| repair(self.shape, node, value.get()));
            (name, repaired.map_or(value.get().into(), Cow::Owned))
        });
        write_object(&repaired.collect::<Vec<_>>())
    }

    /// Records the repairs of the members that differ.
    fn record_repaired_members(&mut self, original: &str, repaired: &str) {
        let (Ok(Members(original)), Ok(Members(repaired))) =
            (serde_json::from_str(original), serde_json::from_str(repaired))
        else {
            return;
        };
        let repaired: HashMap<_, _> = repaired.iter().map(|(name, value)| (name, value.get())).collect();
        for (name, from) in &original {
            if let Some(to) = repaired.get(name).filter(|to| **to != from.get()) {
                self.repairs.push(Repair::for_argument(name, from.get(), to));
            }
        }
    }

    /// Reports why a value was refused, or that it exceeds limits or has unknown members. Returns `true` if it is valid.
    fn report_mistakes(&mut self, target: &dyn Target, text: &str, refused: Option<&Refused>) -> bool {
        let (shape, node, path) = (self.shape, self.node, self.path);
        let mut mistakes = match refused {
            None | Some(Refused::IgnoresMembers(_)) => explain_limits(shape, node, path, text),
            Some(Refused::ByType(error)) => explain(shape, node, path, text, target, Some(error)),
            Some(Refused::BySchema) => explain(shape, node, path, text, target, None),
        };
        // A type can also refuse unknown members by itself. Then nothing else explains its error.
        let is_only_unknown =
            matches!(refused, Some(Refused::ByType(_))) && mistakes.iter().all(|mistake| mistake.is_unknown);
        if self.mode.ignores_unknown && !is_only_unknown {
            mistakes.retain(|mistake| !mistake.is_unknown);
        }
        if let Some(Refused::IgnoresMembers(ignored)) = refused {
            // What the type ignores has no limits.
            mistakes.retain(|mistake| ignored.iter().all(|ignored| !mistake.is_within(&ignored.value)));
        }
        let is_valid = mistakes.is_empty();
        self.report.add_all(mistakes);
        self.report_ignored_members(text, refused) && is_valid
    }

    /// Reports the members that the type ignores, or records them if they may be ignored. Returns `true` if the value was read and
    /// no member was reported.
    fn report_ignored_members(&mut self, text: &str, refused: Option<&Refused>) -> bool {
        let ignored = match refused {
            None => return true,
            Some(Refused::IgnoresMembers(ignored)) => ignored,
            Some(Refused::ByType(_) | Refused::BySchema) => return false,
        };
        let mut is_valid = true;
        for IgnoredMember { value, known } in ignored {
            let (part, value) = tokens::value_at(text, value.end);
            let path = explain::join(self.path, &part);
            let Some((enclosing, name)) = path.rsplit_once('.') else { continue };
            if known.contains(&name) {
                // A type can have a member and ignore its value.
            } else if self.mode.ignores_unknown {
                self.repairs.push(Repair::for_ignored(&path, value));
            } else {
                is_valid = false;
                self.report.add(&path, &explain::unknown_member(enclosing, name, known));
            }
        }
        is_valid
    }
}
