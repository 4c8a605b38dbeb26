//! The requirements of a tool's arguments.

use std::fmt;
use std::sync::OnceLock;

use serde_json::Value;

use crate::arguments::{accepts_duplicates, duplicate_members};
use crate::schema::{SchemaOf, Shape, has_limits};

/// The requirements of arguments. The [`Shape`] is parsed when it is first needed: for arguments with limits at once, for all
/// others after a mistake.
pub(crate) struct Contract {
    create: Box<dyn Fn() -> Shape + Send + Sync>,
    shape: OnceLock<Shape>,
    /// There are limits that the types do not enforce.
    pub(crate) has_limits: bool,
    /// The types do not refuse all duplicate members by themselves.
    accepts_duplicates: bool,
}

impl Contract {
    /// Creates the contract of arguments with this schema, whose shape is created by the function.
    pub(crate) fn new(schema: &Value, create: impl Fn() -> Shape + Send + Sync + 'static) -> Self {
        Self {
            create: Box::new(create),
            shape: OnceLock::new(),
            has_limits: has_limits(schema),
            accepts_duplicates: accepts_duplicates(schema),
        }
    }

    /// Creates the contract of arguments that one type describes.
    pub(crate) fn of_type(schema: Value) -> Self {
        let has_limits = has_limits(&schema);
        let create = Box::new(move || Shape::parse(&schema, SchemaOf::Type));
        Self { create, shape: OnceLock::new(), has_limits, accepts_duplicates: true }
    }

    /// Creates the contract of arguments that a validator decides about.
    #[cfg(feature = "dynamic")]
    pub(crate) fn validated(create: impl Fn() -> Shape + Send + Sync + 'static) -> Self {
        Self { create: Box::new(create), shape: OnceLock::new(), has_limits: false, accepts_duplicates: true }
    }

    /// Returns this contract with limits, whatever the schema says.
    pub(crate) fn with_limits(mut self) -> Self {
        self.has_limits = true;
        self
    }

    pub(crate) fn shape(&self) -> &Shape {
        self.shape.get_or_init(&self.create)
    }

    /// Returns `true` if an object in the arguments has a member twice that its type does not refuse. For arguments that are read in
    /// order, where only nested objects can have one.
    pub(crate) fn has_nested_duplicates(&self, text: &str) -> bool {
        // Of a single object, the members are those of the arguments, which are in order only if each is given once.
        self.accepts_duplicates && text.matches('{').nth(1).is_some() && !duplicate_members(text).is_empty()
    }
}

impl fmt::Debug for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contract").field("has_limits", &self.has_limits).finish_non_exhaustive()
    }
}
