//! Deserializes the arguments of a call from the model's text directly into the function's types.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::declaration::Declaration;
use crate::arguments::{
    LimitViolation, MAX_REPORT_BYTES, MemberCursor, Parameter, Repair, ToolParameter, add_mistake,
    duplicate_members, explain, repair, schema_limits, schemas,
};
use crate::tool::context::Injectable;
use crate::tool::{ReadMode, ToolContext, ToolError, ToolFuture};

/// The text of one argument, if present.
pub(super) type Slot<'a> = Option<&'a str>;

/// The arguments of one call, each deserialized into its type.
///
/// Arguments in the order of the parameters are deserialized in place. For any other order, the object is first split into
/// slots, one per parameter, and then each slot is deserialized. Every mistake is recorded, and the function is called only
/// if there is none, so that the model can correct all of them in one turn.
#[derive(Debug)]
pub struct Arguments<'a, 's> {
    declaration: &'s Declaration,
    /// The schemas of the parameters, if they contain limits that deserializing the types does not enforce.
    type_limits: Option<&'s Value>,
    source: Source<'a, 's>,
    /// Zero once the arguments are complete and valid. The generated code of each tool checks it; a number takes less code
    /// than a flag.
    invalid: usize,
    mistakes: String,
    /// The type of a value that the context lacks.
    missing_context: Option<&'static str>,
    /// Is `true` if the text is not a JSON object.
    is_unreadable: bool,
    mode: ReadMode,
    repairs: Vec<Repair>,
    /// Collects the defaults when only they are needed and the function is not called.
    defaults: Option<Vec<(usize, Value)>>,
}

/// The source of the arguments.
#[derive(Debug)]
enum Source<'a, 's> {
    /// The text itself. Mistakes are not recorded; at the first one, the position is lost.
    InOrder(MemberCursor<'a>),
    Slots(&'s mut [Slot<'a>]),
}

impl<'a, 's> Arguments<'a, 's> {
    fn new(declaration: &'s Declaration, source: Source<'a, 's>, mode: ReadMode) -> Self {
        let invalid = match &source {
            Source::InOrder(position) if !position.is_at_end() => 1,
            _ => 0,
        };
        Self {
            declaration,
            type_limits: None,
            source,
            invalid,
            mistakes: String::new(),
            missing_context: None,
            is_unreadable: false,
            mode,
            repairs: Vec::new(),
            defaults: None,
        }
    }

    /// Reads arguments that are in the order of the parameters and valid. Otherwise, nothing can be taken.
    pub(super) fn in_order(
        declaration: &'s Declaration,
        text: &'a str,
        type_limits: Option<&'s Value>,
    ) -> Self {
        let source = Source::InOrder(MemberCursor::new(text));
        Self { type_limits, ..Self::new(declaration, source, ReadMode::default()) }
    }

    /// Splits the object into the slots, one per parameter, and records missing and unknown arguments.
    pub(super) fn read(
        declaration: &'s Declaration,
        text: &'a str,
        slots: &'s mut [Slot<'a>],
        mode: ReadMode,
        type_limits: Option<&'s Value>,
    ) -> Self {
        let mut arguments = Self { type_limits, ..Self::new(declaration, Source::Slots(slots), mode) };
        // Models send these when there are no arguments.
        if matches!(text.trim_ascii(), "" | "null") {
            arguments.note_missing();
            return arguments;
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        match arguments.deserialize(&mut deserializer).and_then(|()| deserializer.end()) {
            Ok(()) => {
                arguments.note_duplicates("", text);
                arguments.note_missing();
            }
            Err(error) => arguments.note_unreadable(text, &error),
        }
        arguments
    }

    /// Creates empty arguments, from which nothing can be taken. Only the defaults are collected.
    #[inline]
    pub(super) fn describing(declaration: &'s Declaration, slots: &'s mut [Slot<'a>]) -> Self {
        let mut arguments = Self::new(declaration, Source::Slots(slots), ReadMode::default());
        arguments.invalid = 1;
        arguments.defaults = Some(Vec::new());
        arguments
    }

    #[inline]
    pub(super) fn into_defaults(self) -> Vec<(usize, Value)> {
        self.defaults.unwrap_or_default()
    }

    /// Deserializes an argument. Returns `None` and records the mistake if it is invalid.
    ///
    /// This function exists once per type, so everything that does not depend on the type is done elsewhere.
    pub fn take<T: ToolParameter>(&mut self, index: usize) -> Option<T> {
        let text = self.text(index)?;
        match parse::<T>(text) {
            Ok((value, end)) => self.accepts(index, text, end).then_some(value),
            Err(error) => {
                let repaired = self.repair(index, text);
                match repaired.as_deref().map(|repaired| (repaired, parse::<T>(repaired))) {
                    Some((repaired, Ok((value, end)))) if end == repaired.len() => {
                        self.accepts_repaired(index, text, repaired).then_some(value)
                    }
                    _ => {
                        // Only mistakes that cannot be repaired are reported.
                        let repaired = self.repair_partly(index, text);
                        match repaired.as_deref().map(|repaired| (repaired, parse::<T>(repaired))) {
                            Some((repaired, Err(error))) => self.note_invalid(index, repaired, &error),
                            _ => self.note_invalid(index, text, &error),
                        }
                        None
                    }
                }
            }
        }
    }

    /// Deserializes an argument, or creates its default if it is absent or `null`.
    pub fn take_or<T: ToolParameter>(
        &mut self,
        index: usize,
        default: impl FnOnce() -> T,
        json: fn(&T) -> Option<Value>,
    ) -> Option<T> {
        if self.is_present(index)? {
            return self.take(index);
        }
        let default = default();
        match &mut self.defaults {
            None => Some(default),
            Some(defaults) => {
                defaults.extend(json(&default).map(|json| (index, json)));
                None
            }
        }
    }

    /// Returns a value of the context. Returns `None` and records the error if it is missing.
    pub fn inject<'c, T: Injectable>(&mut self, context: &'c ToolContext) -> Option<&'c T> {
        let value = context.get::<T>();
        if value.is_none() {
            self.missing_context = Some(std::any::type_name::<T>());
        }
        value
    }

    /// Returns `true` if the argument is present and not `null`, or `None` if that is unknown.
    fn is_present(&mut self, index: usize) -> Option<bool> {
        let parameter = self.parameter(index)?;
        match &mut self.source {
            Source::Slots(slots) => Some(matches!(slots.get(index), Some(Some(text)) if *text != "null")),
            Source::InOrder(position) => match position.value_of(parameter) {
                Some(text) if !text.starts_with("null") => Some(true),
                None if position.is_at_end() => Some(false),
                // It can still follow.
                _ => {
                    self.lose_position();
                    None
                }
            },
        }
    }

    fn parameter(&self, index: usize) -> Option<&'static Parameter> {
        self.declaration.parameters.get(index)
    }

    /// Returns `true` if the value at the beginning of `text`, up to `end`, is within its limits and followed by nothing
    /// unexpected. Records mistakes.
    #[inline(never)]
    fn accepts(&mut self, index: usize, text: &'a str, end: usize) -> bool {
        let (value, rest) = text.split_at_checked(end).unwrap_or((text, ""));
        let is_within_limits = self.is_within_limits(index, value);
        match &mut self.source {
            Source::InOrder(_) if !is_within_limits => self.lose_position(),
            // The argument is omitted, or the text ends here and the position stays before the value.
            Source::InOrder(_) if rest.is_empty() => {}
            Source::InOrder(position) => {
                position.advance(rest);
                self.invalid = usize::from(!position.is_at_end());
            }
            Source::Slots(_) if !is_within_limits => self.note_limit(index, text, text),
            Source::Slots(_) => {
                // The type can have consumed only a part of the text.
                if let Err(error) = serde_json::Deserializer::from_str(rest).end() {
                    self.note_invalid(index, text, &error);
                    return false;
                }
            }
        }
        is_within_limits
    }

    /// Returns `true` if the repaired value is within its limits. Records the repair, or else the mistake.
    #[cold]
    fn accepts_repaired(&mut self, index: usize, text: &str, repaired: &str) -> bool {
        // A string that turned out to be an object can contain them.
        let name = self.parameter(index).map_or("", |parameter| parameter.name);
        if self.note_duplicates(name, repaired) {
            return false;
        }
        let is_within_limits = self.is_within_limits(index, repaired);
        if is_within_limits {
            self.note_repair(index, text, repaired);
        } else {
            self.note_limit(index, text, repaired);
        }
        is_within_limits
    }

    fn is_within_limits(&self, index: usize, text: &str) -> bool {
        self.declaration.details.is_none_or(|details| details.allows(index, text))
            && self.type_limits.is_none_or(|schemas| self.violated_type_limit(schemas, index, text).is_none())
    }

    /// Returns the first value in the argument that violates a limit of its type's schema.
    #[cold]
    fn violated_type_limit<'t>(
        &self,
        schemas: &Value,
        index: usize,
        text: &'t str,
    ) -> Option<LimitViolation<'t>> {
        let schema = &schemas["properties"][self.parameter(index)?.name];
        schema_limits::find_violation(schemas, schema, text)
    }

    /// Returns the repaired text of an argument that is wrong only in form.
    #[cold]
    fn repair(&self, index: usize, text: &str) -> Option<String> {
        if self.mode.is_strict || matches!(self.source, Source::InOrder(_)) {
            return None;
        }
        let schema = schemas::parameter_schema(self.parameter(index)?);
        repair::repair_value(&schema, text)
    }

    /// Returns the text of an argument with everything repaired that can be, if that is not sufficient.
    #[cold]
    fn repair_partly(&self, index: usize, text: &str) -> Option<String> {
        // A scalar is reported unchanged.
        let is_container = text.starts_with(['[', '{']);
        if !is_container || self.mode.is_strict || matches!(self.source, Source::InOrder(_)) {
            return None;
        }
        repair::repair_partially(&schemas::parameter_schema(self.parameter(index)?), text)
    }

    #[cold]
    fn note_repair(&mut self, index: usize, from: &str, to: &str) {
        if let Some(parameter) = self.parameter(index) {
            self.repairs.push(Repair::for_argument(parameter.name, from, to));
        }
    }

    pub(super) fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    pub(super) fn take_repairs(&mut self) -> Vec<Repair> {
        std::mem::take(&mut self.repairs)
    }

    /// Returns `true` if the arguments are complete and valid.
    #[must_use]
    pub fn are_valid(&self) -> bool {
        self.invalid == 0
    }

    /// Returns the outcome of a call with mistakes.
    #[cold]
    pub(super) fn refuse<'f>(self) -> ToolFuture<'f> {
        let error = match self.missing_context {
            Some(type_name) if self.mistakes.is_empty() => ToolError::missing_context(type_name),
            _ => ToolError::invalid_arguments(format!("invalid arguments: {}", self.mistakes)),
        };
        ToolFuture::ready(Err(error))
    }

    /// Returns a text that begins with the argument.
    fn text(&mut self, index: usize) -> Option<&'a str> {
        let parameter = self.parameter(index)?;
        let text = match &self.source {
            Source::InOrder(position) => position.value_of(parameter),
            Source::Slots(slots) => *slots.get(index)?,
        };
        match text {
            Some(text) => Some(text),
            // An optional argument that is omitted is deserialized from `null`.
            None if !parameter.is_required => Some("null"),
            None => {
                self.lose_position();
                None
            }
        }
    }

    /// Records that the arguments are not in the order of the parameters or not valid.
    #[cold]
    fn lose_position(&mut self) {
        if let Source::InOrder(position) = &mut self.source {
            position.invalidate();
            self.invalid = 1;
        }
    }

    fn note_missing(&mut self) {
        for (index, parameter) in self.declaration.parameters.iter().enumerate() {
            if parameter.is_required && self.slot(index).is_some_and(|slot| slot.is_none()) {
                let mistake = explain::missing_parameter(parameter, &self.schema_of(index));
                self.note(&mistake);
            }
        }
    }

    /// Records the members that an object in the text contains twice. Returns `true` if there are any.
    #[cold]
    fn note_duplicates(&mut self, name: &str, text: &str) -> bool {
        let duplicates = duplicate_members(text);
        for path in &duplicates {
            self.note(&explain::duplicate_member(&format!("{name}{path}")));
        }
        !duplicates.is_empty()
    }

    /// Returns the schema of a parameter, for messages about its argument.
    #[cold]
    fn schema_of(&self, index: usize) -> Value {
        let mut schema = self.parameter(index).map(schemas::parameter_schema).unwrap_or_default();
        if let Some(details) = self.declaration.details {
            details.describe(index, &mut schema);
        }
        schema
    }

    #[cold]
    fn note(&mut self, mistake: &str) {
        self.invalid = 1;
        add_mistake(&mut self.mistakes, mistake);
    }

    #[cold]
    fn note_unreadable(&mut self, text: &str, error: &serde_json::Error) {
        if let Source::Slots(slots) = &mut self.source {
            slots.fill(None);
        }
        self.invalid = 1;
        self.mistakes = explain::not_an_object(text, error);
        self.is_unreadable = true;
    }

    fn slot(&mut self, index: usize) -> Option<&mut Slot<'a>> {
        match &mut self.source {
            Source::Slots(slots) => slots.get_mut(index),
            Source::InOrder(_) => None,
        }
    }

    #[cold]
    fn note_invalid(&mut self, index: usize, text: &str, error: &serde_json::Error) {
        if let Source::InOrder(_) = self.source {
            self.lose_position();
        } else if error.is_syntax() && !self.is_within_limits(index, text) {
            // serde_json itself refuses a number that is too large. The schema explains the limit.
            self.note_limit(index, text, text);
        } else if explain::is_duplicate_member(error, text) {
            // Recorded when the text was read.
        } else if let Some(parameter) = self.parameter(index) {
            let mistake = explain::wrong_value(parameter, &self.schema_of(index), text, error);
            self.note(&mistake);
        }
    }

    /// Records that an argument violates its limits. `text` is the argument, and `original` is its text before repairs.
    #[cold]
    fn note_limit(&mut self, index: usize, original: &str, text: &str) {
        let Some(parameter) = self.parameter(index) else { return };
        let violated = self.type_limits.and_then(|schemas| self.violated_type_limit(schemas, index, text));
        let mistake = match violated {
            Some(LimitViolation { path, expected, value }) => {
                explain::limit_violation(parameter.name, &path, &expected, value)
            }
            None => explain::parameter_limit_violation(parameter, &self.schema_of(index), original),
        };
        self.note(&mistake);
    }

    #[cold]
    fn note_unknown(&mut self, name: &str, text: &str) {
        if self.mode.ignores_unknown {
            self.repairs.push(Repair::for_ignored(name, text));
            return;
        }
        if self.mistakes.len() > MAX_REPORT_BYTES {
            return;
        }
        let known = self.declaration.parameters.iter().map(|parameter| parameter.name);
        let mistake = explain::unknown_argument(name, known);
        self.note(&mistake);
    }
}

/// Returns the value at the beginning of a text, and the offset where it ends.
#[inline(never)]
fn parse<T: ToolParameter>(text: &str) -> Result<(T, usize), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(&mut deserializer)?;
    Ok((value, deserializer.into_iter::<IgnoredAny>().byte_offset()))
}

impl<'a> DeserializeSeed<'a> for &mut Arguments<'a, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for &mut Arguments<'a, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = object.next_key()? {
            let Some(index) = self.declaration.parameters.iter().position(|parameter| parameter.name == name)
            else {
                let text = object.next_value::<&'a RawValue>()?.get();
                self.note_unknown(&name, text);
                continue;
            };
            let text = object.next_value::<&'a RawValue>()?.get();
            if let Some(slot) = self.slot(index) {
                *slot = Some(text);
            }
        }
        Ok(())
    }
}

/// The name of an argument, borrowed from the text unless it contains an escape.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::declared::ToolName;

    static PARAMETERS: [Parameter; 4] = [
        Parameter::new::<u8>("nights", Some("how long to stay"), true),
        Parameter::new::<String>("city", None, true),
        Parameter::new::<Option<f64>>("price", None, false),
        Parameter::new::<Option<bool>>("breakfast", None, true),
    ];

    static BOOK: Declaration = Declaration::new(ToolName::new("book"), None, &PARAMETERS, None);

    type Booking = (u8, String, Option<f64>, Option<bool>);

    fn read(text: &str) -> Result<Booking, String> {
        let mut slots = [None; 4];
        let mut arguments = Arguments::read(
            &BOOK,
            text,
            &mut slots,
            ReadMode { is_strict: true, ignores_unknown: false },
            None,
        );
        match (arguments.take(0), arguments.take(1), arguments.take(2), arguments.take(3)) {
            (Some(nights), Some(city), Some(price), Some(breakfast)) if arguments.are_valid() => {
                Ok((nights, city, price, breakfast))
            }
            _ => Err(arguments.mistakes),
        }
    }

    #[test]
    fn accepts_valid_arguments() {
        let full = read(r#"{"nights": 2, "city": "Ro\nme", "price": 1.5, "breakfast": true}"#);
        assert_eq!(full, Ok((2, "Ro\nme".into(), Some(1.5), Some(true))));
        let sparse = read(r#"{"breakfast": null, "city": "Rome", "nights": 2}"#);
        assert_eq!(sparse, Ok((2, "Rome".into(), None, None)));
        let escaped = read(r#"{"breakfast": null, "c\u0069ty": "Rome", "nights": 2, "price": null}"#);
        assert_eq!(escaped, Ok((2, "Rome".into(), None, None)));
    }

    #[test]
    fn reports_all_mistakes_at_once() {
        let error =
            read(r#"{"nights": 300, "citty": "Rome", "price": "dear", "breakfast": false}"#).unwrap_err();
        assert_eq!(
            error,
            "there is no argument `citty`, the arguments are `nights`, `city`, `price`, `breakfast`, did you mean `city`?; \
             `city` is missing, expected a string; \
             `nights`: expected an integer from 0 to 255, got 300; \
             `price`: expected a number or null, got \"dear\""
        );
    }

    #[test]
    fn reports_missing_arguments() {
        let missing = "`nights` is missing, expected an integer from 0 to 255 (how long to stay); \
             `city` is missing, expected a string; \
             `breakfast` is missing, expected true or false or null";
        for text in ["", " ", "null", "{}", " null\n"] {
            assert_eq!(read(text).unwrap_err(), missing, "{text:?}");
        }
    }

    #[test]
    fn refuses_anything_but_an_object() {
        for (text, found) in
            [("[]", "a list"), (r#""value""#, r#""value""#), ("123", "123"), ("true", "true")]
        {
            assert_eq!(read(text).unwrap_err(), format!("expected a JSON object, got {found}"));
        }
    }

    #[test]
    fn refuses_invalid_json() {
        let error = read("{ invalid JSON }").unwrap_err();
        assert_eq!(error, "not valid JSON: key must be a string at line 1 column 3");
        let error = read(r#"{"nights": 1} and more"#).unwrap_err();
        assert_eq!(error, "not valid JSON: trailing characters at line 1 column 15");
        assert!(read(r#"{"nights": 1"#).unwrap_err().starts_with("not valid JSON: EOF"));
    }

    #[test]
    fn limits_messages_about_hostile_names() {
        let many: Vec<_> = (0..100_000).map(|number| format!("\"name{number}\":0")).collect();
        let error = read(&format!("{{{}}}", many.join(","))).unwrap_err();
        assert!(error.len() < 5000 && error.contains("; and more"), "{error}");
        let error = read(&format!("{{\"{}\":0}}", "é".repeat(1_000_000))).unwrap_err();
        assert!(error.len() < 1000, "{error}");
    }

    #[test]
    fn refuses_duplicate_names() {
        let error = read(r#"{"nights": 1, "nights": 2, "city": "Rome", "breakfast": null}"#).unwrap_err();
        assert_eq!(error, "`nights` is given twice");
    }
}
