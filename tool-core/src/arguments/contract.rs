//! The requirements of a tool's arguments.

use std::fmt;
use std::sync::OnceLock;

use serde_json::Value;

use super::describe::describe;
use super::parameter::Parameter;
use crate::schema::{SchemaOf, Shape, has_limits};

/// The requirements of arguments. The [`Shape`] is parsed when it is first needed: for arguments with limits or of a validator at
/// once, for all others after a mistake.
pub(crate) struct Contract {
    create: Box<dyn Fn() -> Shape + Send + Sync>,
    shape: OnceLock<Shape>,
    /// There are limits that the types do not enforce.
    pub(super) has_limits: bool,
    names: Names,
    /// The type of all arguments has no fields, and is deserialized from `null`.
    pub(super) takes_null: bool,
}

/// The names that arguments can have.
enum Names {
    /// Those of the parameters.
    Parameters(&'static [Parameter]),
    /// Those that the schema lists, if it allows no others.
    Listed,
    /// Those that the type of all arguments does not ignore.
    OfType,
}

impl Contract {
    fn new(names: Names, has_limits: bool, create: Box<dyn Fn() -> Shape + Send + Sync>) -> Self {
        Self { create, shape: OnceLock::new(), has_limits, names, takes_null: false }
    }

    /// Creates the contract of parameters with this schema, whose shape is created by the function.
    pub(crate) fn of_parameters(
        parameters: &'static [Parameter],
        schema: &Value,
        create: impl Fn() -> Shape + Send + Sync + 'static,
    ) -> Self {
        Self::new(Names::Parameters(parameters), has_limits(schema), Box::new(create))
    }

    /// Creates the contract of arguments that one type describes.
    pub(crate) fn of_type(schema: Value) -> Self {
        let takes_null = schema.get("type").is_some_and(|kind| kind == "null");
        let names = if takes_null { Names::Listed } else { Names::OfType };
        let has_limits = has_limits(&schema);
        let create = Box::new(move || Shape::parse(&schema, SchemaOf::Type));
        Self { takes_null, ..Self::new(names, has_limits, create) }
    }

    /// Creates the contract of arguments that a validator decides about.
    #[cfg(feature = "dynamic")]
    pub(crate) fn validated(create: impl Fn() -> Shape + Send + Sync + 'static) -> Self {
        Self::new(Names::Listed, false, Box::new(create))
    }

    pub(crate) fn shape(&self) -> &Shape {
        self.shape.get_or_init(&self.create)
    }

    /// Describes what an argument must be, without reference to what was passed.
    pub(crate) fn expected(&self, name: &str) -> String {
        let shape = self.shape();
        format!("expected {}", describe(shape, shape.property(name)))
    }

    pub(super) fn parameters(&self) -> &'static [Parameter] {
        match self.names {
            Names::Parameters(parameters) => parameters,
            Names::Listed | Names::OfType => &[],
        }
    }

    /// Returns `true` if there is no argument of this name, whatever the types are.
    pub(super) fn is_unknown(&self, name: &str) -> bool {
        match self.names {
            Names::Parameters(parameters) => parameters.iter().all(|parameter| parameter.name != name),
            Names::Listed => {
                let root = self.shape().node(self.shape().root());
                root.is_closed && !root.properties.contains_key(name) && !root.is_required(name)
            }
            Names::OfType => false,
        }
    }

    /// Returns the known names.
    pub(super) fn names(&self) -> Vec<&str> {
        match self.names {
            Names::Parameters(parameters) => parameters.iter().map(|parameter| parameter.name).collect(),
            Names::Listed | Names::OfType => {
                self.shape().node(self.shape().root()).names.iter().map(String::as_str).collect()
            }
        }
    }
}

impl fmt::Debug for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contract").field("has_limits", &self.has_limits).finish_non_exhaustive()
    }
}
