//! Reading the arguments of a call: once, straight from the model's text into the function's types.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::expectation;
use super::function::{Parameter, ToolParameter};
use super::repair::{self, Repair};
use crate::{ToolError, ToolFuture, schema};

/// The text of one argument, if it was given.
pub(super) type Slot<'a> = Option<&'a str>;

/// The arguments of one call: first the object is read into slots, one per parameter, then each slot into its type.
///
/// Every mistake is noted and nothing is called as long as there is one, so that the model can mend
/// them all in one turn.
#[derive(Debug)]
pub struct Arguments<'a, 's> {
    parameters: &'static [Parameter],
    slots: &'s mut [Slot<'a>],
    mistakes: String,
    /// The text is no JSON object at all.
    is_unreadable: bool,
    is_strict: bool,
    repairs: Vec<Repair>,
}

impl<'a, 's> Arguments<'a, 's> {
    /// Reads the object into the slots, one per parameter, and notes what is missing or unknown.
    pub(super) fn read(
        parameters: &'static [Parameter],
        text: &'a str,
        slots: &'s mut [Slot<'a>],
        is_strict: bool,
    ) -> Self {
        let mut arguments = Self {
            parameters,
            slots,
            mistakes: String::new(),
            is_unreadable: false,
            is_strict,
            repairs: Vec::new(),
        };
        // Models without anything to say send these.
        if matches!(text.trim_ascii(), "" | "null") {
            arguments.note_missing();
            return arguments;
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        match arguments.deserialize(&mut deserializer).and_then(|()| deserializer.end()) {
            Ok(()) => arguments.note_missing(),
            Err(error) => arguments.note_unreadable(text, &error),
        }
        arguments
    }

    /// The argument as the function's type; `None` when there is a mistake in it, which is then noted.
    pub fn take<T: ToolParameter>(&mut self, index: usize) -> Option<T> {
        let text = self.text(index)?;
        match serde_json::from_str(text) {
            Ok(value) if is_infinite(&value) => {
                self.note_too_large(index, text);
                None
            }
            Ok(value) => Some(value),
            Err(error) => {
                let mended = self.mend(index, text).and_then(|mended| {
                    let value = serde_json::from_str(&mended).ok().filter(|value| !is_infinite(value))?;
                    self.note_repair(index, text, &mended);
                    Some(value)
                });
                if mended.is_none() {
                    self.note_wrong(index, text, &error);
                }
                mended
            }
        }
    }

    /// The text of an argument as its schema asks for it, if it is wrong in form only.
    #[cold]
    fn mend(&self, index: usize, text: &str) -> Option<String> {
        if self.is_strict {
            return None;
        }
        let schema = schema::of_parameter(self.parameters.get(index)?);
        repair::mend_value(&schema, text)
    }

    #[cold]
    fn note_repair(&mut self, index: usize, from: &str, to: &str) {
        if let Some(parameter) = self.parameters.get(index) {
            self.repairs.push(Repair::of_argument(parameter.name, from, to));
        }
    }

    pub(super) fn is_unreadable(&self) -> bool {
        self.is_unreadable
    }

    pub(super) fn take_repairs(&mut self) -> Vec<Repair> {
        std::mem::take(&mut self.repairs)
    }

    /// The arguments are whole: there is no mistake in any.
    #[must_use]
    pub fn are_right(&self) -> bool {
        self.mistakes.is_empty()
    }

    /// The outcome of the call when there are mistakes.
    #[cold]
    pub(super) fn refuse<'f>(self) -> ToolFuture<'f> {
        let message = format!("invalid arguments: {}", self.mistakes);
        ToolFuture::ready(Err(ToolError::invalid_arguments(message)))
    }

    fn text(&self, index: usize) -> Option<&'a str> {
        match *self.slots.get(index)? {
            Some(text) => Some(text),
            // Left out, as it may be: its type reads that as it reads `null`.
            None if !self.parameters.get(index)?.is_required => Some("null"),
            None => None,
        }
    }

    fn note_missing(&mut self) {
        for (parameter, slot) in self.parameters.iter().zip(&*self.slots) {
            if parameter.is_required && slot.is_none() {
                note(&mut self.mistakes, &expectation::missing(parameter));
            }
        }
    }

    #[cold]
    fn note_unreadable(&mut self, text: &str, error: &serde_json::Error) {
        self.slots.fill(None);
        self.mistakes = expectation::unreadable(text, error);
        self.is_unreadable = true;
    }

    #[cold]
    fn note_wrong(&mut self, index: usize, text: &str, error: &serde_json::Error) {
        if let Some(parameter) = self.parameters.get(index) {
            note(&mut self.mistakes, &expectation::wrong(parameter, text, error));
        }
    }

    #[cold]
    fn note_too_large(&mut self, index: usize, text: &str) {
        if let Some(parameter) = self.parameters.get(index) {
            note(&mut self.mistakes, &expectation::too_large(parameter.name, text));
        }
    }

    #[cold]
    fn note_unknown(&mut self, name: &str) {
        if self.mistakes.len() > LONGEST_ACCOUNT {
            return;
        }
        let known = self.parameters.iter().map(|parameter| parameter.name);
        note(&mut self.mistakes, &expectation::unknown(name, known));
    }
}

/// A number that an `f32` cannot hold is read as infinite. JSON has no infinite numbers, so it is nothing else.
fn is_infinite(value: &dyn Any) -> bool {
    let number = value
        .downcast_ref::<f32>()
        .copied()
        .or_else(|| value.downcast_ref::<Option<f32>>().copied().flatten());
    number.is_some_and(f32::is_infinite)
}

/// How long the account of all mistakes may grow, in bytes; what comes behind that is not told.
pub(super) const LONGEST_ACCOUNT: usize = 4096;

#[cold]
pub(super) fn note(mistakes: &mut String, mistake: &str) {
    if mistakes.len() > LONGEST_ACCOUNT {
        return;
    }
    if !mistakes.is_empty() {
        mistakes.push_str("; ");
    }
    mistakes.push_str(mistake);
    if mistakes.len() > LONGEST_ACCOUNT {
        mistakes.push_str("; and more");
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
            let Some(index) = self.parameters.iter().position(|parameter| parameter.name == name) else {
                object.next_value::<IgnoredAny>()?;
                self.note_unknown(&name);
                continue;
            };
            let text = object.next_value::<&'a RawValue>()?.get();
            if self.slots[index].replace(text).is_some() {
                note(&mut self.mistakes, &format!("`{name}` is given twice"));
            }
        }
        Ok(())
    }
}

/// A name in the arguments, borrowed from their text unless it holds an escape.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    static PARAMETERS: [Parameter; 4] = [
        Parameter::new::<u8>("nights", Some("how long to stay"), true),
        Parameter::new::<String>("city", None, true),
        Parameter::new::<Option<f64>>("price", None, false),
        Parameter::new::<Option<bool>>("breakfast", None, true),
    ];

    type Booking = (u8, String, Option<f64>, Option<bool>);

    fn read(text: &str) -> Result<Booking, String> {
        let mut slots = [None; 4];
        let mut arguments = Arguments::read(&PARAMETERS, text, &mut slots, true);
        match (arguments.take(0), arguments.take(1), arguments.take(2), arguments.take(3)) {
            (Some(nights), Some(city), Some(price), Some(breakfast)) if arguments.are_right() => {
                Ok((nights, city, price, breakfast))
            }
            _ => Err(arguments.mistakes),
        }
    }

    #[test]
    fn right_arguments() {
        let whole = read(r#"{"nights": 2, "city": "Ro\nme", "price": 1.5, "breakfast": true}"#);
        assert_eq!(whole, Ok((2, "Ro\nme".into(), Some(1.5), Some(true))));
        let sparse = read(r#"{"breakfast": null, "city": "Rome", "nights": 2}"#);
        assert_eq!(sparse, Ok((2, "Rome".into(), None, None)));
        let escaped = read(r#"{"breakfast": null, "c\u0069ty": "Rome", "nights": 2, "price": null}"#);
        assert_eq!(escaped, Ok((2, "Rome".into(), None, None)));
    }

    #[test]
    fn every_mistake_is_told_at_once() {
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
    fn nothing_given() {
        let missing = "`nights` is missing, expected an integer from 0 to 255 (how long to stay); \
             `city` is missing, expected a string; \
             `breakfast` is missing, expected true or false or null";
        for text in ["", " ", "null", "{}", " null\n"] {
            assert_eq!(read(text).unwrap_err(), missing, "{text:?}");
        }
    }

    #[test]
    fn what_is_no_object() {
        for (text, came) in [("[]", "a list"), (r#""value""#, r#""value""#), ("123", "123"), ("true", "true")]
        {
            assert_eq!(read(text).unwrap_err(), format!("expected a JSON object, got {came}"));
        }
    }

    #[test]
    fn what_is_no_json() {
        let error = read("{ invalid JSON }").unwrap_err();
        assert_eq!(error, "not valid JSON: key must be a string at line 1 column 3");
        let error = read(r#"{"nights": 1} and more"#).unwrap_err();
        assert_eq!(error, "not valid JSON: trailing characters at line 1 column 15");
        assert!(read(r#"{"nights": 1"#).unwrap_err().starts_with("not valid JSON: EOF"));
    }

    #[test]
    fn hostile_names_are_told_briefly() {
        let many: Vec<_> = (0..100_000).map(|number| format!("\"name{number}\":0")).collect();
        let error = read(&format!("{{{}}}", many.join(","))).unwrap_err();
        assert!(error.len() < 5000 && error.contains("; and more"), "{error}");
        let error = read(&format!("{{\"{}\":0}}", "é".repeat(1_000_000))).unwrap_err();
        assert!(error.len() < 1000, "{error}");
    }

    #[test]
    fn a_name_given_twice() {
        let error = read(r#"{"nights": 1, "nights": 2, "city": "Rome", "breakfast": null}"#).unwrap_err();
        assert_eq!(error, "`nights` is given twice");
    }
}
