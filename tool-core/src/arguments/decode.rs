//! Decodes the arguments of a call, for all kinds of tools: each value is read by its type; if the type refuses it, it is repaired
//! and read again; if it is still refused, everything that is wrong with it is explained.
//!
//! - Arguments are parsed from the text without a `Value` in between, because numbers must keep every digit.
//! - Nothing is called while one argument is wrong, because the model should fix all mistakes in one turn.
//! - An object with a duplicate member is refused at any depth, before anything is repaired, because the parser and a person who approves
//!   the text can take different ones. Nothing else is then read, because the other mistakes depend on which one is meant.

use std::borrow::Cow;
use std::collections::HashMap;

use super::contract::Contract;
use super::describe::describe;
use super::explain::{explain, explain_limits};
use super::lenient::repair_text;
use super::members::{Members, join, write_object};
use super::repair::{Repair, repair, repair_part, without_omitted};
use super::report::{ArgumentErrors, Report};
use super::target::{IgnoredMember, Refused, Target};
use super::tokens::{MAX_FEW, duplicate_members, path_at};
use super::wording::{duplicate_member, missing_value, not_an_object, unknown_member};
use crate::schema::NodeId;

/// The maximum number of members that a type ignores whose paths are looked up, each in the text.
const MAX_IGNORED: usize = 64;

/// The way in which arguments are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Arguments are not repaired.
    pub(crate) forbids_repair: bool,
    /// Unknown arguments are ignored instead of refused.
    pub(crate) ignores_unknown: bool,
}

/// Decodes the text of all arguments of a call. `read` takes the values from the decoder. Returns the repairs.
///
/// # Errors
///
/// Returns all mistakes. What `read` took is then not to be used.
pub(crate) fn decode(
    text: &str,
    contract: &Contract,
    mode: Mode,
    read: &mut dyn FnMut(&mut Decoder<'_>),
) -> Result<Vec<Repair>, ArgumentErrors> {
    let given = text;
    let repaired;
    let text = or_empty(given);
    let (text, members) = match serde_json::from_str(text) {
        Ok(Members(members)) => (text, members),
        Err(_) => {
            repaired = object_text(given, mode)?;
            (&*repaired, Members::of(&repaired).0)
        }
    };
    let mut decoder = Decoder {
        contract,
        mode,
        text: text.into(),
        members,
        report: Report::default(),
        repairs: Vec::new(),
    };
    if !std::ptr::eq(text, or_empty(given)) {
        decoder.repairs.push(Repair::for_text(given, text));
    }
    // A flat object with a few different names has no duplicates, and most objects are of this kind.
    let is_flat = text.matches('{').nth(1).is_none();
    if !(is_flat && are_few_different(&decoder.members)) && decoder.has_duplicates("", text) {
        return Err(decoder.report.into_error());
    }
    decoder.remove_unknown();
    decoder.report_missing();
    read(&mut decoder);
    if decoder.report.is_empty() { Ok(decoder.repairs) } else { Err(decoder.report.into_error()) }
}

/// Returns the text of an object of arguments, repaired if it is not one.
///
/// # Errors
///
/// Returns the mistake if it cannot be repaired.
pub(crate) fn object_text(text: &str, mode: Mode) -> Result<Cow<'_, str>, ArgumentErrors> {
    let text = or_empty(text);
    let Err(error) = serde_json::from_str::<Members<'_>>(text) else { return Ok(text.into()) };
    let repaired = if mode.forbids_repair { None } else { repair_text(text) };
    repaired.map(Cow::Owned).ok_or_else(|| {
        let mut report = Report::default();
        report.add("", &not_an_object(text, &error));
        report.into_error()
    })
}

/// Returns `true` if the names of an object are so few that they are compared one by one, and all of them differ.
fn are_few_different(members: &[(Cow<'_, str>, &str)]) -> bool {
    let is_new = |index: usize| members[..index].iter().all(|(name, _)| *name != members[index].0);
    members.len() <= MAX_FEW && (0..members.len()).all(is_new)
}

/// Some models send an empty text or `null` if there are no arguments.
fn or_empty(text: &str) -> &str {
    if matches!(text.trim_ascii(), "" | "null") { "{}" } else { text }
}

/// Decodes values, and collects their mistakes and repairs.
#[derive(Debug)]
pub(crate) struct Decoder<'a> {
    contract: &'a Contract,
    mode: Mode,
    /// The object of all arguments.
    text: Cow<'a, str>,
    members: Vec<(Cow<'a, str>, &'a str)>,
    report: Report,
    repairs: Vec<Repair>,
}

/// A value as it was read last.
struct Reading<'t> {
    text: Cow<'t, str>,
    result: Result<Vec<IgnoredMember>, Refused>,
}

impl<'a> Decoder<'a> {
    fn argument(&self, name: &str) -> Option<&'a str> {
        self.members.iter().find(|(other, _)| other == name).map(|(_, text)| *text)
    }

    /// Returns `true` if the argument at an index of the parameters is present and not `null`.
    pub(crate) fn is_present(&self, index: usize) -> bool {
        let parameter = self.contract.parameters().get(index);
        parameter.and_then(|parameter| self.argument(parameter.name)).is_some_and(|text| text != "null")
    }

    /// Returns `true` if there are no mistakes.
    pub(crate) fn is_valid(&self) -> bool {
        self.report.is_empty()
    }

    /// Reads the argument at an index of the parameters. Returns `true` if the target has a valid value.
    pub(crate) fn read_argument(&mut self, index: usize, target: &mut dyn Target) -> bool {
        let Some(parameter) = self.contract.parameters().get(index) else { return false };
        let text = self.argument(parameter.name);
        // An optional argument that is omitted is deserialized from `null`. A missing one was reported.
        let Some(text) = text.or((!parameter.is_required).then_some("null")) else { return false };
        let result = target.read(text);
        if matches!(&result, Ok(ignored) if ignored.is_empty()) && !self.contract.has_limits {
            return true;
        }
        let node = self.contract.shape().property(parameter.name);
        self.decide(target, node, parameter.name, text, result)
    }

    /// Reads all arguments as one value. Returns `true` if the target has a valid value.
    pub(crate) fn read_object(&mut self, target: &mut dyn Target) -> bool {
        let text = match self.contract.takes_null {
            true => Cow::Borrowed("null"),
            false => self.text.clone(),
        };
        let result = target.read(&text);
        if matches!(&result, Ok(ignored) if ignored.is_empty()) && !self.contract.has_limits {
            return true;
        }
        let node = self.contract.shape().root();
        self.decide(target, node, "", &text, result)
    }

    /// Decides about a value that was read or refused: repairs it, reports its mistakes or records its repair.
    #[cold]
    fn decide(
        &mut self,
        target: &mut dyn Target,
        node: NodeId,
        path: &str,
        given: &str,
        result: Result<Vec<IgnoredMember>, Refused>,
    ) -> bool {
        let shape = self.contract.shape();
        let reading = match result {
            Ok(_) => Reading { text: given.into(), result },
            Err(refused) => match self.read_repaired(target, node, path, given, refused) {
                Some(reading) => reading,
                None => return false,
            },
        };
        let found_before = self.report.count();
        match &reading.result {
            Ok(ignored) => {
                for mistake in explain_limits(shape, node, path, &reading.text, ignored) {
                    self.report.add(&mistake.path, &mistake.text);
                }
                self.report_ignored(path, &reading.text, ignored);
            }
            Err(refused) => {
                let mut mistakes = explain(shape, node, path, &reading.text, refused, target.validator());
                mistakes.retain(|mistake| !self.mode.ignores_unknown || !mistake.is_ignored_member());
                for mistake in mistakes {
                    self.report.add(&mistake.path, &mistake.text);
                }
                if self.report.is_empty() {
                    self.report.add("", "they do not match the schema of the tool");
                }
            }
        }
        let is_valid = self.report.count() == found_before;
        if is_valid {
            self.record_repairs(node, path, given, &reading.text);
        }
        is_valid
    }

    /// Reads a value that a type refused again, twice at most: with only the part repaired where it was refused, because a type can
    /// accept more than its schema, and with everything repaired. Returns the last reading, or `None` if a mistake was reported.
    fn read_repaired<'t>(
        &mut self,
        target: &mut dyn Target,
        node: NodeId,
        path: &str,
        given: &'t str,
        refused: Refused,
    ) -> Option<Reading<'t>> {
        let shape = self.contract.shape();
        let text = |repaired: Option<String>| repaired.map_or(Cow::Borrowed(given), Cow::Owned);
        let without_omitted = |text: Cow<'t, str>| match without_omitted(shape, node, &text) {
            Some(text) => Cow::Owned(text),
            None => text,
        };
        let all = match self.mode.forbids_repair {
            true => without_omitted(given.into()),
            false => text(repair(shape, node, given)),
        };
        // A string that was decoded to an object can contain duplicate members.
        if matches!(all, Cow::Owned(_)) && self.has_duplicates(path, &all) {
            return None;
        }
        if let Refused::ByType(error) = &refused
            && !self.mode.forbids_repair
        {
            let part = repair_part(shape, node, given, error.place(given).text);
            let text = without_omitted(text(part));
            if matches!(text, Cow::Owned(_)) {
                let result = target.read(&text);
                if result.is_ok() {
                    return Some(Reading { text, result });
                }
            }
        }
        let is_unchanged = matches!(all, Cow::Borrowed(_)) && matches!(refused, Refused::ByType(_));
        let result = if is_unchanged { Err(refused) } else { target.read(&all) };
        Some(Reading { text: all, result })
    }

    /// Reports the members that a type ignores, or records them if they may be ignored.
    fn report_ignored(&mut self, path: &str, text: &str, ignored: &[IgnoredMember]) {
        for IgnoredMember { value, known } in ignored.iter().take(MAX_IGNORED) {
            let member = join(path, &path_at(text, value.start));
            let (object, name) = member.rsplit_once('.').unwrap_or(("", &member));
            if known.contains(&name) {
                // A type can have a member and ignore its value.
            } else if self.mode.ignores_unknown {
                self.repairs.push(Repair::for_ignored(&member, &text[value.clone()]));
            } else {
                self.report.add(&member, &unknown_member(object, name, known));
            }
        }
    }

    /// Records the difference between the given and the last text of an argument, or of each of all arguments.
    fn record_repairs(&mut self, node: NodeId, path: &str, given: &str, read: &str) {
        if given == read {
            return;
        }
        // A `null` that stands for an omitted member is not repaired.
        let shape = self.contract.shape();
        let original = without_omitted(shape, node, given).map_or(Cow::Borrowed(given), Cow::Owned);
        if !path.is_empty() {
            if *original != *read {
                self.repairs.push(Repair::for_argument(path, given, read));
            }
            return;
        }
        let repaired: HashMap<_, _> = Members::of(read).0.into_iter().collect();
        for (name, original) in Members::of(&original).0 {
            if let Some(repaired) = repaired.get(&name).filter(|repaired| **repaired != original) {
                self.repairs.push(Repair::for_argument(&name, original, repaired));
            }
        }
    }

    /// Reports the members that an object in the text contains twice. Returns `true` if there are any.
    fn has_duplicates(&mut self, path: &str, text: &str) -> bool {
        let duplicates = duplicate_members(text);
        for duplicate in &duplicates {
            let path = join(path, duplicate);
            self.report.add(&path, &duplicate_member(&path));
        }
        !duplicates.is_empty()
    }

    /// Removes the arguments that the tool does not have, and reports them, or records them if they may be ignored.
    fn remove_unknown(&mut self) {
        let contract = self.contract;
        if !self.members.iter().any(|(name, _)| contract.is_unknown(name)) {
            return;
        }
        let members = std::mem::take(&mut self.members).into_iter();
        let (unknown, known): (Vec<_>, Vec<_>) = members.partition(|(name, _)| contract.is_unknown(name));
        for (name, value) in unknown {
            if self.mode.ignores_unknown {
                self.repairs.push(Repair::for_ignored(&name, value));
            } else if !self.report.is_full() {
                self.report.add(&name, &unknown_member("", &name, &contract.names()));
            }
        }
        self.text = write_object(&known).into();
        self.members = known;
    }

    /// Reports the parameters without an argument.
    fn report_missing(&mut self) {
        for parameter in self.contract.parameters() {
            if parameter.is_required && self.argument(parameter.name).is_none() {
                let shape = self.contract.shape();
                let expected = describe(shape, shape.property(parameter.name));
                let mistake = missing_value(parameter.name, &expected, parameter.description);
                self.report.add(parameter.name, &mistake);
            }
        }
    }
}
