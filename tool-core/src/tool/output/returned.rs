//! The kinds of values that a function returns: outputs, and those that contain an error.

use std::any::type_name;
use std::error::Error;
use std::marker::PhantomData;

use super::outcome::Outcome;
use super::tool_output::ToolOutput;
use super::value::ToolReturn;
use crate::tool::ToolError;

/// An error that a `#[tool]` function can return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a tool",
    label = "must convert into `Box<dyn Error + Send + Sync>`",
    note = "implement `std::error::Error` for it, or return a `String` as the error",
    note = "write a boxed error as `Box<dyn Error + Send + Sync>`"
)]
pub trait ToolFailure: Sized {
    /// Converts the error into the one that the model reads.
    fn into_error(self) -> ToolError;
}

#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn Error + Send + Sync>>> ToolFailure for E {
    fn into_error(self) -> ToolError {
        ToolError::from_failure(self.into(), type_name::<E>())
    }
}

/// Detects by type whether a function returns a `Result`: the inherent method takes precedence over the methods of the traits, and
/// the method that takes `self` over the one that takes `&self`. With two inherent methods, rustc would report an unknown
/// return type once more, as ambiguous.
///
/// No method has bounds. They are where the value is converted, so that the compiler's message names the type that
/// the user wrote.
#[derive(Debug)]
pub struct Returned<T>(PhantomData<T>);

impl<T> Returned<T> {
    /// Captures the type of a value.
    pub fn new(_: &T) -> Self {
        Self(PhantomData)
    }
}

impl<T, E> Returned<Result<T, E>> {
    /// The inherent method, which takes precedence. The user's traits are in scope where it is called, so its name is one
    /// that no trait has.
    #[must_use]
    pub fn __tool_core_kind(self) -> Fallible {
        Fallible
    }
}

/// The kind of an optional `Result`.
pub trait FallibleOptionKind: Sized {
    /// The method for an optional result.
    fn __tool_core_kind(self) -> FallibleOption {
        FallibleOption
    }
}

impl<T, E> FallibleOptionKind for Returned<Option<Result<T, E>>> {}

/// The kind of all types that are not a `Result`.
pub trait PlainKind {
    /// The method for all other types.
    fn __tool_core_kind(&self) -> Plain {
        Plain
    }
}

impl<T> PlainKind for Returned<T> {}

/// The kind of functions that do not return a `Result`.
#[derive(Debug)]
pub struct Plain;

impl Plain {
    /// Converts the value with a function of the user.
    pub fn and_then<T>(self, value: T, convert: impl FnOnce(T) -> Outcome) -> Outcome {
        convert(value)
    }

    pub fn convert<T: ToolReturn>(self, value: T) -> Result<ToolOutput, ToolError> {
        value.into_output()
    }
}

/// The kind of functions that return an optional `Result`.
#[derive(Debug)]
pub struct FallibleOption;

impl FallibleOption {
    /// Converts the value with a function of the user.
    pub fn and_then<T>(self, value: T, convert: impl FnOnce(T) -> Outcome) -> Outcome {
        convert(value)
    }

    pub fn convert<T, E: ToolFailure>(self, value: Option<Result<T, E>>) -> Result<ToolOutput, ToolError>
    where
        Option<T>: ToolReturn,
    {
        Fallible.convert(value.transpose())
    }
}

/// The kind of functions that return a `Result`.
#[derive(Debug)]
pub struct Fallible;

impl Fallible {
    /// Converts the value, if there is one, with a function of the user.
    pub fn and_then<T, E: ToolFailure>(
        self,
        value: Result<T, E>,
        convert: impl FnOnce(T) -> Outcome,
    ) -> Outcome {
        value.map_err(ToolFailure::into_error).and_then(convert)
    }

    pub fn convert<T: ToolReturn, E: ToolFailure>(
        self,
        value: Result<T, E>,
    ) -> Result<ToolOutput, ToolError> {
        match value {
            Ok(value) => value.into_output(),
            Err(error) => Err(error.into_error()),
        }
    }
}
