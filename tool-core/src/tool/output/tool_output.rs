//! The output of a tool.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::content::{Content, File, Image, JsonText, Part};
use crate::tool::ToolError;
use crate::tool::truncate::{exceeds, truncate_content};

/// The output of a tool.
///
/// A function can return one, and any other value is converted into one: `()` to `Success`, a string unchanged, an
/// [`Image`] to an image, and other values to their JSON.
///
/// It does not implement `Serialize`, so that a tool cannot return it inside of another value, which would expose its data
/// to the model. A [`ToolExecution`](crate::tool::ToolExecution) that contains it can be serialized.
///
/// ```
/// use serde_json::json;
/// use tool_core::content::Image;
/// use tool_core::ToolOutput;
///
/// assert_eq!(ToolOutput::text("22 °C").to_string(), "22 °C");
///
/// let output = ToolOutput::text("The temperatures of this week:")
///     .with_part(Image::from_url("https://example.org/week.png"))
///     .with_data(json!({ "sensor": 17 }));
/// assert_eq!(output.content().images().count(), 1);
/// assert_eq!(output.data().unwrap()["sensor"], 17);
/// ```
#[derive(Clone, Deserialize)]
#[serde(from = "OutputState<'static>")]
pub struct ToolOutput {
    content: Content,
    // Boxed because few outputs have extras, while the code of every tool moves and drops outputs.
    extras: Option<Arc<Extras>>,
}

/// The data of an output besides its content.
#[derive(Clone, Default)]
struct Extras {
    data: Option<Value>,
    left_out: usize,
    /// The tool's own limit, if the text is longer and is to be stored whole first.
    limit: Option<usize>,
}

impl ToolOutput {
    /// Creates an output from a text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::from(Content::from(text.into()))
    }

    /// Creates an output from a value. The model reads its JSON, and the application can parse it: see [`JsonText`].
    ///
    /// # Errors
    ///
    /// Returns an error if the value has no JSON form, such as a map whose keys are not strings.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self, ToolError> {
        match JsonText::serialize(value) {
            Ok(json) => Ok(Self::from(Content::from(Part::from(json)))),
            Err(error) => Err(no_json(&error)),
        }
    }

    /// Creates an output from an image.
    #[must_use]
    pub fn image(image: Image) -> Self {
        Self::from(Content::from(Part::from(image)))
    }

    /// Returns this output with a part appended.
    #[must_use]
    pub fn with_part(mut self, part: impl Into<Part>) -> Self {
        self.content = self.content.with_part(part);
        self
    }

    /// Returns this output with data for the application, which replaces earlier data; `null` removes it. The model never
    /// sees the data. A value that implements `Serialize` is passed with [`with_json_data`](Self::with_json_data). It is available from the [`ToolExecution`](crate::tool::ToolExecution). Data with more than 32 levels is
    /// not stored with a run, because the state could not be read.
    #[must_use]
    pub fn with_data(mut self, data: impl Into<Value>) -> Self {
        self.extras_mut().data = Some(data.into()).filter(|data| !data.is_null());
        self
    }

    /// Returns this output with the JSON of a value as [data](Self::with_data) for the application.
    ///
    /// # Errors
    ///
    /// Returns an error if the value has no JSON form, such as a map whose keys are not strings.
    pub fn with_json_data<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, ToolError> {
        match serde_json::to_value(value) {
            Ok(data) => Ok(self.with_data(data)),
            Err(error) => Err(no_json(&error)),
        }
    }

    /// Returns the content that the model reads.
    #[must_use]
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns this output with another content.
    pub(crate) fn with_content(self, content: Content) -> Self {
        Self { content, ..self }
    }

    /// Returns the data as it is stored with a run.
    pub(crate) fn stored_data(&self) -> Option<&Value> {
        self.data().filter(|data| !has_more_levels(data, MAX_STORED_LEVELS))
    }

    /// Returns the data for the application, which the model does not see.
    #[must_use]
    pub fn data(&self) -> Option<&Value> {
        self.extras.as_ref()?.data.as_ref()
    }

    /// Truncates the text of this output to `limit` characters. A longer text keeps its head and tail, with a note between
    /// them that states how many characters were left out. Images, data and unaffected parts are preserved.
    ///
    /// The text left out is discarded and not stored in the state of a run. [`omitted_chars`](Self::omitted_chars) returns its
    /// length. To preserve it, pass it to [`with_data`](Self::with_data).
    ///
    /// ```
    /// use tool_core::ToolOutput;
    ///
    /// let output = ToolOutput::text("a".repeat(100_000)).truncated(100);
    /// assert!(output.to_string().contains("\n[… 99934 characters left out …]\n"));
    /// assert!(output.to_string().chars().count() <= 100);
    /// assert_eq!(output.omitted_chars(), Some(99_934));
    /// ```
    #[must_use]
    pub fn truncated(mut self, limit: usize) -> Self {
        if let Some((content, left_out)) =
            truncate_content(&self.content, limit, self.omitted_chars().unwrap_or(0))
        {
            self.content = content;
            let extras = self.extras_mut();
            (extras.left_out, extras.limit) = (left_out, None);
        }
        self
    }

    /// Notes the tool's own limit if the text is longer.
    pub(crate) fn limited(mut self, limit: usize) -> Self {
        if exceeds(&self.content.text(), limit) {
            let smallest = self.limit().map_or(limit, |earlier| earlier.min(limit));
            self.extras_mut().limit = Some(smallest);
        }
        self
    }

    /// Returns the tool's own limit, if the text is longer.
    pub(crate) fn limit(&self) -> Option<usize> {
        self.extras.as_ref()?.limit
    }

    /// Truncates the text to the tool's own limit.
    pub(crate) fn within_limit(self) -> Self {
        match self.limit() {
            Some(limit) => self.truncated(limit),
            None => self,
        }
    }

    /// Restores what a stored run knows of limits: the number of characters left out, and the tool's own limit of a text that is longer.
    pub(crate) fn with_limits(mut self, left_out: Option<usize>, limit: Option<usize>) -> Self {
        if left_out.or(limit).is_some() {
            let extras = self.extras_mut();
            (extras.left_out, extras.limit) = (left_out.unwrap_or_default(), limit);
        }
        self
    }

    fn extras_mut(&mut self) -> &mut Extras {
        Arc::make_mut(self.extras.get_or_insert_default())
    }

    /// Returns the number of characters that were left out because of a limit, if any.
    #[must_use]
    pub fn omitted_chars(&self) -> Option<usize> {
        self.extras.as_ref().map(|extras| extras.left_out).filter(|left_out| *left_out > 0)
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
        Self { content, extras: None }
    }
}

impl From<File> for ToolOutput {
    fn from(file: File) -> Self {
        Self::from(Content::from(Part::from(file)))
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
        self.content == other.content
            && self.data() == other.data()
            && self.omitted_chars() == other.omitted_chars()
    }
}

/// Writes the text of the output.
impl fmt::Display for ToolOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.content, f)
    }
}

/// Shows only sizes: outputs can be secret.
impl fmt::Debug for ToolOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolOutput(")?;
        self.content.write_size(f)?;
        f.write_str(if self.data().is_some() { ", with data)" } else { ")" })
    }
}

/// The serialized form of an output.
#[derive(Serialize, Deserialize)]
pub(super) struct OutputState<'a> {
    content: Cow<'a, Content>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<Cow<'a, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_out: Option<usize>,
    /// A run can be stored before the whole output is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
}

impl<'a> OutputState<'a> {
    pub(super) fn of(output: &'a ToolOutput) -> Self {
        Self {
            content: Cow::Borrowed(&output.content),
            data: output.stored_data().map(Cow::Borrowed),
            left_out: output.omitted_chars(),
            limit: output.limit(),
        }
    }
}

#[diagnostic::do_not_recommend]
impl From<OutputState<'static>> for ToolOutput {
    fn from(state: OutputState<'static>) -> Self {
        let mut output = Self::from(state.content.into_owned());
        if let Some(data) = state.data {
            output = output.with_data(data.into_owned());
        }
        output.with_limits(state.left_out, state.limit)
    }
}

/// The levels of data that are stored. `serde_json` reads 127 in a whole state, the runs of nested agents need up to 95 of them, and data
/// can come from untrusted parties.
const MAX_STORED_LEVELS: usize = 32;

fn has_more_levels(value: &Value, limit: usize) -> bool {
    let Some(rest) = limit.checked_sub(1) else { return value.is_array() || value.is_object() };
    match value {
        Value::Array(items) => items.iter().any(|item| has_more_levels(item, rest)),
        Value::Object(members) => members.values().any(|member| has_more_levels(member, rest)),
        _ => false,
    }
}

/// Serializes the output of a call, if there is one.
pub(crate) fn write_output<S: Serializer>(
    output: &Option<ToolOutput>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    output.as_ref().map(OutputState::of).serialize(serializer)
}

#[cold]
pub(super) fn no_json(error: &serde_json::Error) -> ToolError {
    ToolError::failed(format!("the output cannot be written as JSON: {error}"))
}
