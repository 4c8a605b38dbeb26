//! What a tool gives back, and how a function's return value becomes that.

use std::any::{Any, type_name};
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;

use serde::{Deserialize, Serialize};

use crate::{Content, ToolError};

/// What a tool gives back to the model.
///
/// A function may return one; any other value becomes one: `()` as `Success`, a string as it is, the
/// rest as its JSON.
///
/// ```
/// use tool_core::ToolOutput;
///
/// assert_eq!(ToolOutput::text("22 °C").to_string(), "22 °C");
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolOutput {
    content: Content,
}

impl ToolOutput {
    /// A text, given to the model as it is.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Content::from(text.into()) }
    }

    /// What the model gets to read.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<Content> for ToolOutput {
    fn from(content: Content) -> Self {
        Self { content }
    }
}

/// The text of the output.
impl fmt::Display for ToolOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.content, f)
    }
}

/// Tells how much there is, not what: outputs may be secrets.
impl fmt::Debug for ToolOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolOutput({} bytes)", self.content.len())
    }
}

/// What a tool may return.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    label = "needs `serde::Serialize`, and to own what it holds",
    note = "above a type of your own, write `#[derive(serde::Serialize)]`; instead of a future, write `async fn`"
)]
pub trait ToolReturn: Sized {
    /// The value as the model reads it.
    fn into_output(self) -> Result<ToolOutput, ToolError>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize + 'static> ToolReturn for T {
    fn into_output(self) -> Result<ToolOutput, ToolError> {
        let mut value = Some(self);
        match verbatim(&mut value) {
            Some(output) => Ok(output),
            None => json_output(serde_json::to_string(&value)),
        }
    }
}

/// The output of a value that is not sent as JSON; `value` is an `Option` that holds it.
///
/// Not generic, so that it is compiled once and not once per return type.
fn verbatim(value: &mut dyn Any) -> Option<ToolOutput> {
    if let Some(text) = value.downcast_mut::<Option<String>>() {
        return text.take().map(ToolOutput::text);
    }
    if let Some(output) = value.downcast_mut::<Option<ToolOutput>>() {
        return output.take();
    }
    if let Some(text) = value.downcast_ref::<Option<&'static str>>() {
        return text.map(ToolOutput::text);
    }
    if let Some(text) = value.downcast_mut::<Option<Cow<'static, str>>>() {
        return text.take().map(ToolOutput::text);
    }
    if let Some(number) = float(value).filter(|number| !number.is_finite()) {
        // JSON has no word for it, and would say `null`.
        let word = if number.is_nan() {
            "NaN"
        } else if number > 0.0 {
            "inf"
        } else {
            "-inf"
        };
        return Some(ToolOutput::text(word));
    }
    value.is::<Option<()>>().then(|| ToolOutput::text("Success"))
}

fn float(value: &dyn Any) -> Option<f64> {
    match value.downcast_ref::<Option<f64>>() {
        Some(number) => *number,
        None => value.downcast_ref::<Option<f32>>()?.map(f64::from),
    }
}

fn json_output(json: serde_json::Result<String>) -> Result<ToolOutput, ToolError> {
    json.map(ToolOutput::text).map_err(ToolError::failed)
}

/// What the error of a fallible tool must be able to do.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a tool",
    label = "needs to convert into `Box<dyn Error + Send + Sync>`",
    note = "implement `std::error::Error` for it, or return a `String` as the error; of a boxed error write `Box<dyn Error + Send + Sync>`"
)]
pub trait ToolFailure: Sized {
    /// The error as the model reads it.
    fn into_error(self) -> ToolError;
}

#[diagnostic::do_not_recommend]
impl<E: Into<Box<dyn Error + Send + Sync>>> ToolFailure for E {
    fn into_error(self) -> ToolError {
        ToolError::from_failure(self.into(), type_name::<E>())
    }
}

/// Tells by type, not by name, whether a function returns a `Result`: the inherent method wins over the trait's.
///
/// Neither method has a bound; the bounds stand where the value is converted, so that the compiler's
/// message is about the type that the user wrote.
#[derive(Debug)]
pub struct Returned<T>(PhantomData<T>);

impl<T> Returned<T> {
    /// Looks at the type only.
    pub fn of(_: &T) -> Self {
        Self(PhantomData)
    }
}

impl<T, E> Returned<Result<T, E>> {
    /// The inherent method, which wins. It is looked up where the user's own traits are in scope, so its name
    /// is one that no trait has.
    #[must_use]
    pub fn __tool_core_kind(self) -> Fallible {
        Fallible
    }
}

/// What holds for all types that are no `Result`.
pub trait PlainKind: Sized {
    /// The trait's method, for the rest.
    fn __tool_core_kind(self) -> Plain {
        Plain
    }
}

impl<T> PlainKind for Returned<T> {}

/// A function that returns its value.
#[derive(Debug)]
pub struct Plain;

impl Plain {
    /// Makes the outcome of the value by a function of the user's.
    pub fn and_then<T>(
        self,
        value: T,
        convert: impl FnOnce(T) -> Result<ToolOutput, ToolError>,
    ) -> Result<ToolOutput, ToolError> {
        convert(value)
    }

    pub fn convert<T: ToolReturn>(self, value: T) -> Result<ToolOutput, ToolError> {
        value.into_output()
    }
}

/// A function that returns a `Result`.
#[derive(Debug)]
pub struct Fallible;

impl Fallible {
    /// Makes the outcome of the value by a function of the user's, if there is one.
    pub fn and_then<T, E: ToolFailure>(
        self,
        value: Result<T, E>,
        convert: impl FnOnce(T) -> Result<ToolOutput, ToolError>,
    ) -> Result<ToolOutput, ToolError> {
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
