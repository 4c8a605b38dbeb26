//! Validators of the parts of a schema, where the schema decides and not a type.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::schema::NodeId;

/// The maximum number of parts of a schema, and of arguments, that are validated. Each of their schemas must be compiled.
const MAX_VALIDATORS: usize = 64;

/// A schema that decides by itself which values are valid.
pub(crate) trait SchemaValidator {
    /// Returns a function that validates JSON texts by a part of the schema, or `None` if that is not possible.
    fn validator_of_part(&self, part: Map<String, Value>) -> Option<IsValid>;

    /// Returns a function that validates one of the arguments as a whole.
    fn validator_of_argument(&self, name: &str) -> Option<IsValid>;
}

/// A function that returns `true` if a JSON text is valid.
pub(crate) type IsValid = Box<dyn Fn(&str) -> bool>;

/// The keywords of a schema that only its validator knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    MembersByPattern,
    OtherKeywords,
}

/// The validators that were needed so far.
pub(super) struct Validators<'v> {
    schema: &'v dyn SchemaValidator,
    of_parts: HashMap<(NodeId, Part), Option<IsValid>>,
    /// The number of arguments that were validated.
    arguments: usize,
}

impl<'v> Validators<'v> {
    pub(super) fn new(schema: &'v dyn SchemaValidator) -> Self {
        Self { schema, of_parts: HashMap::new(), arguments: 0 }
    }

    /// Returns `true` if a part of a schema accepts the value, or if that is unknown.
    pub(super) fn accepts(
        &mut self,
        id: NodeId,
        part: Part,
        schema: &Map<String, Value>,
        text: &str,
    ) -> bool {
        if self.of_parts.len() == MAX_VALIDATORS && !self.of_parts.contains_key(&(id, part)) {
            return true;
        }
        let create = || self.schema.validator_of_part(schema.clone());
        let validator = self.of_parts.entry((id, part)).or_insert_with(create);
        validator.as_ref().is_none_or(|is_valid| is_valid(text))
    }

    /// Returns whether the schema accepts an argument as a whole, if that is known.
    pub(super) fn accepts_argument(&mut self, name: &str, value: &str) -> Option<bool> {
        if self.arguments == MAX_VALIDATORS {
            return None;
        }
        self.arguments += 1;
        let is_valid = self.schema.validator_of_argument(name)?;
        Some(is_valid(value))
    }
}
