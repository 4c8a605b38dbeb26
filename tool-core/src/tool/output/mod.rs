//! What a tool gives back, and how the one that a function returns is found by its type.

mod budget;
mod into_output;
mod value;

use std::any::type_name;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use self::value::no_json;
use crate::content::{Content, Image, JsonText, Part};
use crate::tool::ToolError;

pub(crate) use self::budget::{Budget, cut_text, keep_within};
pub use self::into_output::{IntoToolOutput, Json};
pub use self::value::ToolReturn;

/// What a tool gives back to the model.
///
/// A function may return one; any other value becomes one: `()` as `Success`, a string as it is, an
/// [`Image`] as a picture, the rest as its JSON.
///
/// It cannot be serialised by itself, so that a tool which returns it inside of another value is refused: its data
/// would come to the model. The [`ToolExecution`](crate::tool::ToolExecution) that has it can.
///
/// ```
/// use serde_json::json;
/// use tool_core::content::Image;
/// use tool_core::ToolOutput;
///
/// assert_eq!(ToolOutput::text("22 °C").to_string(), "22 °C");
///
/// let output = ToolOutput::text("The temperature of this week:")
///     .with_part(Image::from_url("https://example.org/week.png"))
///     .with_data(json!({ "sensor": 17 }));
/// assert_eq!(output.content().images().count(), 1);
/// assert_eq!(output.data().unwrap()["sensor"], 17);
/// ```
#[derive(Clone, Deserialize)]
#[serde(from = "OutputState<'static>")]
pub struct ToolOutput {
    content: Content,
    // Few outputs have anything beside, but all are moved and dropped, in the code of every tool.
    beside: Option<Arc<Beside>>,
}

/// What an output has beside its content.
#[derive(Clone, Default)]
struct Beside {
    data: Option<Value>,
    left_out: usize,
}

impl ToolOutput {
    /// A text, given to the model as it is.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::from(Content::from(text.into()))
    }

    /// A value, which the model reads as its JSON, and the application as a value: see [`JsonText`].
    ///
    /// # Errors
    ///
    /// The value has no JSON, such as a map whose keys are no strings.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, ToolError> {
        match JsonText::serialize(value) {
            Ok(json) => Ok(Self::from(Content::from(Part::from(json)))),
            Err(error) => Err(no_json(&error)),
        }
    }

    /// A picture.
    #[must_use]
    pub fn image(image: Image) -> Self {
        Self::from(Content::from(Part::from(image)))
    }

    /// The same output with one more part behind the others.
    #[must_use]
    pub fn with_part(mut self, part: impl Into<Part>) -> Self {
        self.content = self.content.into_parts().into_iter().chain([part.into()]).collect();
        self
    }

    /// The same output with data for the application, in the place of earlier data; `null` is none. The
    /// model never sees it: it is on the [`ToolExecution`](crate::tool::ToolExecution) only.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Value>) -> Self {
        self.beside_mut().data = Some(data.into()).filter(|data| !data.is_null());
        self
    }

    /// What the model gets to read.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// The data for the application, which the model does not see.
    #[must_use]
    pub fn data(&self) -> Option<&Value> {
        self.beside.as_ref()?.data.as_ref()
    }

    /// The same output with so many characters of text at most: of a longer one the model reads head and
    /// tail, and between them how many characters were left out. Pictures and data stay, and so do parts
    /// that are whole.
    ///
    /// What is left out is kept nowhere, so that it takes no room in the state of a run either;
    /// [`left_out`](Self::left_out) tells how much it was. A tool that wants it kept hands it to
    /// [`with_data`](Self::with_data).
    ///
    /// ```
    /// use tool_core::ToolOutput;
    ///
    /// let output = ToolOutput::text("a".repeat(100_000)).truncated(100);
    /// assert!(output.to_string().contains("\n[… 99934 characters left out …]\n"));
    /// assert!(output.to_string().chars().count() <= 100);
    /// assert_eq!(output.left_out(), Some(99_934));
    /// ```
    #[must_use]
    pub fn truncated(mut self, limit: usize) -> Self {
        if let Some((content, left_out)) =
            budget::cut_content(&self.content, limit, self.left_out().unwrap_or(0))
        {
            self.content = content;
            self.beside_mut().left_out = left_out;
        }
        self
    }

    /// The same output of which so many characters were left out, as it was kept.
    pub(crate) fn with_left_out(mut self, left_out: Option<usize>) -> Self {
        if let Some(left_out) = left_out {
            self.beside_mut().left_out = left_out;
        }
        self
    }

    fn beside_mut(&mut self) -> &mut Beside {
        Arc::make_mut(self.beside.get_or_insert_default())
    }

    /// How many characters were left out for the sake of a limit, if any were.
    #[must_use]
    pub fn left_out(&self) -> Option<usize> {
        self.beside.as_ref().map(|beside| beside.left_out).filter(|left_out| *left_out > 0)
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
        Self { content, beside: None }
    }
}

impl From<Image> for ToolOutput {
    fn from(image: Image) -> Self {
        Self::image(image)
    }
}

impl FromIterator<Part> for ToolOutput {
    fn from_iter<I: IntoIterator<Item = Part>>(parts: I) -> Self {
        Self::from(Content::from_iter(parts))
    }
}

impl PartialEq for ToolOutput {
    fn eq(&self, other: &Self) -> bool {
        self.content == other.content && self.data() == other.data() && self.left_out() == other.left_out()
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
        f.write_str("ToolOutput(")?;
        self.content.write_size(f)?;
        f.write_str(if self.data().is_some() { ", with data)" } else { ")" })
    }
}

/// An output as it is kept.
#[derive(Serialize, Deserialize)]
struct OutputState<'a> {
    content: Cow<'a, Content>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Cow<'a, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_out: Option<usize>,
}

impl From<OutputState<'static>> for ToolOutput {
    fn from(state: OutputState<'static>) -> Self {
        let mut output = Self::from(state.content.into_owned());
        if let Some(data) = state.data {
            output = output.with_data(data.into_owned());
        }
        if let Some(left_out) = state.left_out {
            output.beside_mut().left_out = left_out;
        }
        output
    }
}

/// Writes the outcome of a call for keeping.
pub(crate) fn write_outcome<S: Serializer>(
    outcome: &Result<ToolOutput, ToolError>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let state = outcome.as_ref().map(|output| OutputState {
        content: Cow::Borrowed(&output.content),
        data: output.data().map(Cow::Borrowed),
        left_out: output.left_out(),
    });
    state.serialize(serializer)
}

/// What the error of a fallible tool must be able to do.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the error of a tool",
    label = "must convert into `Box<dyn Error + Send + Sync>`",
    note = "implement `std::error::Error` for it, or return a `String` as the error",
    note = "write a boxed error as `Box<dyn Error + Send + Sync>`"
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
