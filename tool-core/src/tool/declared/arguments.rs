//! Reading the arguments of a call: once, straight from the model's text into the function's types.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::declaration::Declaration;
use crate::arguments::{
    LimitViolation, MAX_REPORT_BYTES, MemberCursor, Parameter, Repair, ToolParameter, add_mistake, explain,
    repair, schemas,
};
use crate::tool::context::Injectable;
use crate::tool::{Reading, ToolContext, ToolError, ToolFuture};

/// The text of one argument, if it was given.
pub(super) type Slot<'a> = Option<&'a str>;

/// The arguments of one call, each read into its type.
///
/// Arguments in the order of the parameters are read where they stand. For any others the object is first read into slots, one per
/// parameter, and then each slot into its type. Every mistake is noted and nothing is called as long as there is one, so that
/// the model can mend them all in one turn.
#[derive(Debug)]
pub struct Arguments<'a, 's> {
    declaration: &'s Declaration,
    /// The schemas of the parameters, if they promise what reading the types does not see to.
    promises: Option<&'s Value>,
    given: Given<'a, 's>,
    /// Not zero as long as the arguments are not whole: all that a tool's own code asks for, in which a number takes less
    /// room than a flag.
    wrong: usize,
    mistakes: String,
    /// The type of a value that the context lacks.
    lacks: Option<&'static str>,
    /// The text is no JSON object at all.
    is_unreadable: bool,
    reading: Reading,
    repairs: Vec<Repair>,
    /// Where defaults are noted, when nothing is called and only they are asked for.
    defaults: Option<Vec<(usize, Value)>>,
}

/// Where the arguments are taken from.
#[derive(Debug)]
enum Given<'a, 's> {
    /// Nothing is noted of these: where one is not as it should be, the place is lost.
    InOrder(MemberCursor<'a>),
    Slots(&'s mut [Slot<'a>]),
}

impl<'a, 's> Arguments<'a, 's> {
    fn new(declaration: &'s Declaration, given: Given<'a, 's>, reading: Reading) -> Self {
        let wrong = match &given {
            Given::InOrder(place) if !place.is_at_end() => 1,
            _ => 0,
        };
        Self {
            declaration,
            promises: None,
            given,
            wrong,
            mistakes: String::new(),
            lacks: None,
            is_unreadable: false,
            reading,
            repairs: Vec::new(),
            defaults: None,
        }
    }

    /// The arguments in a text in which they stand in the order of the parameters, and are all right. If it is not so, what
    /// is taken of them is nothing.
    pub(super) fn in_order(declaration: &'s Declaration, text: &'a str, promises: Option<&'s Value>) -> Self {
        Self {
            promises,
            ..Self::new(declaration, Given::InOrder(MemberCursor::new(text)), Reading::default())
        }
    }

    /// Reads the object into the slots, one per parameter, and notes what is missing or unknown.
    pub(super) fn read(
        declaration: &'s Declaration,
        text: &'a str,
        slots: &'s mut [Slot<'a>],
        reading: Reading,
        promises: Option<&'s Value>,
    ) -> Self {
        let mut arguments = Self { promises, ..Self::new(declaration, Given::Slots(slots), reading) };
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

    /// No arguments: what is taken of them is nothing, and only the defaults are noted.
    #[inline]
    pub(super) fn describing(declaration: &'s Declaration, slots: &'s mut [Slot<'a>]) -> Self {
        let mut arguments = Self::new(declaration, Given::Slots(slots), Reading::default());
        arguments.wrong = 1;
        arguments.defaults = Some(Vec::new());
        arguments
    }

    #[inline]
    pub(super) fn into_defaults(self) -> Vec<(usize, Value)> {
        self.defaults.unwrap_or_default()
    }

    /// The argument as the function's type; `None` when there is a mistake in it, which is then noted.
    ///
    /// There is one of this for every type, so what does not need the type is done elsewhere.
    pub fn take<T: ToolParameter>(&mut self, index: usize) -> Option<T> {
        let text = self.text(index)?;
        match read::<T>(text) {
            Ok((value, end)) => self.accepts(index, text, end).then_some(value),
            Err(error) => {
                let mended = self.mend(index, text);
                match mended.as_deref().map(|mended| (mended, read::<T>(mended))) {
                    Some((mended, Ok((value, end)))) if end == mended.len() => {
                        self.accepts_mended(index, text, mended).then_some(value)
                    }
                    _ => {
                        // Not what could have been mended is to blame, but what could not.
                        let mended = self.mend_partly(index, text);
                        match mended.as_deref().map(|mended| (mended, read::<T>(mended))) {
                            Some((mended, Err(error))) => self.note_wrong(index, mended, &error),
                            _ => self.note_wrong(index, text, &error),
                        }
                        None
                    }
                }
            }
        }
    }

    /// The argument, or a default made anew if it is left out or `null`.
    pub fn take_or<T: ToolParameter>(
        &mut self,
        index: usize,
        default: impl FnOnce() -> T,
        json: fn(&T) -> Option<Value>,
    ) -> Option<T> {
        if self.is_given(index)? {
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

    /// A value of the context; `None` when it is not there, which is then noted.
    pub fn inject<'c, T: Injectable>(&mut self, context: &'c ToolContext) -> Option<&'c T> {
        let value = context.get::<T>();
        if value.is_none() {
            self.lacks = Some(std::any::type_name::<T>());
        }
        value
    }

    /// The argument is there and not `null`; nothing if that cannot be told.
    fn is_given(&mut self, index: usize) -> Option<bool> {
        let parameter = self.parameter(index)?;
        match &mut self.given {
            Given::Slots(slots) => Some(matches!(slots.get(index), Some(Some(text)) if *text != "null")),
            Given::InOrder(place) => match place.value_of(parameter) {
                Some(text) if !text.starts_with("null") => Some(true),
                None if place.is_at_end() => Some(false),
                // It may come later.
                _ => {
                    self.lose();
                    None
                }
            },
        }
    }

    fn parameter(&self, index: usize) -> Option<&'static Parameter> {
        self.declaration.parameters.get(index)
    }

    /// The value that was read of the beginning of `text`, up to `end`, keeps to its limits, and nothing is behind it that does
    /// not belong there. What is wrong is noted.
    #[inline(never)]
    fn accepts(&mut self, index: usize, text: &'a str, end: usize) -> bool {
        let (value, behind) = text.split_at_checked(end).unwrap_or((text, ""));
        let keeps_limits = self.keeps_limits(index, value);
        match &mut self.given {
            Given::InOrder(_) if !keeps_limits => self.lose(),
            // Left out; or the text ends here, and so the place stays in front of it.
            Given::InOrder(_) if behind.is_empty() => {}
            Given::InOrder(place) => {
                place.advance(behind);
                self.wrong = usize::from(!place.is_at_end());
            }
            Given::Slots(_) if !keeps_limits => self.note_limit(index, text, text),
            Given::Slots(_) => {
                // Its type read only a part of it.
                if let Err(error) = serde_json::Deserializer::from_str(behind).end() {
                    self.note_wrong(index, text, &error);
                    return false;
                }
            }
        }
        keeps_limits
    }

    /// The value that was read of the mended text keeps to its limits. What is wrong is noted, and else what was mended.
    #[cold]
    fn accepts_mended(&mut self, index: usize, text: &str, mended: &str) -> bool {
        let keeps_limits = self.keeps_limits(index, mended);
        if keeps_limits {
            self.note_repair(index, text, mended);
        } else {
            self.note_limit(index, text, mended);
        }
        keeps_limits
    }

    fn keeps_limits(&self, index: usize, text: &str) -> bool {
        self.declaration.details.is_none_or(|details| details.allows(index, text))
            && self.promises.is_none_or(|promises| self.broken(promises, index, text).is_none())
    }

    /// The first value in the argument that breaks a promise of its type's schema.
    #[cold]
    fn broken<'t>(&self, promises: &Value, index: usize, text: &'t str) -> Option<LimitViolation<'t>> {
        let schema = &promises["properties"][self.parameter(index)?.name];
        self.declaration.details?.broken(promises, schema, text)
    }

    /// The text of an argument as its schema asks for it, if it is wrong in form only.
    #[cold]
    fn mend(&self, index: usize, text: &str) -> Option<String> {
        if self.reading.is_strict || matches!(self.given, Given::InOrder(_)) {
            return None;
        }
        let schema = schemas::parameter_schema(self.parameter(index)?);
        repair::repair_value(&schema, text)
    }

    /// The same with all mended that can be, when that is not enough.
    #[cold]
    fn mend_partly(&self, index: usize, text: &str) -> Option<String> {
        // A value that holds no others is told of as it came.
        let holds_others = text.starts_with(['[', '{']);
        if !holds_others || self.reading.is_strict || matches!(self.given, Given::InOrder(_)) {
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

    /// The arguments are whole: there is no mistake in any.
    #[must_use]
    pub fn are_right(&self) -> bool {
        self.wrong == 0
    }

    /// The outcome of the call when there are mistakes.
    #[cold]
    pub(super) fn refuse<'f>(self) -> ToolFuture<'f> {
        let error = match self.lacks {
            Some(type_name) if self.mistakes.is_empty() => ToolError::missing_context(type_name),
            _ => ToolError::invalid_arguments(format!("invalid arguments: {}", self.mistakes)),
        };
        ToolFuture::ready(Err(error))
    }

    /// The text of an argument, or the one that begins with it.
    fn text(&mut self, index: usize) -> Option<&'a str> {
        let parameter = self.parameter(index)?;
        let given = match &self.given {
            Given::InOrder(place) => place.value_of(parameter),
            Given::Slots(slots) => *slots.get(index)?,
        };
        match given {
            Some(text) => Some(text),
            // Left out, as it may be: its type reads that as it reads `null`.
            None if !parameter.is_required => Some("null"),
            None => {
                self.lose();
                None
            }
        }
    }

    /// Arguments that were taken to be in order are not.
    #[cold]
    fn lose(&mut self) {
        if let Given::InOrder(place) = &mut self.given {
            place.invalidate();
            self.wrong = 1;
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

    /// The schema of a parameter, for words about its argument.
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
        self.wrong = 1;
        add_mistake(&mut self.mistakes, mistake);
    }

    #[cold]
    fn note_unreadable(&mut self, text: &str, error: &serde_json::Error) {
        if let Given::Slots(slots) = &mut self.given {
            slots.fill(None);
        }
        self.wrong = 1;
        self.mistakes = explain::not_an_object(text, error);
        self.is_unreadable = true;
    }

    fn slot(&mut self, index: usize) -> Option<&mut Slot<'a>> {
        match &mut self.given {
            Given::Slots(slots) => slots.get_mut(index),
            Given::InOrder(_) => None,
        }
    }

    #[cold]
    fn note_wrong(&mut self, index: usize, text: &str, error: &serde_json::Error) {
        if let Given::InOrder(_) = self.given {
            self.lose();
        } else if error.is_syntax() && !self.keeps_limits(index, text) {
            // A number that is too large, where serde_json sees that itself: which one is told by the schema.
            self.note_limit(index, text, text);
        } else if let Some(parameter) = self.parameter(index) {
            let mistake = explain::wrong_value(parameter, &self.schema_of(index), text, error);
            self.note(&mistake);
        }
    }

    /// Notes that an argument is beyond its limits; `text` is what it is, `came` what came.
    #[cold]
    fn note_limit(&mut self, index: usize, came: &str, text: &str) {
        let Some(parameter) = self.parameter(index) else { return };
        let broken = self.promises.and_then(|promises| self.broken(promises, index, text));
        let mistake = match broken {
            Some(LimitViolation { path, expected, value }) => {
                explain::limit_violation(parameter.name, &path, &expected, value)
            }
            None => explain::parameter_limit_violation(parameter, &self.schema_of(index), came),
        };
        self.note(&mistake);
    }

    #[cold]
    fn note_unknown(&mut self, name: &str, text: &str) {
        if self.reading.ignores_unknown {
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

/// The value at the beginning of a text, and where it ends.
#[inline(never)]
fn read<T: ToolParameter>(text: &str) -> Result<(T, usize), serde_json::Error> {
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
            if self.slot(index).and_then(|slot| slot.replace(text)).is_some() {
                self.note(&format!("`{name}` is given twice"));
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
            Reading { is_strict: true, ignores_unknown: false },
            None,
        );
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
