//! Deserializes the arguments of a call from the model's text directly into the function's types.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::declaration::Declaration;
use crate::arguments::{
    Contract, Decoder, MemberCursor, Mode, Parameter, Refused, Repair, Report, Target, ToolParameter, Typed,
    describe, is_within_limits, missing_value, not_an_object, report_duplicates, unknown_name,
};
use crate::tool::context::Injectable;
use crate::tool::future::Pending;
use crate::tool::{ToolContext, ToolError};

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
    /// The requirements of the arguments. Without them, only the defaults are collected.
    contract: Option<&'s Contract>,
    source: Source<'a, 's>,
    /// The arguments are complete and valid.
    are_valid: bool,
    report: Report,
    /// The type of a value that the context lacks.
    missing_context: Option<&'static str>,
    /// Is `true` if the text is not a JSON object.
    is_unreadable: bool,
    mode: Mode,
    repairs: Vec<Repair>,
    defaults: Vec<(usize, Value)>,
}

/// The source of the arguments.
#[derive(Debug)]
enum Source<'a, 's> {
    /// The text itself. Mistakes are not recorded; at the first one, the position is lost.
    InOrder(MemberCursor<'a>),
    Slots(&'s mut [Slot<'a>]),
}

impl<'a, 's> Arguments<'a, 's> {
    fn new(
        declaration: &'s Declaration,
        contract: Option<&'s Contract>,
        source: Source<'a, 's>,
        mode: Mode,
    ) -> Self {
        let are_valid = match &source {
            Source::InOrder(position) => position.is_at_end(),
            Source::Slots(_) => true,
        };
        Self {
            declaration,
            contract,
            source,
            are_valid,
            report: Report::default(),
            missing_context: None,
            is_unreadable: false,
            mode,
            repairs: Vec::new(),
            defaults: Vec::new(),
        }
    }

    /// Reads arguments that are in the order of the parameters and valid. Otherwise, nothing can be taken.
    pub(super) fn in_order(declaration: &'s Declaration, contract: &'s Contract, text: &'a str) -> Self {
        let source = Source::InOrder(MemberCursor::new(text));
        Self::new(declaration, Some(contract), source, Mode::default())
    }

    /// Splits the object into the slots, one per parameter, and records missing and unknown arguments.
    pub(super) fn read(
        declaration: &'s Declaration,
        contract: &'s Contract,
        text: &'a str,
        slots: &'s mut [Slot<'a>],
        mode: Mode,
    ) -> Self {
        let mut arguments = Self::new(declaration, Some(contract), Source::Slots(slots), mode);
        // Models send these when there are no arguments.
        if matches!(text.trim_ascii(), "" | "null") {
            arguments.report_missing();
            return arguments;
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        match arguments.deserialize(&mut deserializer).and_then(|()| deserializer.end()) {
            Ok(()) => {
                report_duplicates("", text, &mut arguments.report);
                arguments.report_missing();
            }
            Err(error) => {
                // The members that were read until then prove nothing.
                arguments.report = Report::default();
                arguments.report.add("", &not_an_object(text, &error));
                arguments.is_unreadable = true;
            }
        }
        arguments.are_valid = arguments.report.is_empty();
        arguments
    }

    /// Creates empty arguments, from which nothing can be taken. Only the defaults are collected.
    pub(super) fn describing(declaration: &'s Declaration, slots: &'s mut [Slot<'a>]) -> Self {
        let mut arguments = Self::new(declaration, None, Source::Slots(slots), Mode::default());
        arguments.are_valid = false;
        arguments
    }

    pub(super) fn into_defaults(self) -> Vec<(usize, Value)> {
        self.defaults
    }

    /// Deserializes an argument. Returns `None` and records the mistake if it is invalid.
    ///
    /// This function exists once per type, so everything that does not depend on the type is done elsewhere.
    pub fn take<T: ToolParameter>(&mut self, index: usize) -> Option<T> {
        let mut value = Typed(None);
        if self.read_value(index, &mut value) { value.0 } else { None }
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
        if self.contract.is_some() {
            return Some(default);
        }
        self.defaults.extend(json(&default).map(|json| (index, json)));
        None
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

    /// Reads an argument into the target. Returns `true` if it is valid.
    fn read_value(&mut self, index: usize, target: &mut dyn Target) -> bool {
        let (Some(parameter), Some(contract)) = (self.parameter(index), self.contract) else { return false };
        let Some(text) = self.text(parameter, index) else { return false };
        let mut refused = None;
        let read = target.read(text).map_err(|error| refused = Some(error));
        let end = read.ok().filter(|end| {
            let value = || text.get(..*end).unwrap_or(text);
            !contract.has_limits
                || is_within_limits(contract.shape(), contract.shape().property(parameter.name), value())
        });
        match (&mut self.source, end) {
            // The argument is omitted, or the text ends here and the position stays before the value.
            (Source::InOrder(_), Some(end)) if end == text.len() => true,
            (Source::InOrder(position), Some(end)) => {
                position.advance(text.get(end..).unwrap_or_default());
                self.are_valid = position.is_at_end();
                true
            }
            (Source::InOrder(_), None) => {
                self.lose_position();
                false
            }
            (Source::Slots(_), Some(end)) if end == text.len() => true,
            (Source::Slots(_), _) => self.decode(parameter, contract, target, text, refused),
        }
    }

    /// Repairs an argument, or explains what is wrong with it.
    #[cold]
    fn decode(
        &mut self,
        parameter: &Parameter,
        contract: &Contract,
        target: &mut dyn Target,
        text: &str,
        refused: Option<Refused>,
    ) -> bool {
        let shape = contract.shape();
        let decoder = Decoder {
            shape,
            node: shape.property(parameter.name),
            path: parameter.name,
            mode: self.mode,
            report: &mut self.report,
            repairs: &mut self.repairs,
        };
        let is_valid = decoder.decode_argument(target, text, refused);
        self.are_valid &= is_valid;
        is_valid
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
        self.are_valid
    }

    /// Returns the outcome of a call with mistakes.
    #[cold]
    pub(super) fn refuse<'f>(self) -> Pending<'f> {
        let error = match self.missing_context {
            Some(type_name) if self.report.is_empty() => ToolError::missing_context(type_name),
            _ => ToolError::from(self.report.into_error()),
        };
        Pending::ready(Err(error))
    }

    /// Returns a text that begins with the argument.
    fn text(&mut self, parameter: &Parameter, index: usize) -> Option<&'a str> {
        let text = match &self.source {
            Source::InOrder(position) => position.value_of(parameter),
            // A mistake in the text as a whole is the only one.
            Source::Slots(_) if self.is_unreadable => return None,
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
            self.are_valid = false;
        }
    }

    fn report_missing(&mut self) {
        let (Some(contract), Source::Slots(slots)) = (self.contract, &self.source) else { return };
        for (parameter, slot) in self.declaration.parameters.iter().zip(slots.iter()) {
            if parameter.is_required && slot.is_none() {
                let shape = contract.shape();
                let expected = describe(shape, shape.property(parameter.name));
                let mistake = missing_value(parameter.name, &expected, parameter.description);
                self.report.add(parameter.name, &mistake);
            }
        }
        self.are_valid &= self.report.is_empty();
    }

    #[cold]
    fn report_unknown(&mut self, name: &str, text: &str) {
        if self.mode.ignores_unknown {
            self.repairs.push(Repair::for_ignored(name, text));
        } else if !self.report.is_full() {
            let known: Vec<_> = self.declaration.parameters.iter().map(|parameter| parameter.name).collect();
            self.report.add(name, &unknown_name(name, &known));
        }
    }
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
                self.report_unknown(&name, text);
                continue;
            };
            let text = object.next_value::<&'a RawValue>()?.get();
            if let Source::Slots(slots) = &mut self.source
                && let Some(slot) = slots.get_mut(index)
            {
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
    use crate::arguments::ArgumentErrors;
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
        let defined = BOOK.define(&|_| {});
        let mode = Mode { forbids_repair: true, ignores_unknown: false };
        let mut arguments = Arguments::read(&BOOK, &defined.contract, text, &mut slots, mode);
        match (arguments.take(0), arguments.take(1), arguments.take(2), arguments.take(3)) {
            (Some(nights), Some(city), Some(price), Some(breakfast)) if arguments.are_valid() => {
                Ok((nights, city, price, breakfast))
            }
            _ => {
                let ArgumentErrors(text) = arguments.report.into_error();
                Err(text.trim_start_matches("invalid arguments: ").to_owned())
            }
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
