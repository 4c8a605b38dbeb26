//! Declared parameters and the traits that their types must implement.
//!
//! Bounds are checked where the user's type stands (`ToolParameter`, `ToolReturn`), with `#[diagnostic::on_unimplemented]`, because the
//! message is then ours and at the right token.
//!
//! Whether the type of an argument is an `Option`, and a returned type a `Result`, is decided by type and not by spelling, because aliases
//! must work.

use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A declared parameter.
#[derive(Debug)]
pub struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) description: Option<&'static str>,
    pub(crate) is_required: bool,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Parameter {
    /// Creates a parameter of type `T`.
    #[must_use]
    pub const fn new<T: ToolParameter>(
        name: &'static str,
        description: Option<&'static str>,
        is_required: bool,
    ) -> Self {
        Self { name, description, is_required, schema: SchemaGenerator::subschema_for::<T> }
    }
}

/// A type that can be a parameter of a tool.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a tool",
    label = "must implement `serde::Deserialize` and `schemars::JsonSchema`",
    note = "for a type of your own, add `#[derive(serde::Deserialize, schemars::JsonSchema)]`, with version 1 of `schemars`",
    note = "for a type of another crate, enable its feature in `schemars`, such as `chrono04` or `uuid1`, and `serde` in the other crate; or take a type that it can be created from, such as `String`",
    note = "if the application provides the value, write `#[inject]` in front of the parameter"
)]
pub trait ToolParameter: DeserializeOwned + JsonSchema + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + 'static> ToolParameter for T {}

/// A type of parameters that can be omitted.
#[diagnostic::on_unimplemented(
    message = "a parameter of type `{Self}` cannot be optional",
    label = "for `required = false`, use `Option<{Self}>` or add `default = …`"
)]
pub trait Omittable {}

#[diagnostic::do_not_recommend]
impl<T> Omittable for Option<T> {}

/// Returns `false`, the value of `required = false`, if a parameter of type `T` can be omitted.
#[must_use]
pub const fn not_required<T: Omittable>() -> bool {
    false
}

/// Detects by type, not by name, whether a parameter is an `Option`: the inherent constant takes precedence over the one of
/// the trait.
///
/// The constant is looked up where the user's traits are in scope, so it has a name that no other trait uses.
#[derive(Debug)]
pub struct OptionalProbe<T: ?Sized>(PhantomData<T>);

impl<T> OptionalProbe<Option<T>> {
    /// An `Option` is not required.
    pub const __TOOL_CORE_IS_REQUIRED: bool = false;
}

/// The default for types other than `Option`.
pub trait RequiredByDefault {
    /// Any other type is required.
    const __TOOL_CORE_IS_REQUIRED: bool = true;
}

impl<T: ?Sized> RequiredByDefault for OptionalProbe<T> {}

/// A type of parameters that accepts a string literal as default.
#[diagnostic::on_unimplemented(
    message = "the default is a string, but the parameter has the type `{Self}`",
    label = "write a default of this type"
)]
pub trait FromText {
    /// Converts the default.
    fn from_text(text: &str) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: for<'a> From<&'a str>> FromText for T {
    fn from_text(text: &str) -> Self {
        text.into()
    }
}

/// Shows a default in the schema if its type can be serialized: the inherent method takes precedence if its bound holds.
#[derive(Debug)]
pub struct Shown<'a, T>(pub &'a T);

impl<T: Serialize> Shown<'_, T> {
    /// Returns the value as JSON.
    #[must_use]
    pub fn __tool_core_json(self) -> Option<Value> {
        serde_json::to_value(self.0).ok()
    }
}

/// The fallback for values that cannot be serialized.
pub trait NotShown: Sized {
    /// Returns `None`.
    fn __tool_core_json(self) -> Option<Value> {
        None
    }
}

impl<T> NotShown for Shown<'_, T> {}

/// Returns the JSON of an `example = …`.
#[must_use]
pub fn example(value: &impl Serialize) -> Option<Value> {
    serde_json::to_value(value).ok()
}
