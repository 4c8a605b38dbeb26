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
    pub(crate) kind: ParameterKind,
    pub(crate) schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Parameter {
    /// Creates a parameter of type `T`.
    #[must_use]
    pub const fn new<T: ToolParameter>(
        name: &'static str,
        description: Option<&'static str>,
        is_required: bool,
        kind: ParameterKind,
    ) -> Self {
        Self { name, description, is_required, kind, schema: SchemaGenerator::subschema_for::<T> }
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

/// What the values of a parameter are in JSON, as far as that is known when the program is compiled. `null` is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ParameterKind {
    Bool,
    Integer,
    Number,
    Text,
    List,
    Object,
    /// It depends on the type, which serde knows.
    Other,
}

/// Detects by type, not by name, what a parameter is: an inherent constant takes precedence over the one of the trait.
///
/// The constants are looked up where the user's traits are in scope, so they have names that no other trait uses.
#[derive(Debug)]
pub struct ParameterProbe<T: ?Sized>(PhantomData<T>);

impl<T> ParameterProbe<Option<T>> {
    /// An `Option` is not required.
    pub const __TOOL_CORE_IS_REQUIRED: bool = false;
}

/// The defaults for all other types.
pub trait RequiredByDefault {
    /// Any type but `Option` is required.
    const __TOOL_CORE_IS_REQUIRED: bool = true;
    /// Any type but the simplest.
    const __TOOL_CORE_KIND: ParameterKind = ParameterKind::Other;
}

impl<T: ?Sized> RequiredByDefault for ParameterProbe<T> {}

macro_rules! kinds {
    ($($kind:ident: $($ty:ty)+;)*) => {$($(
        #[allow(missing_docs)]
        impl ParameterProbe<$ty> {
            pub const __TOOL_CORE_KIND: ParameterKind = ParameterKind::$kind;
        }

        #[allow(missing_docs)]
        impl ParameterProbe<Option<$ty>> {
            pub const __TOOL_CORE_KIND: ParameterKind = ParameterKind::$kind;
        }
    )+)*};
}

kinds! {
    Bool: bool;
    Integer: i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize;
    Number: f32 f64;
    Text: char String;
}

#[allow(missing_docs)]
impl<T> ParameterProbe<Vec<T>> {
    pub const __TOOL_CORE_KIND: ParameterKind = ParameterKind::List;
}

#[allow(missing_docs)]
impl<T> ParameterProbe<Option<Vec<T>>> {
    pub const __TOOL_CORE_KIND: ParameterKind = ParameterKind::List;
}

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
