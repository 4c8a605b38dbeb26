//! The table of a tool's parameters, and what their types must be able to do.

use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// One declared parameter.
#[derive(Debug)]
pub struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) description: Option<&'static str>,
    pub(crate) is_required: bool,
    /// The name stands in JSON as it is, between quotes.
    pub(crate) is_plain: bool,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Parameter {
    /// A parameter of this type.
    #[must_use]
    pub const fn new<T: ToolParameter>(
        name: &'static str,
        description: Option<&'static str>,
        is_required: bool,
    ) -> Self {
        let (is_plain, schema) = (is_plain(name), SchemaGenerator::subschema_for::<T>);
        Self { name, description, is_required, is_plain, schema }
    }
}

const fn is_plain(name: &str) -> bool {
    let bytes = name.as_bytes();
    let mut place = 0;
    while place < bytes.len() {
        if matches!(bytes[place], b'"' | b'\\' | ..b' ') {
            return false;
        }
        place += 1;
    }
    true
}

/// What a parameter's type must be able to do.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a tool",
    label = "must implement `serde::Deserialize` and `schemars::JsonSchema`",
    note = "for a type of your own, add `#[derive(serde::Deserialize, schemars::JsonSchema)]`",
    note = "for any other type, take a type that it can be created from, such as `String`",
    note = "if the application provides the value, write `#[inject]` in front of the parameter"
)]
pub trait ToolParameter: DeserializeOwned + JsonSchema + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + 'static> ToolParameter for T {}

/// What a parameter's type must be if the parameter may be left out.
#[diagnostic::on_unimplemented(
    message = "a parameter of type `{Self}` cannot be optional",
    label = "for `required = false`, use `Option<{Self}>` or add `default = …`"
)]
pub trait Omittable {}

#[diagnostic::do_not_recommend]
impl<T> Omittable for Option<T> {}

/// What `required = false` says of a parameter that may be left out: that it is not required.
#[must_use]
pub const fn left_out<T: Omittable>() -> bool {
    false
}

/// Tells by type, not by name, whether a parameter is an `Option`: the inherent constant wins over the trait's.
///
/// It is looked up where the user's own traits are in scope, so its name is one that no trait has.
#[derive(Debug)]
pub struct OptionalProbe<T: ?Sized>(PhantomData<T>);

impl<T> OptionalProbe<Option<T>> {
    /// An `Option` may be left out.
    pub const __TOOL_CORE_IS_REQUIRED: bool = false;
}

/// What holds for all types that are no `Option`.
pub trait RequiredByDefault {
    /// Any other type must be given.
    const __TOOL_CORE_IS_REQUIRED: bool = true;
}

impl<T: ?Sized> RequiredByDefault for OptionalProbe<T> {}

/// A default that is written as a text in quotes, for a parameter of any type of text.
#[diagnostic::on_unimplemented(
    message = "the default is a string, but the parameter has the type `{Self}`",
    label = "write a default of this type"
)]
pub trait FromText {
    /// The default itself.
    fn from_text(text: &str) -> Self;
}

#[diagnostic::do_not_recommend]
impl<T: for<'a> From<&'a str>> FromText for T {
    fn from_text(text: &str) -> Self {
        text.into()
    }
}

/// Tells whether a default can be shown in the schema: the inherent method wins if its bound holds.
#[derive(Debug)]
pub struct Shown<'a, T>(pub &'a T);

impl<T: Serialize> Shown<'_, T> {
    /// The value as JSON.
    #[must_use]
    pub fn __tool_core_json(self) -> Option<Value> {
        serde_json::to_value(self.0).ok()
    }
}

/// What holds for values that cannot be written.
pub trait NotShown: Sized {
    /// Nothing is shown.
    fn __tool_core_json(self) -> Option<Value> {
        None
    }
}

impl<T> NotShown for Shown<'_, T> {}

/// The JSON of an `example = …`.
#[must_use]
pub fn example(value: &impl Serialize) -> Option<Value> {
    serde_json::to_value(value).ok()
}
