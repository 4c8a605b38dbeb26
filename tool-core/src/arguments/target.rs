//! Destinations of values that are read: types and validators, which decide what is accepted.
//!
//! The type decides what is accepted, and the schema adds only limits, because a schema does not know aliases or functions that
//! deserialize. A type is asked with the text of the model, then with repaired text, and with nothing else: after a refusal, the schema
//! explains all that it can, and serde's text is quoted where the schema explains nothing, and never parsed. So further mistakes that only
//! a type knows are reported in the next answer.

use std::collections::HashMap;
use std::ops::Range;

use serde::de::DeserializeOwned;

use super::budget::MAX_DEPTH;
use super::members::{Place, find_part, offset_in};
use super::validators::SchemaValidator;
use super::watched::{FieldNames, Ignored, Notes, Scope, Step, Watched};

/// The destination of a value that is read. It hides the type, so that everything else exists once.
pub(crate) trait Target {
    /// Reads a whole text, stores its value, and returns the members that were ignored.
    fn read(&mut self, text: &str) -> Result<Vec<IgnoredMember>, Refused>;

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
    pub(super) known: FieldNames,
}

/// The refusal of a value.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The type cannot be deserialized from it.
    ByType(TypeError),
    /// It does not match the schema.
    #[cfg_attr(not(feature = "dynamic"), expect(dead_code, reason = "only dynamic tools have a validator"))]
    BySchema,
}

/// The first error of a type, and the members that it ignored until then.
#[derive(Debug)]
pub(crate) struct TypeError {
    pub(super) reason: String,
    /// The way from the place of the error to the whole value.
    steps: Vec<Step>,
    ignored: Vec<IgnoredMember>,
}

impl TypeError {
    /// Returns the part of the value in which the error was raised.
    pub(super) fn place<'t>(&self, text: &'t str) -> Place<'t> {
        let ordinals: Vec<_> = self.steps.iter().rev().map(|step| step.ordinal).collect();
        find_part(text, |depth, index, _| ordinals.get(depth) == Some(&index))
    }
}

/// What is known about the members that types ignore.
#[derive(Debug, Default)]
pub(super) struct Ignorance {
    /// The positions of the values that were ignored, with the names that the structs have.
    ignored: HashMap<usize, FieldNames>,
    /// The positions of structs that were not read to their ends.
    unfinished: HashMap<usize, FieldNames>,
}

impl Ignorance {
    pub(super) fn new(ignored: &[IgnoredMember]) -> Self {
        let ignored = ignored.iter().map(|member| (member.value.start, member.known)).collect();
        Self { ignored, unfinished: HashMap::new() }
    }

    pub(super) fn of_refused(text: &str, error: &TypeError) -> Self {
        let containers = error.place(text).containers.into_iter().zip(error.steps.iter().rev());
        let unfinished =
            containers.filter_map(|(part, step)| Some((offset_in(text, part), step.names?))).collect();
        Self { unfinished, ..Self::new(&error.ignored) }
    }

    /// Returns the names that a struct has if its type ignores this member.
    pub(super) fn names_instead_of(&self, object: usize, name: &str, value: usize) -> Option<FieldNames> {
        let names = self.ignored.get(&value).or_else(|| self.unfinished.get(&object))?;
        // A type can have a member and ignore its value.
        (!names.contains(&name)).then_some(names)
    }

    /// Returns `true` if the value at this position was ignored.
    pub(super) fn contains(&self, value: usize) -> bool {
        self.ignored.contains_key(&value)
    }
}

/// A value of a type.
#[derive(Debug)]
pub(crate) struct Typed<T>(pub(crate) Option<T>);

impl<T: DeserializeOwned> Target for Typed<T> {
    fn read(&mut self, text: &str) -> Result<Vec<IgnoredMember>, Refused> {
        let notes = Notes::default();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let value = T::deserialize(Watched::new(&mut deserializer, &Scope::new(&notes)));
        // The type can have consumed only a part of the text.
        match value.and_then(|value| deserializer.end().map(|()| value)) {
            Ok(value) => self.0 = Some(value),
            Err(error) => return Err(refused(text, notes, &error)),
        }
        Ok(positions(text, notes))
    }
}

#[cold]
fn refused(text: &str, notes: Notes<'_>, error: &serde_json::Error) -> Refused {
    let reason = error.to_string();
    let reason = reason.rsplit_once(" at line ").map_or(&*reason, |(reason, _)| reason).to_owned();
    // The place of an error about too many levels says nothing, and the way to it would be long.
    let steps = Some(notes.steps.take()).filter(|steps| steps.len() < MAX_DEPTH - 1).unwrap_or_default();
    Refused::ByType(TypeError { reason, steps, ignored: positions(text, notes) })
}

fn positions(text: &str, notes: Notes<'_>) -> Vec<IgnoredMember> {
    let position = |Ignored { value, known }| {
        let start = offset_in(text, value);
        IgnoredMember { value: start..start + value.len(), known }
    };
    notes.ignored.into_inner().into_iter().map(position).collect()
}
