//! Destinations of values that are read: types, which decide what is accepted, and what they ignore.

use std::cell::RefCell;
use std::ops::Range;

use serde::de::{DeserializeOwned, IgnoredAny};

use super::explain::{self, SchemaValidator};
use super::watched::{Ignored, Scope, Watched};

/// The destination of a value that is read. It hides the type, so that everything else exists once.
pub(crate) trait Target {
    /// Reads the value at the beginning of the text and stores it. Returns the offset where it ends.
    fn read(&mut self, text: &str) -> Result<usize, Refused>;

    /// Returns `true` if the type has the member whose quoted name is at this position in the text.
    fn has_member(&self, text: &str, name: Range<usize>) -> bool;

    /// Returns the error of the type for another text, if a type decides.
    fn error(&self, _text: &str) -> Option<serde_json::Error> {
        None
    }

    /// Returns the validator of the schema, if it decides and not a type.
    fn validator(&self) -> Option<&dyn SchemaValidator> {
        None
    }
}

/// A member that the type of a struct ignores.
#[derive(Debug)]
pub(crate) struct IgnoredMember {
    /// The position of its value in the text.
    pub(super) value: Range<usize>,
    /// The names of the members that the struct has.
    pub(super) known: &'static [&'static str],
}

/// The refusal of a value.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The type cannot be deserialized from it.
    ByType(serde_json::Error),
    /// It does not match the schema.
    #[cfg_attr(not(feature = "dynamic"), expect(dead_code, reason = "only dynamic tools have a validator"))]
    BySchema,
    /// The type read it, but ignored members of structs. They may be ignored in some modes.
    IgnoresMembers(Vec<IgnoredMember>),
}

impl Refused {
    /// Returns `true` unless the value was read.
    pub(super) fn is_mismatch(&self) -> bool {
        !matches!(self, Self::IgnoresMembers(_))
    }
}

/// A value of a type.
#[derive(Debug)]
pub(crate) struct Typed<T>(pub(crate) Option<T>);

impl<T: DeserializeOwned> Target for Typed<T> {
    fn read(&mut self, text: &str) -> Result<usize, Refused> {
        let ignored = RefCell::default();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = T::deserialize(Watched::new(&mut deserializer, &Scope::new(&ignored)));
        self.0 = Some(value.map_err(Refused::ByType)?);
        match ignored.into_inner() {
            ignored if ignored.is_empty() => Ok(deserializer.into_iter::<IgnoredAny>().byte_offset()),
            ignored => Err(Refused::IgnoresMembers(positions(text, ignored))),
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
pub(super) fn read_all(target: &mut dyn Target, text: &str) -> Result<(), Refused> {
    let end = target.read(text)?;
    // The type can have consumed only a part of the text.
    let rest = text.get(end..).unwrap_or_default();
    serde_json::Deserializer::from_str(rest).end().map_err(Refused::ByType)
}
